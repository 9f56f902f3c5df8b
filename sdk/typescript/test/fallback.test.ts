// gRPC-Web over HTTP/1.1: when it is taken and when not, and that calls and watches behave as they do by gRPC.

import assert from 'node:assert/strict';
import { createServer as createHttpServer, type ServerResponse } from 'node:http';
import { createSecureServer, type Http2ServerRequest } from 'node:http2';
import { createServer as createHttpsServer } from 'node:https';
import { createServer as createTcpServer } from 'node:net';
import { test, type TestContext } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { createServer as createTlsServer } from 'node:tls';
import { inspect } from 'node:util';

import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { Code, type ConnectRouter } from '@connectrpc/connect';
import { connectNodeAdapter } from '@connectrpc/connect-node';

import type { ClientOptions } from '../src/index.js';
import type { TestSettings } from '../src/testing.js';
import { BindingService, ContractService, ExportService, ProviderService, WatchExportsResponseSchema } from '../src/v1alpha2.js';
import { Authority } from './certificates.js';
import { failing } from './failing.js';
import { clientOf, failure, listenTls, serve, serveHttp1, servePlainHttp1, until } from './server.js';

const authority = new Authority();
const other = new Authority();
const good = authority.sign('IP:127.0.0.1,DNS:localhost');
const trusting = { ca: authority.pem };

const message = (init: MessageInitShape<typeof WatchExportsResponseSchema>) => create(WatchExportsResponseSchema, init);

/** The number of streams and calls that the server has seen end before it ended them itself. */
let gone = 0;

function routes(router: ConnectRouter): void {
  router.service(ProviderService, { getProvider: () => ({ provider: { prettyName: 'MangoDB' } }) });
  router.service(ContractService, {
    getContract: () => {
      throw failure(Code.PermissionDenied, 'CONTRACT_DENIED');
    },
  });
  router.service(BindingService, {
    getBindableResourcesRequest: () => ({ bindableResourcesRequest: { metadata: { name: 'a' } } }),
  });
  router.service(ExportService, {
    getExport: async ({ name }, { signal }) => {
      if (name === 'large') return { export: { metadata: { name: 'x'.repeat(5 << 20) } } };
      await aborted(signal);
      return {};
    },
    watchExports: async function* ({ contract, resumeToken }, { signal }) {
      if (resumeToken === '') {
        yield message({ event: { case: 'snapshotBegin', value: {} } });
        yield message({ event: { case: 'applied', value: { metadata: { name: 'cowboys' } } } });
        yield message({ event: { case: 'snapshotComplete', value: { objectCount: 1 } }, resumeToken: 't1' });
      } else {
        yield message({ event: { case: 'heartbeat', value: {} }, resumeToken });
      }
      if (contract === 'stays') await aborted(signal);
    },
  });
}

async function aborted(signal: AbortSignal): Promise<void> {
  await new Promise((resolve) => signal.addEventListener('abort', resolve));
  gone += 1;
}

test('without HTTP/2 calls and watches fall back to gRPC-Web, and that is remembered', async (t) => {
  const server = await serveHttp1(t, routes, good, '/bindery');
  const client = clientOf(t, { address: `${server.address}/bindery/` }, { ...trusting, token: 'token-1' });
  assert.equal(client.audience, `${server.address}/bindery`);
  assert.equal(client.protocol, 'grpc');
  assert.equal((await client.getProvider()).prettyName, 'MangoDB');
  assert.equal(client.protocol, 'grpc-web');
  const connections = server.connections();
  assert.equal((await client.getBindableResourcesRequest('a', 'b')).metadata?.name, 'a');
  assert.equal(server.connections(), connections, 'the connection is used again, and HTTP/2 is not tried again');
  const [first, second] = server.seen;
  assert.equal(first?.path, '/bindery/kubebind.v1alpha2.ProviderService/GetProvider');
  assert.match(String(first.headers['content-type']), /^application\/grpc-web/);
  assert.match(String(first.headers['user-agent']), /^bindery-sdk-typescript\//);
  assert.equal(first.headers.authorization, undefined);
  assert.equal(second?.headers.authorization, 'Bearer token-1');
  const told = Number.parseInt(String(second.headers['grpc-timeout']), 10);
  assert.ok(told > 9_000 && told <= 10_000, String(told));
});

test('a watch that is opened first falls back, and resumes', async (t) => {
  const server = await serveHttp1(t, routes, good, '/bindery');
  const client = clientOf(t, { address: `${server.address}/bindery` }, trusting);
  const watch = client.watchExports();
  const types = [];
  for await (const event of watch) {
    types.push(event.type === 'connected' && event.resumed ? 'resumed' : event.type);
    if (types.length === 6) break;
  }
  assert.deepEqual(types, ['connected', 'snapshotBegin', 'applied', 'snapshotComplete', 'disconnected', 'resumed']);
  assert.deepEqual([watch.resumeToken, client.protocol], ['t1', 'grpc-web']);
  assert.equal(server.seen[0]?.path, '/bindery/kubebind.v1alpha2.ExportService/WatchExports');
});

test('by gRPC-Web a silent watch is opened anew, and a closed one ends at the server', async (t) => {
  const server = await serveHttp1(t, routes, good);
  const client = clientOf(t, server, trusting, { silenceMs: 300 });
  const silent = client.watchExports({ contract: 'stays', resumeToken: 't1' });
  const reasons = [];
  for await (const event of silent) {
    if (event.type === 'disconnected') reasons.push(event.error?.reason);
    if (event.type === 'connected' && reasons.length > 0) break;
  }
  assert.deepEqual(reasons, ['StreamSilent']);
  const before = gone;
  const watches = Array.from({ length: 20 }, () => client.watchExports({ contract: 'stays' }));
  await Promise.all(watches.map(async (watch) => {
    for (let count = 0; count < 4; count += 1) await watch.next();
  }));
  assert.equal((await client.getProvider()).prettyName, 'MangoDB');
  for (const watch of watches) watch.close();
  await until(() => gone >= before + 20, 'the server sees that the watches have ended');
});

test('by gRPC-Web deadlines, signals and the end of the client hold', async (t) => {
  const server = await serveHttp1(t, routes, good);
  const client = clientOf(t, server, { ...trusting, attemptTimeoutMs: 150 });
  await client.getProvider();
  const start = performance.now();
  const late = await failing(client.getExport('', 'slow', { timeoutMs: 400 }));
  assert.equal(late.reason, 'DEADLINE', late.message);
  assert.ok(performance.now() - start < 1_500);
  assert.ok(server.seen.length >= 3, 'each attempt has its own deadline');
  const aborting = await failing(client.getExport('', 'slow', { signal: AbortSignal.timeout(100), timeoutMs: 5_000 }));
  assert.equal(aborting.kind, 'cancelled');
  const seen = server.seen.length;
  const pending = failing(client.getExport('', 'slow', { timeoutMs: 5_000 }));
  await until(() => server.seen.length > seen, 'the call');
  client.close();
  assert.equal((await pending).kind, 'cancelled');
  assert.equal((await failing(client.getProvider())).kind, 'cancelled');
});

test('by gRPC-Web errors and limits are the same', async (t) => {
  const server = await serveHttp1(t, routes, good);
  const client = clientOf(t, server, trusting);
  const error = await failing(client.getContract('c'));
  assert.deepEqual([error.reason, client.protocol], ['CONTRACT_DENIED', 'grpc-web'], error.message);
  assert.match(String(error.requestId), /^[0-9a-f]{32}$/);
  const large = await failing(client.getExport('', 'large'));
  assert.deepEqual([large.code, large.reason], ['RESOURCE_EXHAUSTED', 'MESSAGE_TOO_LARGE']);
});

/** A server that negotiates HTTP/1.1 alone until it is told to negotiate HTTP/2, and the versions of its requests. */
async function switching(t: TestContext) {
  const adapter = connectNodeAdapter({ routes });
  const state = { http2: false, versions: [] as string[] };
  const ALPNCallback = ({ protocols }: { protocols: string[] }) => protocols.find((name) => name === (state.http2 ? 'h2' : 'http/1.1'));
  const server = createSecureServer({ ...good, allowHTTP1: true, ALPNCallback }, (request, response) => {
    state.versions.push((request as Http2ServerRequest).httpVersion);
    adapter(request, response);
  });
  return { state, address: await listenTls(t, server) };
}

test('gRPC is tried again later', async (t) => {
  const { state, address } = await switching(t);
  const client = clientOf(t, { address }, trusting, { grpcAgainMs: 300 });
  const call = async () => [(await client.getProvider()).prettyName, client.protocol, state.versions.at(-1)];
  assert.deepEqual(await call(), ['MangoDB', 'grpc-web', '1.1']);
  state.http2 = true;
  assert.deepEqual(await call(), ['MangoDB', 'grpc-web', '1.1'], 'it is not time yet');
  state.http2 = false;
  await sleep(350);
  assert.deepEqual(await call(), ['MangoDB', 'grpc-web', '1.1'], 'nothing has changed');
  await sleep(350);
  state.http2 = true;
  assert.deepEqual(await call(), ['MangoDB', 'grpc', '2.0']);
  const watch = client.watchExports();
  await watch.next();
  assert.equal(state.versions.at(-1), '2.0');
  watch.close();
});

/** A proxy that takes calls by HTTP/2 and refuses gRPC by an HTTP status; it passes gRPC-Web over HTTP/1.1 on. */
async function refusing(t: TestContext, status: number) {
  const adapter = connectNodeAdapter({ routes });
  const state = { refused: 0 };
  const server = createSecureServer({ ...good, allowHTTP1: true }, (request, response) => {
    if ((request as Http2ServerRequest).httpVersion === '1.1') {
      adapter(request, response);
      return;
    }
    state.refused += 1;
    response.writeHead(status, { 'content-type': 'text/html' });
    response.end('<html>');
  });
  return { state, address: await listenTls(t, server) };
}

test('a status that refuses gRPC makes calls and watches fall back, and no other one does', async (t) => {
  for (const status of [400, 405, 415, 426, 464, 501, 505]) {
    const { state, address } = await refusing(t, status);
    const client = clientOf(t, { address }, trusting);
    for (let count = 0; count < 2; count += 1) assert.equal((await client.getProvider()).prettyName, 'MangoDB', `status ${status}`);
    assert.deepEqual([state.refused, client.protocol], [1, 'grpc-web'], `status ${status}`);
    const watch = clientOf(t, { address }, trusting).watchExports();
    for (const type of ['connected', 'snapshotBegin', 'applied', 'snapshotComplete']) assert.equal((await watch.next()).value?.type, type);
    watch.close();
  }
  for (const status of [401, 403, 404, 429, 500, 502, 503, 504]) {
    const { address } = await refusing(t, status);
    const client = clientOf(t, { address }, { ...trusting, retry: { attempts: 1 } });
    assert.deepEqual([(await failing(client.getProvider())).kind, client.protocol], ['status', 'grpc'], `status ${status}`);
  }
});

test('where HTTP/1.1 is negotiated no more, the same call goes on by gRPC', async (t) => {
  const { state, address } = await switching(t);
  const client = clientOf(t, { address }, trusting);
  await client.getProvider();
  assert.equal(client.protocol, 'grpc-web');
  state.http2 = true;
  // The connection of HTTP/1.1 that is open still serves one call at a time.
  const answers = await Promise.all([client.getProvider(), client.getProvider()]);
  assert.deepEqual([answers.map((provider) => provider.prettyName), client.protocol], [['MangoDB', 'MangoDB'], 'grpc']);
});

test('a server without ALPN speaks HTTP/1.1', async (t) => {
  const web = createHttpServer(connectNodeAdapter({ routes }));
  const server = createTlsServer({ ...good }, (socket) => web.emit('connection', socket));
  const client = clientOf(t, { address: await listenTls(t, server) }, trusting);
  assert.deepEqual([(await client.getProvider()).prettyName, client.protocol], ['MangoDB', 'grpc-web']);
});

test('by request calls are made by gRPC-Web alone, also without TLS', async (t) => {
  const server = await servePlainHttp1(t, routes);
  const client = clientOf(t, server, { protocol: 'grpc-web' });
  assert.equal((await client.getProvider()).prettyName, 'MangoDB');
  const events = client.watchExports();
  for (const type of ['connected', 'snapshotBegin', 'applied', 'snapshotComplete']) assert.equal((await events.next()).value?.type, type);
  events.close();
  const http2 = await serve(t, routes, good);
  const only = clientOf(t, http2, { ...trusting, protocol: 'grpc-web' });
  assert.equal((await failing(only.getProvider())).reason, 'NoHttp2');
});

/** Makes one call without retries; returns its reason, the protocol after it, and the number of connections that it took. */
async function outcome(t: TestContext, server: import('node:net').Server, options: ClientOptions = {}, settings: TestSettings = {}) {
  let connections = 0;
  server.on('connection', () => {
    connections += 1;
  });
  const client = clientOf(t, { address: await listenTls(t, server) }, { ...trusting, retry: { attempts: 1 }, ...options }, settings);
  const error = await failing(client.getProvider());
  return [error.reason, client.protocol, connections];
}

test('a server that is down or broken is not asked by gRPC-Web', async (t) => {
  const closing = createTcpServer((socket) => socket.destroy());
  assert.deepEqual(await outcome(t, closing), ['ConnectionBroken', 'grpc', 1]);
  const silent = createTcpServer();
  assert.deepEqual(await outcome(t, silent, { connectTimeoutMs: 200 }), ['ConnectTimeout', 'grpc', 1]);
  const plain = createHttpServer();
  assert.deepEqual(await outcome(t, plain), ['ServerIsPlaintext', 'grpc', 1]);
  const client = clientOf(t, { address: 'https://127.0.0.1:1' }, { retry: { attempts: 1 } });
  assert.deepEqual([(await failing(client.getProvider())).reason, client.protocol], ['ConnectionRefused', 'grpc']);
});

test('a server that is not trusted is not asked by gRPC-Web', async (t) => {
  const seen: string[] = [];
  const note = (request: { url?: string | undefined }) => seen.push(request.url ?? '');
  assert.deepEqual(await outcome(t, createSecureServer({ ...good, allowHTTP1: true }, note), { ca: other.pem }), ['CertificateUntrusted', 'grpc', 1]);
  // These cannot negotiate HTTP/2 either, and show their certificate only to a client that offers HTTP/1.1.
  const expired = authority.sign('IP:127.0.0.1', { expired: true });
  assert.deepEqual(await outcome(t, createHttpsServer({ ...good }, note), { ca: other.pem }), ['CertificateUntrusted', 'grpc', 2]);
  assert.deepEqual(await outcome(t, createHttpsServer({ ...good }, note), { serverName: 'bind.example.com' }), ['CertificateNameMismatch', 'grpc', 2]);
  assert.deepEqual(await outcome(t, createHttpsServer({ ...expired }, note)), ['CertificateExpired', 'grpc', 2]);
  assert.deepEqual(seen, []);
});

test('no proxy of the environment is used', async (t) => {
  const names = ['https_proxy', 'HTTPS_PROXY', 'all_proxy', 'ALL_PROXY', 'grpc_proxy', 'NODE_USE_ENV_PROXY'];
  const before = names.map((name) => [name, process.env[name]] as const);
  t.after(() => {
    for (const [name, value] of before) {
      if (value === undefined) delete process.env[name];
      else process.env[name] = value;
    }
  });
  for (const name of names) process.env[name] = name === 'NODE_USE_ENV_PROXY' ? '1' : 'http://127.0.0.1:1';
  for (const server of [await serve(t, routes, good), await serveHttp1(t, routes, good)]) {
    assert.equal((await clientOf(t, server, trusting).getProvider()).prettyName, 'MangoDB');
  }
});

test('a server that speaks neither protocol is told by the first error', async (t) => {
  const page = (_: unknown, response: ServerResponse) => response.writeHead(200, { 'content-type': 'text/html' }).end('<html>');
  assert.deepEqual(await outcome(t, createHttpsServer({ ...good }, page)), ['NoHttp2', 'grpc', 2]);
  const watching = clientOf(t, { address: await listenTls(t, createHttpsServer({ ...good }, page)) }, trusting);
  for await (const event of watching.watchExports()) {
    assert.ok(event.type === 'disconnected' && event.error?.reason === 'NoHttp2', inspect(event));
    break;
  }
  assert.equal(watching.protocol, 'grpc');
  const silent = createHttpsServer({ ...good }, () => undefined);
  assert.deepEqual(await outcome(t, silent, { timeoutMs: 500 }), ['DEADLINE', 'grpc', 2]);
  const only = createHttpsServer({ ...good });
  assert.deepEqual(await outcome(t, only, { protocol: 'grpc' }), ['NoHttp2', 'grpc', 1]);
});

test('a gateway whose backend is away is waited for', async (t) => {
  const adapter = connectNodeAdapter({ routes });
  let count = 0;
  const server = createHttpsServer({ ...good }, (request, response) => {
    count += 1;
    if (count <= 2) response.writeHead(503, { 'content-type': 'text/html' }).end('<html>');
    else adapter(request, response);
  });
  const client = clientOf(t, { address: await listenTls(t, server) }, trusting);
  assert.deepEqual([(await client.getProvider()).prettyName, count, client.protocol], ['MangoDB', 3, 'grpc-web']);
});
