// Binding a template: the request, and its result.

import { inspect } from 'node:util';

import { clone, create, type MessageInitShape } from '@bufbuild/protobuf';
import { DurationSchema } from '@bufbuild/protobuf/wkt';

import type { CallInvoker, CallOptions } from './call.js';
import { pendingError, protocolError, requestFailedError } from './errors/error.js';
import {
  BindingService,
  CreateBindableResourcesRequestRequestSchema,
  Phase,
  type BindableResourcesRequest,
  type BindingResourceResponse,
  type CreateBindableResourcesRequestRequest,
} from './gen/kubebind/v1alpha2/binding_pb.js';
import { takeKubeconfig, type Hidden } from './hidden.js';
import { waitMs } from './method.js';
import { checkDuration, checkWait } from './settings.js';

/** Pause before another call if the server responds PENDING at once, in milliseconds. */
const PENDING_PAUSE_MS = 1_000;

/** How long a request may be pending, in milliseconds: the provider's admin may have to change something. */
const PATIENCE_MS = 5 * 60_000;

/** The longest duration of protobuf, in milliseconds: 10,000 years. */
const DURATION_MAX_MS = 315_576_000_000_000;

/** A request to bind, as a message or as its fields. */
export type BindRequest = MessageInitShape<typeof CreateBindableResourcesRequestRequestSchema>;

/** Settings of waiting for a request to bind. */
export interface WaitOptions extends CallOptions {
  /** How long a request may be pending before an error of kind `pending`, in milliseconds: 300,000. With 0 there is one try. */
  readonly patienceMs?: number | undefined;
  /** Called with the request each time that it is still pending. */
  readonly progress?: ((request: BindableResourcesRequest) => void) | undefined;
}

/** Settings of a bind. */
export interface BindOptions extends WaitOptions {
  /** Name of the request, which becomes that of the binding: the template's name unless set. */
  readonly name?: string | undefined;
  /** Name of the cluster, for people. */
  readonly prettyName?: string | undefined;
  /** How long the server waits for its controller in one call, in milliseconds: 30,000, and no longer than `patienceMs`. */
  readonly waitMs?: number | undefined;
  /** How long the provider keeps the record of the request after it has succeeded or failed, in milliseconds. */
  readonly ttlAfterFinishedMs?: number | undefined;
  /** Checks everything and returns what would be the result, but writes nothing and issues no kubeconfig. */
  readonly validateOnly?: boolean | undefined;
}

/** The names in a request to bind, which its response must have too. */
export interface RequestedNames {
  /** Name of the binding; empty if the request has none. */
  readonly name: string;
  /** Name of the template; empty if the request has none. */
  readonly template: string;
}

/** A fulfilled request, and what to install for it. */
export class Bound {
  /** The request in phase SUCCEEDED. */
  readonly request: BindableResourcesRequest;
  /** What to install on the consumer, without the kubeconfig file. */
  readonly response: BindingResourceResponse;
  /** The kubeconfig file of the contract (YAML); undefined with `validateOnly`. */
  readonly kubeconfig: Hidden | undefined;
  /** @internal */
  readonly requested: RequestedNames;

  /** @internal */
  constructor(request: BindableResourcesRequest, response: BindingResourceResponse, requested: RequestedNames) {
    this.request = request;
    this.response = response;
    this.kubeconfig = takeKubeconfig(response.kubeconfig);
    this.requested = requested;
  }

  /** What can be logged: no secret. */
  toJSON(): { name: string; contract: string; credentialId: string } {
    return {
      name: this.response.bindingName,
      contract: this.response.providerNamespace,
      credentialId: this.response.kubeconfig?.credentialId ?? '',
    };
  }

  /** @internal */
  [inspect.custom](): string {
    return `Bound ${inspect(this.toJSON())}`;
  }
}

/** A request to bind as one call has left it. */
export interface CreatedRequest {
  /** The request, in phase PENDING or SUCCEEDED. */
  readonly request: BindableResourcesRequest;
  /** What to install; undefined while the request is pending. */
  readonly bound: Bound | undefined;
}

/** Makes the request to bind a template to a cluster. */
export function bindRequest(template: string, identity: string, options: BindOptions): BindRequest {
  const { ttlAfterFinishedMs, prettyName = '' } = options;
  return {
    bindableResourcesRequest: {
      metadata: { name: options.name ?? template },
      spec: {
        templateRef: { name: template },
        clusterIdentity: { identity, prettyName },
        ...(ttlAfterFinishedMs !== undefined && {
          ttlAfterFinished: duration(Math.min(checkDuration('ttlAfterFinishedMs', ttlAfterFinishedMs), DURATION_MAX_MS)),
        }),
      },
    },
    ...(options.waitMs !== undefined && { wait: duration(checkWait('waitMs', options.waitMs)) }),
    validateOnly: options.validateOnly ?? false,
  };
}

/** Makes one call to bind. Phase FAILED is an error. */
export async function createRequest(invoker: CallInvoker, init: BindRequest, options: CallOptions): Promise<CreatedRequest> {
  const request = create(CreateBindableResourcesRequestRequestSchema, init);
  const method = BindingService.method.createBindableResourcesRequest;
  const { bindableResourcesRequest: created, response } = await invoker.unary(method, request, options);
  if (created === undefined) throw missing(invoker, 'request');
  if (created.status?.phase === Phase.FAILED) throw requestFailedError(created);
  const { metadata, spec } = request.bindableResourcesRequest ?? {};
  const requested = { name: metadata?.name ?? '', template: spec?.templateRef?.name ?? '' };
  return { request: created, bound: response && new Bound(created, response, requested) };
}

/** Binds, and waits for the result. */
export async function bindAndWait(invoker: CallInvoker, init: BindRequest, options: WaitOptions): Promise<Bound> {
  const { progress, signal } = options;
  const patienceMs = checkWait('patienceMs', options.patienceMs ?? PATIENCE_MS);
  const request = create(CreateBindableResourcesRequestRequestSchema, init);
  const startedAt = performance.now();
  const leftMs = () => Math.max(0, Math.ceil(startedAt + patienceMs - performance.now()));
  for (;;) {
    const calledAt = performance.now();
    const { request: pending, bound } = await createRequest(invoker, withinPatience(request, leftMs()), options);
    if (bound !== undefined) return bound;
    if (pending.status?.phase === Phase.SUCCEEDED || request.validateOnly) throw missing(invoker, 'response');
    progress?.(pending);
    if (leftMs() === 0) throw pendingError(pending, performance.now() - startedAt);
    const pauseMs = calledAt + PENDING_PAUSE_MS - performance.now();
    await invoker.pause(Math.max(0, Math.min(pauseMs, leftMs())), signal);
  }
}

/** Makes the error for a response without its main field. */
export function missing(invoker: CallInvoker, what: string) {
  return protocolError(invoker.address, `a response has no ${what}`);
}

/** The request with a wait that ends with the patience of the caller. */
function withinPatience(request: CreateBindableResourcesRequestRequest, leftMs: number): BindRequest {
  if (request.validateOnly || waitMs(request.wait) <= leftMs) return request;
  const limited = clone(CreateBindableResourcesRequestRequestSchema, request);
  limited.wait = create(DurationSchema, duration(leftMs));
  return limited;
}

function duration(ms: number): { seconds: bigint; nanos: number } {
  const seconds = Math.floor(ms / 1000);
  return { seconds: BigInt(seconds), nanos: (ms - seconds * 1000) * 1_000_000 };
}
