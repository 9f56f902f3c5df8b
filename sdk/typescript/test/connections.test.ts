// Connections that end, and those that are no HTTP/2.

import assert from 'node:assert/strict';
import { createServer, type AddressInfo, type Socket } from 'node:net';
import { test, type TestContext } from 'node:test';

import { GetExportResponseSchema, RenewKubeconfigResponseSchema, WatchExportsResponseSchema } from '../src/v1alpha2.js';
import { failing } from './failing.js';
import { GRPC_HEADERS, answer, clientOf, framed, serveScript, type StreamScript } from './server.js';

const exported = framed(GetExportResponseSchema, { export: {} });
const renewed = framed(RenewKubeconfigResponseSchema, { contract: 'c', kubeconfig: {} });

/** Does this, and says that the connection takes no more calls. */
const goingAway = (script: StreamScript): StreamScript => (stream, headers) => {
  script(stream, headers);
  stream.session?.goaway(0);
};

test('calls after a GOAWAY go over another connection', async (t) => {
  const server = await serveScript(t, [goingAway(answer([renewed]))]);
  const client = clientOf(t, server);
  for (let count = 0; count < 3; count += 1) await client.renewKubeconfig('c');
  assert.deepEqual([server.seen.length, server.connections()], [3, 3]);
});

test('a call that was begun ends on the connection that goes away', async (t) => {
  const later: StreamScript = (stream, headers) => {
    stream.session?.goaway(0);
    setTimeout(() => answer([renewed])(stream, headers), 100);
  };
  const server = await serveScript(t, [later]);
  assert.equal((await clientOf(t, server).renewKubeconfig('c')).contract, 'c');
  assert.equal(server.seen.length, 1);
});

test('a watch that the server ends in good order goes on over another connection', async (t) => {
  const message = (init: object) => framed(WatchExportsResponseSchema, init);
  const begin = message({ event: { case: 'snapshotBegin', value: {} } });
  const complete = message({ event: { case: 'snapshotComplete', value: {} }, resumeToken: 'r1' });
  const stall: StreamScript = (stream) => stream.respond(GRPC_HEADERS);
  const server = await serveScript(t, [goingAway(answer([begin, complete])), stall]);
  const types = [];
  for await (const event of clientOf(t, server).watchExports()) {
    types.push(event.type);
    if (event.type === 'disconnected') assert.equal(event.error, undefined);
    if (types.length === 5) break;
  }
  assert.deepEqual(types, ['connected', 'snapshotBegin', 'snapshotComplete', 'disconnected', 'connected']);
  assert.equal(server.connections(), 2);
});

/** A server of TCP that greets each connection so, as long as there are greetings; then it stays silent. */
async function greeting(t: TestContext, ...greetings: ((socket: Socket) => void)[]): Promise<{ address: string; count: () => number }> {
  let count = 0;
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => undefined);
    greetings[count]?.(socket);
    count += 1;
  });
  await new Promise<void>((resolve) => {
    server.listen(0, '127.0.0.1', resolve);
  });
  t.after(() => {
    sockets.forEach((socket) => socket.destroy());
    server.close();
  });
  return { address: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, count: () => count };
}

test('what is no HTTP/2 is an error, and no hang', async (t) => {
  for (const text of ['HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n', 'SSH-2.0-OpenSSH_9.2\r\n'.repeat(3)]) {
    const server = await greeting(t, (socket) => socket.write(text));
    const error = await failing(clientOf(t, server, { retry: { attempts: 1 }, timeoutMs: 3_000 }).getExport('', 'a'));
    assert.deepEqual([error.kind, error.reason], ['transport', 'ConnectionBroken'], error.message);
  }
});

test('a server that is silent ends with the deadline', async (t) => {
  const server = await greeting(t);
  const error = await failing(clientOf(t, server, { timeoutMs: 300 }).getExport('', 'a'));
  assert.equal(error.reason, 'DEADLINE');
});

test('connections that are closed before HTTP/2 begins are made anew', async (t) => {
  const close = (socket: Socket) => socket.destroy();
  const server = await greeting(t, close, close, close, close, close);
  const error = await failing(clientOf(t, server).getExport('', 'a'));
  assert.deepEqual([error.reason, server.count()], ['ConnectionBroken', 5]);
});

test('a stream that the server resets is broken, and the connection stays', async (t) => {
  const server = await serveScript(t, [(stream) => stream.close(8), (stream) => stream.close(7), answer([exported])]);
  await clientOf(t, server).getExport('', 'a');
  assert.deepEqual([server.seen.length, server.connections()], [3, 1]);
});

test('an answer that breaks off is no answer', async (t) => {
  const half: StreamScript = (stream) => {
    stream.respond(GRPC_HEADERS);
    stream.write(exported.subarray(0, 4));
    setTimeout(() => stream.session?.destroy(), 20);
  };
  const server = await serveScript(t, [half, answer([exported])]);
  await clientOf(t, server).getExport('', 'a');
  assert.equal(server.seen.length, 2);
});

test('a server sees that a call is given up', async (t) => {
  const codes: number[] = [];
  const server = await serveScript(t, [(stream) => stream.on('close', () => codes.push(stream.rstCode))]);
  await failing(clientOf(t, server, { timeoutMs: 200 }).getExport('', 'a'));
  await failing(clientOf(t, server).getExport('', 'a', { signal: AbortSignal.timeout(200) }));
  await new Promise((resolve) => setTimeout(resolve, 100));
  assert.deepEqual(codes, [8, 8]);
});
