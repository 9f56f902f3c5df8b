// A server in the process of the tests: handlers of Connect over HTTP/2, or a script of HTTP/2 itself.

import * as http2 from 'node:http2';
import * as https from 'node:https';
import type { AddressInfo, Socket } from 'node:net';
import type { TestContext } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import { create, toBinary, type DescMessage, type MessageInitShape } from '@bufbuild/protobuf';
import { anyPack } from '@bufbuild/protobuf/wkt';
import { Code, ConnectError, type ConnectRouter } from '@connectrpc/connect';
import { connectNodeAdapter } from '@connectrpc/connect-node';

import {
  BadRequestSchema,
  ErrorInfoSchema,
  PreconditionFailureSchema,
  RequestInfoSchema,
  RetryInfoSchema,
} from '../src/gen/google/rpc/error_details_pb.js';
import { Client, type ClientOptions } from '../src/index.js';
import { testing, type TestSettings } from '../src/testing.js';
import type { Certificate } from './certificates.js';

export { BadRequestSchema, ErrorInfoSchema, PreconditionFailureSchema, RequestInfoSchema, RetryInfoSchema, anyPack };

/** A call as the server saw it. */
export interface Seen {
  readonly path: string;
  readonly headers: http2.IncomingHttpHeaders;
  readonly at: number;
}

/** A server that listens until its test ends. */
export interface Server {
  readonly address: string;
  readonly seen: Seen[];
  /** Number of connections that were made. */
  connections(): number;
  /** Breaks all connections. */
  breakAll(): void;
}

/** What a script does with the streams of HTTP/2, one after the other; the last entry also takes all later ones. */
export type StreamScript = (stream: http2.ServerHttp2Stream, headers: http2.IncomingHttpHeaders) => void;

/** Serves handlers by gRPC over HTTP/2, with TLS if there is a certificate. */
export function serve(t: TestContext, routes: (router: ConnectRouter) => void, certificate?: Certificate): Promise<Server> {
  const seen: Seen[] = [];
  const adapter = connectNodeAdapter({ routes });
  const handler = (request: http2.Http2ServerRequest, response: http2.Http2ServerResponse) => {
    seen.push({ path: request.url, headers: request.headers, at: performance.now() });
    adapter(request, response);
  };
  const server =
    certificate === undefined ? http2.createServer(handler) : http2.createSecureServer({ ...certificate }, handler);
  return listen(t, server, seen, certificate === undefined ? 'http' : 'https');
}

/** Serves handlers by gRPC-Web over HTTP/1.1 and TLS, as behind a proxy that knows no HTTP/2. */
export function serveHttp1(
  t: TestContext,
  routes: (router: ConnectRouter) => void,
  certificate: Certificate,
  prefix = '',
): Promise<Server> {
  const seen: Seen[] = [];
  const adapter = connectNodeAdapter({ routes, requestPathPrefix: prefix });
  const server = https.createServer({ ...certificate, ALPNProtocols: ['http/1.1'] }, (request, response) => {
    seen.push({ path: request.url ?? '', headers: request.headers, at: performance.now() });
    adapter(request, response);
  });
  return listen(t, server, seen, 'https');
}

/** Serves a script of HTTP/2 without TLS. */
export function serveScript(t: TestContext, scripts: readonly StreamScript[]): Promise<Server> {
  const seen: Seen[] = [];
  const server = http2.createServer();
  server.on('stream', (stream, headers) => {
    stream.on('error', () => undefined);
    const script = scripts[Math.min(seen.length, scripts.length - 1)];
    seen.push({ path: headers[':path'] ?? '', headers, at: performance.now() });
    script?.(stream, headers);
  });
  return listen(t, server, seen, 'http');
}

type AnyServer = http2.Http2Server | http2.Http2SecureServer | https.Server;

async function listen(t: TestContext, server: AnyServer, seen: Seen[], scheme: string): Promise<Server> {
  const sockets = new Set<Socket>();
  let connections = 0;
  server.on('connection', (socket: Socket) => {
    connections += 1;
    sockets.add(socket);
    socket.on('close', () => sockets.delete(socket));
  });
  server.on('sessionError', () => undefined);
  server.on('tlsClientError', () => undefined);
  const breakAll = () => sockets.forEach((socket) => socket.destroy());
  await new Promise<void>((resolve) => {
    server.listen(0, '127.0.0.1', resolve);
  });
  t.after(() => {
    breakAll();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  return { address: `${scheme}://127.0.0.1:${port}`, seen, connections: () => connections, breakAll };
}

/** Makes a client that ends with its test; plaintext is allowed, and retries are quick. */
export function clientOf(t: TestContext, { address }: { address: string }, options: ClientOptions = {}, test: TestSettings = {}): Client {
  const client = new Client(address, {
    allowPlaintext: true,
    retry: { baseMs: 1, capMs: 5 },
    ...options,
    [testing]: { reconnect: { baseMs: 1, capMs: 5 }, ...test },
  });
  t.after(() => client.close());
  return client;
}

/** A detail of an error. */
export interface Detail {
  readonly desc: DescMessage;
  readonly value: Record<string, unknown>;
}

/** Makes an error with details, as the backend sends it. */
export function failure(code: Code, reason: string, details: Detail[] = []): ConnectError {
  const info = { desc: ErrorInfoSchema, value: { reason, domain: 'kube-bind.io' } };
  return new ConnectError(`it is ${reason}`, code, undefined, [info, ...details]);
}

/** Makes the detail that asks for a retry after this time. */
export function retryAfter(ms: number): Detail {
  const seconds = Math.floor(ms / 1000);
  return { desc: RetryInfoSchema, value: { retryDelay: { seconds: BigInt(seconds), nanos: (ms - seconds * 1000) * 1_000_000 } } };
}

/** Encodes a message with the frame of gRPC. */
export function framed<D extends DescMessage>(desc: D, value: MessageInitShape<D>): Buffer {
  const bytes = toBinary(desc, create(desc, value));
  const head = Buffer.alloc(5);
  head.writeUInt32BE(bytes.byteLength, 1);
  return Buffer.concat([head, bytes]);
}

export const GRPC_HEADERS = { ':status': 200, 'content-type': 'application/grpc' } as const;

/** Answers with messages and then a status. */
export function answer(messages: readonly Buffer[], trailers: Record<string, string> = { 'grpc-status': '0' }): StreamScript {
  return (stream) => {
    stream.respond(GRPC_HEADERS, { waitForTrailers: true });
    stream.on('wantTrailers', () => stream.sendTrailers(trailers));
    for (const message of messages) stream.write(message);
    stream.end();
  };
}

/** Waits until a condition holds; fails after ten seconds. */
export async function until(condition: () => boolean, what: string): Promise<void> {
  const end = performance.now() + 10_000;
  while (!condition()) {
    if (performance.now() > end) throw new Error(`not within 10 s: ${what}`);
    await sleep(5);
  }
}
