// The backend of a developer portal: what its users may bind, binding it, and the progress of that.
//
//   GET  /templates                           templates that the caller may bind
//   POST /requests                            {"template", "cluster", "name"?}: begins to bind
//   GET  /requests/CLUSTER/NAME/events        progress, as Server-Sent Events
//   GET  /requests/CLUSTER/NAME/manifests     what the cluster applies, one JSON document per line; it holds a credential
//   GET  /healthz                             whether the service runs
//
// The service has no rights of its own: each call to the backend has the token of the caller, from the header `authorization`.

import { createHash } from 'node:crypto';
import { setMaxListeners } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';

import { manifests, type Client } from '@bindery/sdk';

import { shown, streamProgress } from './events.js';
import { BODY_MAX, GRACE_MS, Quota, STREAMS_MAX, STREAMS_PER_CALLER_MAX } from './limits.js';
import { Problem, problemOf } from './problem.js';

/** A service that can be ended. */
export interface Service {
  readonly server: Server;
  /** Takes no more requests, ends all streams, waits for calls, and closes the client. */
  end(): Promise<void>;
}

/** One request, and the client that calls in its caller's name. */
interface Call {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly client: Client;
  /** Tells callers apart; it is no secret. */
  readonly caller: string;
  /** Aborted when the caller has gone. */
  readonly signal: AbortSignal;
}

/** Makes the service of a backend. */
export function makeService(client: Client): Service {
  const streams = new Quota(STREAMS_MAX, STREAMS_PER_CALLER_MAX);
  const ending = new AbortController();
  // Each stream listens.
  setMaxListeners(STREAMS_MAX, ending.signal);
  const server = createServer({ requestTimeout: 30_000, headersTimeout: 10_000, keepAliveTimeout: 5_000 });
  server.maxConnections = 1_000;
  server.on('request', (request, response) => {
    const gone = new AbortController();
    response.once('close', () => gone.abort());
    response.setHeader('cache-control', 'no-store');
    route({ request, response, signal: gone.signal }, client, streams, ending.signal).catch((error: unknown) => {
      fail(response, problemOf(error));
    });
  });
  const end = async () => {
    ending.abort();
    const closed = new Promise<void>((resolve) => {
      server.close(() => resolve());
    });
    server.closeIdleConnections();
    const late = setTimeout(() => server.closeAllConnections(), GRACE_MS);
    await closed;
    clearTimeout(late);
    client.close();
  };
  return { server, end };
}

async function route(
  { request, response, signal }: Pick<Call, 'request' | 'response' | 'signal'>,
  client: Client,
  streams: Quota,
  ending: AbortSignal,
): Promise<void> {
  const { pathname } = new URL(request.url ?? '/', 'http://localhost');
  if (pathname === '/healthz') return reply(response, 200, { status: 'ok' });
  const token = bearer(request);
  const caller = createHash('sha256').update(token).digest('hex');
  const call = { request, response, client: client.withToken(token), caller, signal };
  const where = `${request.method ?? ''} ${pathname}`;
  if (where === 'GET /templates') return listTemplates(call);
  if (where === 'POST /requests') return beginBind(call);
  const match = /^GET \/requests\/([^/]+)\/([^/]+)\/(events|manifests)$/.exec(where);
  if (match === null) throw new Problem(404, 'NotFound', `there is no ${where}`);
  const [cluster, name] = [decode(match[1]), decode(match[2])];
  if (match[3] === 'manifests') return sendManifests(call, cluster, name);
  const release = streams.take(caller);
  if (release === undefined) throw new Problem(429, 'StreamLimit', 'too many streams; close one', { retryAfterMs: 5_000 });
  try {
    const lastEventId = request.headers['last-event-id'];
    await streamProgress(call.client, { cluster, name }, String(lastEventId ?? ''), response, ending);
    response.end();
  } finally {
    release();
  }
}

async function listTemplates({ client, response, signal }: Call): Promise<void> {
  const templates = [];
  for await (const { metadata, spec, status } of client.listTemplates({}, { signal })) {
    const ready = status?.conditions.find(({ type }) => type === 'Ready');
    templates.push({ name: metadata?.name, description: spec?.description, isReady: ready?.status === 'True' });
  }
  reply(response, 200, { templates });
}

/** Begins to bind, and answers at once: the stream of events tells the rest. The same request again changes nothing. */
async function beginBind({ client, request, response, signal }: Call): Promise<void> {
  const { template, cluster, name = template } = await readBind(request);
  const answer = await client.createBindableResourcesRequest(
    {
      bindableResourcesRequest: { metadata: { name }, spec: { templateRef: { name: template }, clusterIdentity: { identity: cluster } } },
      wait: {},
    },
    { signal },
  );
  const path = `/requests/${encodeURIComponent(cluster)}/${encodeURIComponent(name)}`;
  const made = answer.bindableResourcesRequest;
  reply(response, 202, { ...(made && shown(made)), events: `${path}/events`, manifests: `${path}/manifests` });
}

/** Binds again under the same name, which answers with a fresh kubeconfig, and writes what the cluster applies. */
async function sendManifests({ client, response, signal }: Call, cluster: string, name: string): Promise<void> {
  const { spec } = await client.getBindableResourcesRequest(name, cluster, { signal });
  const template = spec?.templateRef?.name ?? '';
  const bound = await client.bind(template, cluster, { name, waitMs: 5_000, patienceMs: 0, signal });
  const made = manifests(bound, { name, template });
  response.writeHead(200, { 'content-type': 'application/x-ndjson' }).end(made.canonical());
}

async function readBind(request: IncomingMessage): Promise<{ template: string; cluster: string; name?: string }> {
  const invalid = (what: string) => new Problem(400, 'BodyInvalid', `${what}; send {"template", "cluster", "name"?} as JSON`);
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    length += chunk.byteLength;
    if (length > BODY_MAX) throw new Problem(413, 'BodyTooLarge', `the body has more than ${BODY_MAX} bytes`);
    chunks.push(chunk);
  }
  let body: { template?: unknown; cluster?: unknown; name?: unknown };
  try {
    body = Object(JSON.parse(Buffer.concat(chunks).toString())) as typeof body;
  } catch {
    throw invalid('the body is no JSON');
  }
  const { template, cluster, name } = body;
  if (typeof template !== 'string' || template === '') throw invalid('template is missing');
  if (typeof cluster !== 'string' || cluster === '') throw invalid('cluster is missing');
  if (name !== undefined && (typeof name !== 'string' || name === '')) throw invalid('name is no name');
  return { template, cluster, ...(name !== undefined && { name }) };
}

function bearer({ headers }: IncomingMessage): string {
  const token = /^Bearer ([\x21-\x7e]+)$/i.exec(headers.authorization ?? '')?.[1];
  if (token === undefined) throw new Problem(401, 'TokenMissing', 'send the header authorization: Bearer TOKEN');
  return token;
}

function decode(part = ''): string {
  try {
    return decodeURIComponent(part);
  } catch {
    throw new Problem(400, 'PathInvalid', 'the path is not encoded as a URL');
  }
}

function reply(response: ServerResponse, status: number, body: object): void {
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
}

function fail(response: ServerResponse, problem: Problem): void {
  if (response.headersSent) {
    // A stream that has begun can only end; the reader comes back, and is told then.
    response.end();
    return;
  }
  const { retryAfterMs, ...more } = problem.more;
  if (retryAfterMs !== undefined) response.setHeader('retry-after', Math.ceil(retryAfterMs / 1000));
  if (problem.status === 413) response.setHeader('connection', 'close');
  reply(response, problem.status, { reason: problem.reason, message: problem.message, ...more });
}
