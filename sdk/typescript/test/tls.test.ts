// TLS: which server is trusted, what is told of one that is not, and the fallback to gRPC-Web.

import assert from 'node:assert/strict';
import { createServer as createTcpServer, type AddressInfo } from 'node:net';
import { createSecureServer } from 'node:http2';
import { createServer as createHttpsServer } from 'node:https';
import { test, type TestContext } from 'node:test';

import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { Code, type ConnectRouter } from '@connectrpc/connect';

import type { BinderyError, ClientOptions, TransportFault } from '../src/index.js';
import { BindingService, ContractService, ExportService, ProviderService, WatchExportsResponseSchema } from '../src/v1alpha2.js';
import { Authority } from './certificates.js';
import { failing } from './failing.js';
import { clientOf, failure, serve, serveHttp1 } from './server.js';

const authority = new Authority();
const other = new Authority();
const good = authority.sign('IP:127.0.0.1,DNS:localhost');

const message = (init: MessageInitShape<typeof WatchExportsResponseSchema>) => create(WatchExportsResponseSchema, init);

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
    watchExports: async function* () {
      yield message({ event: { case: 'snapshotBegin', value: {} } });
      yield message({ event: { case: 'applied', value: { metadata: { name: 'cowboys' } } } });
      yield message({ event: { case: 'snapshotComplete', value: { objectCount: 1 } }, resumeToken: 't1' });
      await new Promise((resolve) => setTimeout(resolve, 300));
    },
  });
}

async function fault(t: TestContext, address: string, options: ClientOptions): Promise<TransportFault> {
  const client = clientOf(t, { address }, { retry: { attempts: 3 }, ...options });
  const error: BinderyError = await failing(client.getProvider());
  assert.ok(error.is('transport'), error.message);
  assert.ok(error.details.connecting, error.message);
  return error.details.fault;
}

test('a server is trusted by its CA and its name', async (t) => {
  const server = await serve(t, routes, good);
  assert.equal((await clientOf(t, server, { ca: authority.pem }).getProvider()).prettyName, 'MangoDB');
  assert.equal(await fault(t, server.address, { ca: other.pem }), 'certificateUntrusted');
  assert.equal(await fault(t, server.address, {}), 'certificateUntrusted');
  assert.equal(await fault(t, server.address, { ca: authority.pem, serverName: 'bind.example.com' }), 'certificateName');
  assert.equal(server.seen.length, 1);

  const named = await serve(t, routes, authority.sign('DNS:bind.example.com'));
  assert.equal(await fault(t, named.address, { ca: authority.pem }), 'certificateName');
  await clientOf(t, named, { ca: authority.pem, serverName: 'bind.example.com' }).getProvider();

  const expired = await serve(t, routes, authority.sign('IP:127.0.0.1', { expired: true }));
  assert.equal(await fault(t, expired.address, { ca: authority.pem }), 'certificateExpired');
});

test('a client shows its certificate if the server asks for one', async (t) => {
  const server = createSecureServer({ ...good, ca: other.pem, requestCert: true, rejectUnauthorized: true });
  server.on('stream', (stream) => stream.respond({ ':status': 200, 'content-type': 'application/grpc', 'grpc-status': '5' }, { endStream: true }));
  const address = await listen(t, server);
  const client = other.sign('DNS:client');
  const certificate = { clientCertificate: { certificate: client.cert, key: client.key } };
  const answered = await failing(clientOf(t, { address }, { ca: authority.pem, ...certificate }).getProvider());
  assert.equal(answered.code, 'NOT_FOUND');
  const error = await failing(clientOf(t, { address }, { ca: authority.pem, retry: { attempts: 1 } }).getProvider());
  assert.equal(error.reason, 'ClientCertificateRefused', error.message);
});

test('a server without TLS is told from one that is broken', async (t) => {
  const plain = await serve(t, routes);
  assert.equal(await fault(t, plain.address.replace('http:', 'https:'), {}), 'serverIsPlaintext');
  const closing = createTcpServer((socket) => socket.destroy());
  const address = await listen(t, closing);
  const error = await failing(clientOf(t, { address }, { retry: { attempts: 1 } }).getProvider());
  assert.equal(error.reason, 'ConnectionBroken', error.message);
});

test('a server that does not answer is given up', async (t) => {
  const silent = createTcpServer();
  const address = await listen(t, silent);
  assert.equal(await fault(t, address, { connectTimeoutMs: 200, retry: { attempts: 1 } }), 'connectTimeout');
});

test('without HTTP/2 calls and watches fall back to gRPC-Web, and that is remembered', async (t) => {
  const server = await serveHttp1(t, routes, good, '/bindery');
  const client = clientOf(t, { address: `${server.address}/bindery/` }, { ca: authority.pem, token: 'token-1' });
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
  assert.equal(second?.headers.authorization, 'Bearer token-1');

  const watch = client.watchExports();
  const types = [];
  for await (const event of watch) {
    types.push(event.type);
    if (types.length === 6) break;
  }
  assert.deepEqual(types, ['connected', 'snapshotBegin', 'applied', 'snapshotComplete', 'disconnected', 'connected']);
  assert.equal(watch.resumeToken, 't1');
});

test('errors arrive by gRPC-Web as well', async (t) => {
  const server = await serveHttp1(t, routes, good);
  const client = clientOf(t, server, { ca: authority.pem });
  const error = await failing(client.getContract('c'));
  assert.deepEqual([error.reason, client.protocol], ['CONTRACT_DENIED', 'grpc-web'], error.message);
});

test('a proxy that knows neither protocol is told by the first error', async (t) => {
  const server = createHttpsServer({ ...good }, (_request, response) => response.writeHead(200, { 'content-type': 'text/html' }).end('<html>'));
  const address = await listen(t, server);
  const client = clientOf(t, { address }, { ca: authority.pem });
  const error = await failing(client.getProvider());
  assert.deepEqual([error.reason, client.protocol], ['NoHttp2', 'grpc']);
  const silent = await listen(t, createHttpsServer({ ...good }));
  const waiting = clientOf(t, { address: silent }, { ca: authority.pem, timeoutMs: 500, retry: { attempts: 1 } });
  assert.equal((await failing(waiting.getProvider())).reason, 'NoHttp2');
  const only = clientOf(t, { address }, { ca: authority.pem, protocol: 'grpc' });
  assert.equal((await failing(only.getProvider())).reason, 'NoHttp2');
});

test('by gRPC-Web a server that speaks HTTP/2 only is found again', async (t) => {
  const server = await serve(t, routes, good);
  const client = clientOf(t, server, { ca: authority.pem, protocol: 'grpc-web' });
  assert.equal((await failing(client.getProvider())).reason, 'NoHttp2');
});

async function listen(t: TestContext, server: import('node:net').Server): Promise<string> {
  const sockets = new Set<import('node:net').Socket>();
  server.on('connection', (socket: import('node:net').Socket) => {
    sockets.add(socket);
    socket.on('error', () => undefined);
  });
  server.on('tlsClientError', () => undefined);
  await new Promise<void>((resolve) => {
    server.listen(0, '127.0.0.1', resolve);
  });
  t.after(() => {
    sockets.forEach((socket) => socket.destroy());
    server.close();
  });
  return `https://127.0.0.1:${(server.address() as AddressInfo).port}`;
}
