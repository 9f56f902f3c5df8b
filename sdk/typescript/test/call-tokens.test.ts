// Tokens of calls: what is sent, what is replaced, and how long a source may take.

import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { inspect } from 'node:util';

import { Code } from '@connectrpc/connect';

import { LoggedOutError, execToken, type Client } from '../src/index.js';
import { ExportService, ProviderService } from '../src/v1alpha2.js';
import { failing } from './failing.js';
import { clientOf, failingWith, failure, serve } from './server.js';

for (const reason of ['TOKEN_EXPIRED', 'TOKEN_INVALID']) {
  test(`a token is replaced once after ${reason}`, async (t) => {
    const rejected = () => failure(Code.Unauthenticated, reason);
    const numbered = () => {
      let count = 0;
      return () => `token-${count++}`;
    };
    let server = await serve(t, failingWith([rejected()]));
    await clientOf(t, server, { token: numbered() }).getExport('', 'cowboys');
    assert.deepEqual(server.seen.map(({ headers }) => headers.authorization), ['Bearer token-0', 'Bearer token-1']);

    server = await serve(t, failingWith([rejected(), rejected()]));
    let error = await failing(clientOf(t, server, { token: numbered() }).getExport('', 'cowboys'));
    assert.deepEqual([error.reason, server.seen.length], [reason, 2], 'the new token is no better');

    server = await serve(t, failingWith([rejected()]));
    error = await failing(clientOf(t, server, { token: 'always-the-same' }).getExport('', 'cowboys'));
    assert.deepEqual([error.reason, server.seen.length], [reason, 1], 'there is no other token');

    server = await serve(t, failingWith([failure(Code.Unauthenticated, 'CREDENTIAL_REVOKED')]));
    error = await failing(clientOf(t, server, { token: numbered() }).getExport('', 'cowboys'));
    assert.equal(server.seen.length, 1, 'revoked is revoked');
  });
}

test('asking how to log in sends no token', async (t) => {
  const server = await serve(t, (router) => {
    router.service(ProviderService, {
      getProvider: () => ({ provider: { prettyName: 'MangoDB' } }),
      getCaller: () => ({ caller: { username: 'ann' } }),
    });
  });
  const client = clientOf(t, server, { token: 'hunter2', userAgent: 'portal/7' });
  assert.equal((await client.getProvider()).prettyName, 'MangoDB');
  assert.equal((await client.getCaller()).username, 'ann');
  const [open, closed] = server.seen;
  assert.equal(open?.path, '/kubebind.v1alpha2.ProviderService/GetProvider');
  assert.equal(open.headers.authorization, undefined);
  assert.equal(closed?.headers.authorization, 'Bearer hunter2');
  assert.match(String(closed.headers['user-agent']), /^portal\/7 bindery-sdk-typescript\//);
  assert.equal(server.connections(), 1);
});

test('clients with other tokens share a connection', async (t) => {
  const server = await serve(t, failingWith([]));
  const service = clientOf(t, server);
  const users = ['ann', () => Promise.resolve('bob')].map((token) => service.withToken(token));
  for (const client of [service, ...users]) await client.getExport('', 'a');
  assert.deepEqual(server.seen.map(({ headers }) => headers.authorization), [undefined, 'Bearer ann', 'Bearer bob']);
  assert.equal(server.connections(), 1);
  service.close();
  assert.equal((await failing((users[0] as Client).getExport('', 'a'))).kind, 'cancelled');
});

test('a token that cannot be sent fails without a call', async (t) => {
  const server = await serve(t, failingWith([]));
  const reasons = [
    ['two words', 'TokenMalformed'],
    ['', 'TokenEmpty'],
    ['x'.repeat(15 * 1024 + 1), 'TokenTooLong'],
    [() => Promise.reject(new Error('the issuer is away')), 'TokenSourceFailed'],
    [() => Promise.reject(new LoggedOutError('the user logged out')), 'LoggedOut'],
  ] as const;
  for (const [token, reason] of reasons) {
    const error = await failing(clientOf(t, server, { token }).getExport('', 'cowboys'));
    assert.deepEqual([error.kind, error.reason], ['token', reason]);
  }
  assert.equal(server.seen.length, 0);
});

test('a token source has the time of the call, and its own error', async (t) => {
  const server = await serve(t, failingWith([]));
  let count = 0;
  const hangs = () => {
    count += 1;
    return new Promise<string>(() => undefined);
  };
  const client = clientOf(t, server, { token: hangs, timeoutMs: 200, attemptTimeoutMs: 20 });
  const start = performance.now();
  const error = await failing(client.getExport('', 'cowboys'));
  const took = performance.now() - start;
  assert.deepEqual([error.kind, error.reason, count], ['token', 'TokenSourceFailed', 1]);
  assert.ok(took >= 190, `${took} ms`);
  const controller = new AbortController();
  const pending = failing(client.getExport('', 'cowboys', { signal: controller.signal, timeoutMs: 60_000 }));
  controller.abort();
  assert.equal((await pending).kind, 'cancelled');
  const closed = failing(client.getExport('', 'cowboys', { timeoutMs: 60_000 }));
  client.close();
  assert.equal((await closed).kind, 'cancelled');
  assert.equal(server.seen.length, 0);
});

test('an attempt has its whole time after a slow token', async (t) => {
  const server = await serve(t, failingWith([]));
  const token = () => new Promise<string>((resolve) => setTimeout(() => resolve('token'), 300));
  await clientOf(t, server, { token, attemptTimeoutMs: 200, retry: { attempts: 1 } }).getExport('', 'cowboys');
  const told = Number.parseInt(String(server.seen[0]?.headers['grpc-timeout']), 10);
  assert.ok(told > 150 && told <= 200, `${told} ms`);
});

test('what a function of the user throws is the cause, and in no text', async (t) => {
  const server = await serve(t, failingWith([]));
  const token = () => {
    throw new DOMException('the token hunter2 is late', 'TimeoutError');
  };
  const error = await failing(clientOf(t, server, { token }).getExport('', 'cowboys'));
  assert.deepEqual([error.kind, error.reason, server.seen.length], ['token', 'TokenSourceFailed', 0]);
  assert.equal((error.cause as Error).message, 'the token hunter2 is late');
  for (const shown of [inspect(error, { depth: null, showHidden: true }), String(error), JSON.stringify(error), error.stack]) {
    assert.ok(shown !== undefined && !shown.includes('hunter2'), shown);
  }
});

test('a token that expires under many calls is replaced once', async (t) => {
  const server = await serve(t, (router) => {
    router.service(ExportService, {
      getExport: async (_, { requestHeader }) => {
        // The refusals of the old token come late and one after the other.
        await new Promise((resolve) => setTimeout(resolve, Math.random() * 100));
        if (requestHeader.get('authorization') === 'Bearer token-1') throw failure(Code.Unauthenticated, 'TOKEN_EXPIRED');
        return { export: {} };
      },
    });
  });
  const path = join(mkdtempSync(join(tmpdir(), 'bindery-sdk-')), 'runs');
  t.after(() => rmSync(join(path, '..'), { recursive: true, force: true }));
  const script = `const f = require('fs'); f.appendFileSync(process.argv[1], 'x'); console.log('token-' + f.readFileSync(process.argv[1]).length)`;
  const client = clientOf(t, server, { token: execToken([process.execPath, '-e', script, path]) });
  await Promise.all(Array.from({ length: 40 }, () => client.getExport('', 'cowboys')));
  assert.equal(readFileSync(path, 'utf8').length, 2);
});
