// The runner of the contract suite: does what each line of standard input asks, and answers with a line when that has ended.

import { createInterface } from 'node:readline';
import { inspect } from 'node:util';

import { fromJson, toJson, type DescMessage, type JsonObject, type JsonValue, type Message } from '@bufbuild/protobuf';
import type { DescMethodUnary } from '@bufbuild/protobuf';

import {
  BinderyError,
  Client,
  ConfigError,
  RefusedError,
  execToken,
  fileToken,
  manifests,
  staticToken,
  type ManifestOptions,
  type Pages,
  type RetryPolicy,
  type TokenSource,
  type Watch,
  type WatchEvent,
} from '../src/index.js';
import { testing } from '../src/testing.js';
import {
  BindableResourcesRequestSchema,
  BindingResourceResponseSchema,
  BindingService,
  CatalogService,
  ContractService,
  CredentialService,
  ExportService,
  ProviderService,
} from '../src/v1alpha2.js';

interface Line {
  readonly id: string;
  readonly client: ClientJson;
  readonly action: Action;
  readonly cancelAfterMs?: number;
}

interface ClientJson {
  readonly address: string;
  readonly caPem?: string;
  readonly caFile?: string;
  readonly serverName?: string;
  readonly allowPlaintext?: boolean;
  readonly token?: { static?: string; file?: string; exec?: [string, ...string[]] } | null;
  readonly timeoutMs?: number;
  readonly attemptTimeoutMs?: number;
  readonly retry?: Partial<RetryPolicy>;
  readonly reconnect?: { baseMs: number; capMs: number };
  readonly silenceMs?: number;
  readonly userAgent?: string;
}

interface BindJson {
  readonly template: string;
  readonly identity: string;
  readonly name?: string;
  readonly waitMs?: number;
  readonly patienceMs?: number;
  readonly validateOnly?: boolean;
}

type Action =
  | { call: string; request?: JsonValue }
  | { list: string; request?: JsonValue }
  | { watch: string; request?: JsonValue; events: number }
  | { bind: BindJson }
  | { manifests: { response: JsonValue; options?: ManifestOptions } };

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

/** What came of a line, as far as it came. */
interface Outcome {
  ok?: JsonValue;
  events?: JsonValue[];
  progress?: number;
  resumeToken?: string;
  shown: string[];
}

async function run(line: Line): Promise<JsonObject> {
  const outcome: Outcome = { shown: [] };
  let failure: unknown;
  try {
    await act(line, outcome);
  } catch (error) {
    failure = error;
    outcome.shown.push(...shown(error));
  }
  return {
    id: line.id,
    ...(outcome as unknown as JsonObject),
    ...(failure !== undefined && { error: errorJson(failure) }),
  };
}

async function act({ client: settings, action, cancelAfterMs }: Line, outcome: Outcome): Promise<void> {
  if ('manifests' in action) {
    const response = fromJson(BindingResourceResponseSchema, action.manifests.response);
    const made = manifests(response, action.manifests.options);
    outcome.shown.push(...shown(made));
    outcome.ok = made.canonical();
    return;
  }
  const token = tokenOf(settings);
  const client = clientOf(settings, token);
  outcome.shown.push(...shown(client), ...shown(token));
  const controller = new AbortController();
  const timer = cancelAfterMs === undefined ? undefined : setTimeout(() => controller.abort(), cancelAfterMs);
  try {
    await talk(client, action, controller.signal, outcome);
  } finally {
    clearTimeout(timer);
    client.close();
  }
}

async function talk(client: Client, action: Exclude<Action, { manifests: unknown }>, signal: AbortSignal, outcome: Outcome) {
  if ('bind' in action) {
    const { template, identity, ...options } = action.bind;
    outcome.progress = 0;
    const progress = () => {
      outcome.progress = (outcome.progress ?? 0) + 1;
    };
    const bound = await client.bind(template, identity, { ...options, signal, progress });
    outcome.shown.push(...shown(bound), inspect(bound.response, { depth: null }));
    outcome.ok = {
      request: toJson(BindableResourcesRequestSchema, bound.request),
      response: toJson(BindingResourceResponseSchema, bound.response),
    };
    return;
  }
  const method = methodOf('call' in action ? action.call : 'list' in action ? action.list : action.watch);
  const request = fromJson(method.input, action.request ?? {});
  if ('call' in action) {
    const answer = await client.call(method as DescMethodUnary<DescMessage, DescMessage>, request, { signal });
    outcome.ok = toJson(method.output, answer);
  } else if ('list' in action) {
    const items = await (clientMethod(client, action.list)(request, { signal }) as Pages<Message>).all();
    const schema = method.output.fields.find((field) => field.fieldKind === 'list')?.message as DescMessage;
    outcome.ok = items.map((item) => toJson(schema, item));
  } else {
    const watch = clientMethod(client, action.watch)(request, { signal }) as Watch<Message>;
    await follow(watch, method.output.field['applied']?.message as DescMessage, action.events, outcome);
  }
}

async function follow(watch: Watch<Message>, schema: DescMessage, count: number, outcome: Outcome): Promise<void> {
  const events: JsonValue[] = [];
  outcome.events = events;
  while (events.length < count) {
    const { done, value } = await watch.next();
    if (done === true) return;
    events.push(eventJson(schema, value));
    outcome.resumeToken = watch.resumeToken;
  }
  watch.close();
  outcome.ok = {};
}

function eventJson(schema: DescMessage, event: WatchEvent<Message>): JsonValue {
  switch (event.type) {
    case 'connected':
      return { connected: { resumed: event.resumed } };
    case 'snapshotBegin':
      return { snapshotBegin: event.refused === undefined ? {} : { refused: event.refused } };
    case 'applied':
      return { applied: toJson(schema, event.object) };
    case 'removed': {
      const { name, namespace, uid } = event.removed;
      return { removed: { ...(name && { name }), ...(namespace && { namespace }), ...(uid && { uid }) } };
    }
    case 'snapshotComplete':
      return { snapshotComplete: {} };
    case 'disconnected':
      return { disconnected: event.error === undefined ? {} : { error: errorJson(event.error) } };
  }
}

function tokenOf({ token }: ClientJson): TokenSource | undefined {
  if (token?.static !== undefined) return staticToken(token.static);
  if (token?.file !== undefined) return fileToken(token.file);
  return token?.exec === undefined ? undefined : execToken(token.exec);
}

function clientOf(settings: ClientJson, token: TokenSource | undefined): Client {
  const { address, caPem, reconnect, silenceMs, token: _, ...options } = settings;
  return new Client(address, {
    ...options,
    ca: caPem,
    token,
    [testing]: { ...(reconnect && { reconnect }), ...(silenceMs !== undefined && { silenceMs }) },
  });
}

function errorJson(error: unknown): JsonObject {
  if (error instanceof RefusedError) return { kind: 'refusal', reason: error.reason, message: error.message };
  if (error instanceof ConfigError) return { kind: 'config', reason: error.reason, message: error.message };
  if (!(error instanceof BinderyError)) return { kind: 'unexpected', message: inspect(error) };
  const { details, kind, message } = error;
  if (details.kind === 'transport') {
    const fault = `${details.fault.charAt(0).toUpperCase()}${details.fault.slice(1)}`;
    return { kind, message, fault, reason: error.reason };
  }
  if (details.kind !== 'status') return { kind, message, reason: error.reason };
  const { fieldViolations, preconditionViolations, retryAfterMs, metadata } = details;
  return {
    kind,
    message,
    code: details.code,
    requestId: details.requestId,
    ...(details.reason !== undefined && { reason: details.reason }),
    ...(Object.keys(metadata).length > 0 && { metadata: { ...metadata } }),
    ...(fieldViolations.length > 0 && { fieldViolations: fieldViolations.map((violation) => ({ ...violation })) }),
    ...(preconditionViolations.length > 0 && {
      preconditionViolations: preconditionViolations.map(({ type, ...rest }) => ({ kind: type, ...rest })),
    }),
    ...(retryAfterMs !== undefined && { retryAfterMs }),
  };
}

/** The texts that the language makes of a value for people who debug. */
function shown(value: unknown): string[] {
  const texts = [inspect(value, { depth: null, showHidden: true }), String(value), JSON.stringify(value) ?? ''];
  return value instanceof Error ? [...texts, value.stack ?? '', value.message] : texts;
}

for await (const text of createInterface({ input: process.stdin, crlfDelay: Infinity })) {
  if (text.trim() === '') continue;
  const line = JSON.parse(text) as Line;
  void run(line).then((answer) => process.stdout.write(`${JSON.stringify(answer)}\n`));
}
