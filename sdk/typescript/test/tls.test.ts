// TLS: which server is trusted, and what is told of one that is not.

import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer as createTcpServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createSecureServer } from 'node:http2';
import { test, type TestContext } from 'node:test';

import type { ConnectRouter } from '@connectrpc/connect';

import type { BinderyError, ClientOptions, TransportFault } from '../src/index.js';
import { ProviderService } from '../src/v1alpha2.js';
import { Authority } from './certificates.js';
import { failing } from './failing.js';
import { clientOf, listenTls as listen, serve } from './server.js';

const authority = new Authority();
const other = new Authority();
const good = authority.sign('IP:127.0.0.1,DNS:localhost');

function routes(router: ConnectRouter): void {
  router.service(ProviderService, { getProvider: () => ({ provider: { prettyName: 'MangoDB' } }) });
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
  // A bundle of several CAs, as text and as a file.
  const bundle = `${other.pem}\n${authority.pem}`;
  const file = join(mkdtempSync(join(tmpdir(), 'bindery-sdk-')), 'ca.pem');
  t.after(() => rmSync(join(file, '..'), { recursive: true, force: true }));
  writeFileSync(file, bundle);
  await clientOf(t, server, { ca: bundle }).getProvider();
  await clientOf(t, server, { caFile: file }).getProvider();

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
  const shown = await failing(clientOf(t, { address }, { ca: authority.pem, ...certificate }).getProvider());
  assert.equal(shown.code, 'NOT_FOUND');
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

test('a server that does not respond is given up', async (t) => {
  const silent = createTcpServer();
  const address = await listen(t, silent);
  assert.equal(await fault(t, address, { connectTimeoutMs: 200, retry: { attempts: 1 } }), 'connectTimeout');
});
