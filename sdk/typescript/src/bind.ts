// Binding a template: what is asked for, and what comes of it.

import { inspect } from 'node:util';

import type { MessageInitShape } from '@bufbuild/protobuf';

import type { CallOptions, Caller } from './call.js';
import { pendingError, protocolError, requestFailedError } from './errors/error.js';
import {
  BindingService,
  type CreateBindableResourcesRequestRequestSchema,
  Phase,
  type BindableResourcesRequest,
  type BindingResourceResponse,
  type CreateBindableResourcesRequestResponse,
} from './gen/kubebind/v1alpha2/binding_pb.js';

/** Pause before another call if the server responds PENDING at once, in milliseconds. */
const PENDING_PAUSE_MS = 1_000;

/** How long a request may be pending, in milliseconds: the provider's admin may have something to mend. */
const PATIENCE_MS = 5 * 60_000;

/** A consumer cluster, by its identity alone or with its name for people. */
export type ClusterIdentityInput = string | { readonly identity: string; readonly prettyName?: string | undefined };

/** A request to bind, as a message or as its fields. */
export type BindRequest = MessageInitShape<typeof CreateBindableResourcesRequestRequestSchema>;

/** Settings of waiting for a request to bind. */
export interface WaitOptions extends CallOptions {
  /** How long a request may be pending before an error of kind `pending`, in milliseconds: 300,000. */
  readonly patienceMs?: number | undefined;
  /** Called with the request each time that it is still pending. */
  readonly progress?: ((request: BindableResourcesRequest) => void) | undefined;
}

/** Settings of a bind. */
export interface BindOptions extends WaitOptions {
  /** Name of the request, which becomes that of the binding: the template's name unless set. */
  readonly name?: string | undefined;
  /** How long the server waits for its controller in one call, in milliseconds: 30,000. */
  readonly waitMs?: number | undefined;
  /** Checks everything and returns what would be the result, but writes nothing and issues no kubeconfig. */
  readonly validateOnly?: boolean | undefined;
}

/** A fulfilled request, and what to install for it. */
export class Bound {
  /** The request in phase SUCCEEDED. */
  readonly request: BindableResourcesRequest;
  /** What to install on the consumer. */
  readonly response: BindingResourceResponse;

  /** @internal */
  constructor(request: BindableResourcesRequest, response: BindingResourceResponse) {
    this.request = request;
    this.response = response;
  }

  /** The kubeconfig file of the contract (YAML), which is a secret; undefined with `validateOnly`. */
  get kubeconfig(): string | undefined {
    const bytes = this.response.kubeconfig?.kubeconfig;
    return bytes === undefined ? undefined : Buffer.from(bytes).toString('utf8');
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

/** Makes the request to bind a template. */
export function bindRequest(template: string, cluster: ClusterIdentityInput, options: BindOptions): BindRequest {
  const { identity, prettyName = '' } = typeof cluster === 'string' ? { identity: cluster } : cluster;
  return {
    bindableResourcesRequest: {
      metadata: { name: options.name ?? template },
      spec: { templateRef: { name: template }, clusterIdentity: { identity, prettyName } },
    },
    ...(options.waitMs !== undefined && { wait: duration(options.waitMs) }),
    validateOnly: options.validateOnly ?? false,
  };
}

/** Makes one call to bind. Phase FAILED is an error. */
export async function createRequest(
  caller: Caller,
  request: BindRequest,
  options: CallOptions,
): Promise<CreateBindableResourcesRequestResponse> {
  const answer = await caller.unary(BindingService.method.createBindableResourcesRequest, request, options);
  const answered = answer.bindableResourcesRequest;
  if (answered === undefined) throw missing(caller, 'request');
  if (answered.status?.phase === Phase.FAILED) throw requestFailedError(answered);
  return answer;
}

/** Binds, and waits for the result. */
export async function bindAndWait(caller: Caller, request: BindRequest, options: WaitOptions): Promise<Bound> {
  const { patienceMs = PATIENCE_MS, progress, signal } = options;
  const startedAt = performance.now();
  for (;;) {
    const askedAt = performance.now();
    const { bindableResourcesRequest: pending, response } = await createRequest(caller, request, options);
    if (pending === undefined) throw missing(caller, 'request');
    if (response !== undefined) return new Bound(pending, response);
    if (pending.status?.phase === Phase.SUCCEEDED || request.validateOnly === true) throw missing(caller, 'response');
    progress?.(pending);
    const waitedMs = performance.now() - startedAt;
    if (waitedMs >= patienceMs) throw pendingError(pending, waitedMs);
    await caller.pause(Math.max(0, askedAt + PENDING_PAUSE_MS - performance.now()), signal);
  }
}

/** Makes the error for a response without its main field. */
export function missing(caller: Caller, what: string) {
  return protocolError(caller.address, `an answer has no ${what}`);
}

function duration(ms: number): { seconds: bigint; nanos: number } {
  const seconds = Math.floor(ms / 1000);
  return { seconds: BigInt(seconds), nanos: Math.round((ms - seconds * 1000) * 1_000_000) };
}
