// Does the actions of the contract suite with a client.

import { clone, create, fromJson, toJson, type DescMessage, type JsonValue, type Message } from '@bufbuild/protobuf';
import type { DescMethodUnary } from '@bufbuild/protobuf';

import { bytesOf } from '../../src/hidden.js';
import type { Bound, Client, Hidden, ManifestOptions, Pages, Watch } from '../../src/index.js';
import {
  BindableResourcesRequestSchema,
  BindingResourceResponseSchema,
  BindingService,
  CatalogService,
  ContractService,
  CredentialService,
  ExportService,
  KubeconfigSchema,
  ProviderService,
  type BindingResourceResponse,
  type Kubeconfig,
} from '../../src/v1alpha2.js';
import { callTyped } from './typed.js';
import { eventJson, shown } from './json.js';

interface BindJson {
  readonly template: string;
  readonly identity: string;
  readonly name?: string;
  readonly prettyName?: string;
  readonly waitMs?: number;
  readonly patienceMs?: number;
  readonly ttlAfterFinishedMs?: number;
  readonly validateOnly?: boolean;
}

export type Action =
  | { call: string; request?: JsonValue }
  | { typed: string; request?: JsonValue }
  | { list: string; request?: JsonValue }
  | { watch: string; request?: JsonValue; events: number }
  | { bind: BindJson }
  | { manifests: { response: JsonValue; options?: ManifestOptions } };

/** What came of an action, as far as it came. */
export interface Outcome {
  ok?: JsonValue;
  events?: JsonValue[];
  progress?: number;
  resumeToken?: string;
}

const SERVICES = [BindingService, CatalogService, ContractService, CredentialService, ExportService, ProviderService];

function methodOf(name: string) {
  for (const service of SERVICES) {
    const method = service.methods.find((candidate) => candidate.name === name);
    if (method !== undefined) return method;
  }
  throw new Error(`there is no method ${name}`);
}

/** The method of the client for a method of the API. */
function clientMethod(client: Client, name: string): (request: Message, options: { signal: AbortSignal }) => unknown {
  const key = `${name.charAt(0).toLowerCase()}${name.slice(1)}` as keyof Client;
  return (client[key] as (request: Message, options: object) => unknown).bind(client);
}

/** Does an action; `texts` gets what is shown of its results. */
export async function act(
  client: Client,
  action: Exclude<Action, { manifests: unknown }>,
  signal: AbortSignal,
  outcome: Outcome,
  texts: string[],
): Promise<void> {
  if ('bind' in action) {
    const { template, identity, ...options } = action.bind;
    outcome.progress = 0;
    const progress = () => {
      outcome.progress = (outcome.progress ?? 0) + 1;
    };
    const bound = await client.bind(template, identity, { ...options, signal, progress });
    texts.push(...shown(bound), ...shown(bound.response), ...shown(bound.kubeconfig));
    outcome.ok = boundJson(bound);
    return;
  }
  if ('typed' in action) {
    const method = methodOf(action.typed);
    outcome.ok = await callTyped(client, method.name, fromJson(method.input, action.request ?? {}), { signal }, texts);
    return;
  }
  const method = methodOf('call' in action ? action.call : 'list' in action ? action.list : action.watch);
  const request = fromJson(method.input, action.request ?? {});
  if ('call' in action) {
    const response = await client.call(method as DescMethodUnary<DescMessage, DescMessage>, request, { signal });
    outcome.ok = toJson(method.output, response);
  } else if ('list' in action) {
    const items = await (clientMethod(client, action.list)(request, { signal }) as Pages<Message>).all();
    const schema = method.output.fields.find((field) => field.fieldKind === 'list')?.message as DescMessage;
    outcome.ok = items.map((item) => toJson(schema, item));
  } else {
    const watch = clientMethod(client, action.watch)(request, { signal }) as Watch<Message>;
    texts.push(...shown(watch));
    await follow(watch, method.output.field['applied']?.message as DescMessage, action.events, outcome, texts);
  }
}

async function follow(watch: Watch<Message>, schema: DescMessage, count: number, outcome: Outcome, texts: string[]): Promise<void> {
  const events: JsonValue[] = [];
  outcome.events = events;
  while (events.length < count) {
    const { done, value } = await watch.next();
    if (done === true) return;
    events.push(eventJson(schema, value));
    if (value.type === 'disconnected' && value.error !== undefined) texts.push(...shown(value.error));
    outcome.resumeToken = watch.resumeToken;
  }
  watch.close();
  outcome.ok = {};
}

/** Writes the result of a bind as the server sent it, with its kubeconfig. */
export function boundJson(bound: Bound): JsonValue {
  return {
    request: toJson(BindableResourcesRequestSchema, bound.request),
    response: toJson(BindingResourceResponseSchema, wholeResponse(bound)),
  };
}

/** The response of a bind with its kubeconfig put back. */
export function wholeResponse({ response, kubeconfig }: Bound): BindingResourceResponse {
  const whole = clone(BindingResourceResponseSchema, response);
  if (kubeconfig !== undefined) whole.kubeconfig = wholeKubeconfig(response.kubeconfig, kubeconfig);
  return whole;
}

/** A kubeconfig message with its file put back. */
export function wholeKubeconfig(rest: Kubeconfig | undefined, file: Hidden): Kubeconfig {
  const { contractUid = '', credentialId = '', expiresIn, renewAfter, expireTime } = rest ?? {};
  return create(KubeconfigSchema, {
    kubeconfig: bytesOf(file),
    contractUid,
    credentialId,
    ...(expiresIn && { expiresIn }),
    ...(renewAfter && { renewAfter }),
    ...(expireTime && { expireTime }),
  });
}
