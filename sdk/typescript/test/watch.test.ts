// Watches: snapshots, resuming, silence, and what ends them.

import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';

import { fromBinary, type MessageInitShape } from '@bufbuild/protobuf';
import type { ServerHttp2Stream } from 'node:http2';
import { ConnectError, Code } from '@connectrpc/connect';

import { BinderyError, LoggedOutError, type ClientOptions, type Watch, type WatchEvent } from '../src/index.js';
import type { TestSettings } from '../src/testing.js';
import { WatchExportsRequestSchema, WatchExportsResponseSchema, type Export } from '../src/v1alpha2.js';
import { GRPC_HEADERS, clientOf, framed, serve, serveScript, type Server, type StreamScript, failure, retryAfter } from './server.js';
import { ExportService } from '../src/v1alpha2.js';

type Event = NonNullable<MessageInitShape<typeof WatchExportsResponseSchema>['event']>;
type Step = Buffer | 'break' | 'hang' | { trailers: Record<string, string> } | { pauseMs: number };

const step = (event: Event | undefined, resumeToken = '') =>
  framed(WatchExportsResponseSchema, { ...(event && { event }), resumeToken });
const begin = (reason?: string) =>
  step({ case: 'snapshotBegin', value: reason === undefined ? {} : { resumeRefused: true, reason } });
const applied = (name: string, token = '') => step({ case: 'applied', value: { metadata: { name } } }, token);
const removed = (name: string, token = '') => step({ case: 'removed', value: { name } }, token);
const complete = (objectCount: number, token: string) => step({ case: 'snapshotComplete', value: { objectCount } }, token);
const heartbeat = (token: string) => step({ case: 'heartbeat', value: {} }, token);

/** A server of scripts, one per stream, and the tokens that it was asked to resume from. */
async function scripted(t: TestContext, ...scripts: Step[][]): Promise<Server & { asked: string[] }> {
  const asked: string[] = [];
  const run = (steps: Step[]): StreamScript => async (stream) => {
    const body: Buffer[] = [];
    for await (const chunk of stream) body.push(chunk as Buffer);
    asked.push(fromBinary(WatchExportsRequestSchema, Buffer.concat(body).subarray(5)).resumeToken);
    await play(stream, steps);
  };
  return { ...(await serveScript(t, scripts.map(run))), asked };
}

async function play(stream: ServerHttp2Stream, steps: Step[]): Promise<void> {
  let trailers: Record<string, string> = { 'grpc-status': '0' };
  stream.respond(GRPC_HEADERS, { waitForTrailers: true });
  stream.on('wantTrailers', () => stream.sendTrailers(trailers));
  for (const item of steps) {
    if (item === 'hang') return;
    if (item === 'break') {
      // After what was written has arrived.
      setTimeout(() => stream.close(2), 50);
      return;
    }
    if (Buffer.isBuffer(item)) stream.write(item);
    else if ('pauseMs' in item) await new Promise((resolve) => setTimeout(resolve, item.pauseMs));
    else trailers = item.trailers;
  }
  stream.end();
}

function watch(t: TestContext, server: { address: string }, resumeToken = '', test: TestSettings = {}, options: ClientOptions = {}) {
  return clientOf(t, server, options, test).watchExports({ resumeToken });
}

/** An event in short. */
function word(event: WatchEvent<Export>): string {
  switch (event.type) {
    case 'connected':
      return event.resumed ? 'resumed' : 'connected';
    case 'snapshotBegin':
      return event.refused === undefined ? 'begin' : `refused ${event.refused}`;
    case 'applied':
      return `${event.inSnapshot ? '' : '+'}${event.object.metadata?.name ?? ''}`;
    case 'removed':
      return `-${event.removed.name}`;
    case 'snapshotComplete':
      return 'complete';
    case 'disconnected':
      return event.error === undefined ? 'ended' : `lost ${event.error.reason}`;
  }
}

/** The next events in short; an error ends them. */
async function words(events: Watch<Export>, count: number): Promise<string[]> {
  const found: string[] = [];
  while (found.length < count) {
    try {
      const { done, value } = await events.next();
      found.push(done === true ? 'done' : word(value));
    } catch (error) {
      assert.ok(error instanceof BinderyError, String(error));
      found.push(`error ${error.reason}`);
    }
  }
  return found;
}

test('a watch goes on where it was', async (t) => {
  const server = await scripted(
    t,
    [begin(), applied('a'), complete(1, 't1'), applied('b', 't2'), heartbeat('t3')],
    [removed('a', 't4'), 'break'],
    ['hang'],
  );
  const events = watch(t, server);
  assert.deepEqual(await words(events, 5), ['connected', 'begin', 'a', 'complete', '+b']);
  assert.equal(events.resumeToken, 't1', 'the last event has not been processed');
  assert.deepEqual(await words(events, 5), ['ended', 'resumed', '-a', 'lost ConnectionBroken', 'resumed']);
  assert.equal(events.resumeToken, 't4');
  assert.deepEqual(server.asked, ['', 't3', 't4']);
});

test('a snapshot that breaks is void', async (t) => {
  const server = await scripted(
    t,
    [begin(), applied('a', 'early'), 'break'],
    [begin(), applied('b'), complete(2, 'wrong')],
    [begin(), applied('b'), complete(1, 't1'), 'hang'],
  );
  const events = watch(t, server);
  assert.deepEqual(await words(events, 4), ['connected', 'begin', 'a', 'lost ConnectionBroken']);
  assert.deepEqual(await words(events, 4), ['connected', 'begin', 'b', 'lost ProtocolViolation']);
  assert.deepEqual(await words(events, 4), ['connected', 'begin', 'b', 'complete']);
  assert.deepEqual(server.asked, ['', '', '']);
});

test('a refused token means a snapshot', async (t) => {
  const server = await scripted(t, [begin('too old'), 'break'], [begin(), complete(0, 't1'), 'hang']);
  const events = watch(t, server, 't0');
  assert.deepEqual(await words(events, 3), ['resumed', 'refused too old', 'lost ConnectionBroken']);
  assert.deepEqual(await words(events, 3), ['connected', 'begin', 'complete']);
  assert.deepEqual(server.asked, ['t0', '']);
});

test('a break of the rules drops the token', async (t) => {
  for (const bad of [complete(0, 'b'), Buffer.from([0, 0, 0, 0, 1, 0xff])]) {
    const server = await scripted(t, [bad], ['hang']);
    const events = watch(t, server, 'a');
    assert.deepEqual((await words(events, 3)).slice(0, 2), ['resumed', 'lost ProtocolViolation']);
    assert.deepEqual(server.asked[0], 'a');
  }
});

test('silence ends a stream, and heartbeats do not', async (t) => {
  const beat = (token: string): Step[] => [{ pauseMs: 150 }, heartbeat(token)];
  const server = await scripted(t, [begin(), complete(0, 't1'), ...beat('t2'), ...beat('t3'), ...beat('t4'), 'hang'], ['hang']);
  const events = watch(t, server, '', { silenceMs: 400 });
  assert.deepEqual(await words(events, 3), ['connected', 'begin', 'complete']);
  const start = performance.now();
  assert.deepEqual(await words(events, 2), ['lost StreamSilent', 'resumed']);
  assert.ok(performance.now() - start >= 800, 'three heartbeats and the silence');
  assert.deepEqual(server.asked, ['', 't4']);
});

test('a consumer that takes its time is no silence', async (t) => {
  const server = await scripted(t, [begin(), complete(0, 't1'), { pauseMs: 500 }, applied('a', 't2'), 'hang'], ['hang']);
  const events = watch(t, server, '', { silenceMs: 300 });
  assert.deepEqual(await words(events, 3), ['connected', 'begin', 'complete']);
  await new Promise((resolve) => setTimeout(resolve, 700));
  assert.deepEqual(await words(events, 1), ['+a']);
});

test('an unknown event is skipped, and its token is taken', async (t) => {
  const server = await scripted(t, [begin(), complete(0, 't1'), step(undefined, 't2')], ['hang']);
  assert.deepEqual(await words(watch(t, server), 5), ['connected', 'begin', 'complete', 'ended', 'resumed']);
  assert.deepEqual(server.asked, ['', 't2']);
});

/** A watch whose streams fail with these errors, one after the other. */
function failingStreams(t: TestContext, errors: readonly ConnectError[]): Promise<Server> {
  const left = [...errors];
  return serve(t, (router) => {
    router.service(ExportService, {
      watchExports: async function* () {
        const error = left.shift();
        if (error !== undefined) throw error;
        yield { event: { case: 'snapshotBegin', value: {} } };
        yield { event: { case: 'snapshotComplete', value: {} }, resumeToken: 't1' };
        await new Promise((resolve) => setTimeout(resolve, 200));
      },
    });
  });
}

test('what only others can mend ends a watch', async (t) => {
  for (const [code, reason] of [
    [Code.Unauthenticated, 'CREDENTIAL_REVOKED'],
    [Code.PermissionDenied, 'CONTRACT_DENIED'],
    [Code.NotFound, 'CONTRACT_NOT_FOUND'],
  ] as const) {
    const events = watch(t, await failingStreams(t, [failure(code, reason)]));
    const found = await words(events, 3);
    assert.deepEqual(found.slice(found.indexOf(`error ${reason}`)).slice(0, 2), [`error ${reason}`, 'done']);
  }
});

test('a malformed resume token is dropped', async (t) => {
  const server = await failingStreams(t, [failure(Code.InvalidArgument, 'RESUME_TOKEN_INVALID')]);
  const found = await words(watch(t, server, 't0'), 5);
  const end = ['lost RESUME_TOKEN_INVALID', 'connected', 'begin', 'complete'];
  assert.deepEqual(found.filter((item) => item !== 'resumed').slice(0, 4), end);
});

test('trouble that passes is told and waited for', async (t) => {
  const server = await failingStreams(t, [
    failure(Code.Unavailable, 'CACHE_NOT_READY', [retryAfter(300)]),
    new ConnectError('', Code.Internal),
  ]);
  const start = performance.now();
  const found = (await words(watch(t, server), 7)).filter((item) => item.startsWith('lost') || item === 'complete');
  assert.deepEqual(found, ['lost CACHE_NOT_READY', 'lost INTERNAL', 'complete']);
  assert.ok(performance.now() - start >= 300);
});

test('an expired token is replaced once', async (t) => {
  const expired = () => failure(Code.Unauthenticated, 'TOKEN_EXPIRED');
  let number = 0;
  const options = { token: () => `token-${number++}` };
  const good = watch(t, await failingStreams(t, [expired()]), '', {}, options);
  assert.deepEqual((await words(good, 5)).filter((item) => item !== 'connected'), ['ended', 'begin', 'complete']);
  const same = watch(t, await failingStreams(t, [expired()]), '', {}, { token: 'always-the-same' });
  assert.ok((await words(same, 4)).includes('error TOKEN_EXPIRED'), 'there is no other token');
});

test('a watch ends when its user has logged out, and not before', async (t) => {
  const server = await scripted(t, [begin(), complete(0, 't1')], ['hang']);
  let number = 0;
  const token = () => {
    number += 1;
    if (number === 1) return 'token';
    throw number === 2 ? new Error('the issuer is away') : new LoggedOutError('the user logged out');
  };
  const expected = ['connected', 'begin', 'complete', 'ended', 'lost TokenSourceFailed', 'error LoggedOut', 'done'];
  assert.deepEqual(await words(watch(t, server, '', {}, { token }), 7), expected);
});

test('a watch survives the end of its server', async (t) => {
  const server = await scripted(t, [begin(), complete(0, 't1'), 'hang'], ['hang']);
  const events = watch(t, server);
  assert.deepEqual(await words(events, 3), ['connected', 'begin', 'complete']);
  server.breakAll();
  assert.deepEqual(await words(events, 2), ['lost ConnectionBroken', 'resumed']);
});

test('a watch ends by break, by close, by its signal, and with the client', async (t) => {
  const server = await scripted(t, [begin(), 'hang']);
  const client = clientOf(t, server);
  const broken = client.watchExports();
  for await (const event of broken) if (event.type === 'snapshotBegin') break;
  assert.deepEqual(await words(broken, 1), ['done']);

  const closed = client.watchExports();
  await words(closed, 2);
  const pending = words(closed, 1);
  closed.close();
  assert.deepEqual(await pending, ['done']);

  const controller = new AbortController();
  const cancelled = client.watchExports({}, { signal: controller.signal });
  await words(cancelled, 2);
  const aborted = words(cancelled, 2);
  controller.abort();
  assert.deepEqual(await aborted, ['error Cancelled', 'done']);
  assert.deepEqual(await words(client.watchExports({}, { signal: AbortSignal.abort() }), 2), ['error Cancelled', 'done']);

  const last = client.watchExports();
  await words(last, 2);
  const ended = words(last, 2);
  client.close();
  assert.deepEqual(await ended, ['error Cancelled', 'done']);
  assert.deepEqual(await words(client.watchExports(), 1), ['error Cancelled']);
});

test('a pause between streams ends with the watch', async (t) => {
  const once = { reconnect: { baseMs: 600_000, capMs: 600_000 }, random: () => 1 };
  const events = watch(t, await scripted(t, [begin()], ['hang']), '', once);
  assert.deepEqual(await words(events, 3), ['connected', 'begin', 'ended']);
  const pending = words(events, 1);
  events.close();
  assert.deepEqual(await pending, ['done']);
});
