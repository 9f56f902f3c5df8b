// Token sources: files, commands, and what is shown of them.

import assert from 'node:assert/strict';
import { mkdtempSync, renameSync, rmSync, utimesSync, statSync, writeFileSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { inspect } from 'node:util';

import { BinderyError, Client, execToken, fileToken, functionToken, staticToken, type TokenSource } from '../src/index.js';

function folder(t: TestContext): string {
  const path = mkdtempSync(join(tmpdir(), 'bindery-sdk-'));
  t.after(() => rmSync(path, { recursive: true, force: true }));
  return path;
}

async function refused(source: TokenSource): Promise<BinderyError> {
  try {
    await source.token();
  } catch (error) {
    assert.ok(error instanceof BinderyError, String(error));
    return error;
  }
  return assert.fail('the source must fail');
}

test('a file is read again when it has changed, within a second', async (t) => {
  const path = join(folder(t), 'token');
  writeFileSync(path, ' one\n');
  const source = fileToken(path);
  assert.equal(await source.token(), 'one');
  // As the kubelet does: another file takes the place.
  writeFileSync(`${path}.new`, 'two');
  renameSync(`${path}.new`, path);
  await sleep(1000);
  assert.equal(await source.token(), 'two');
});

test('a file is read again at once when the server refuses its token', async (t) => {
  const path = join(folder(t), 'token');
  writeFileSync(path, 'one');
  const source = fileToken(path);
  assert.equal(await source.token(), 'one');
  const { atime, mtime } = statSync(path);
  writeFileSync(path, 'two');
  // A change that the metadata does not show.
  utimesSync(path, atime, mtime);
  assert.equal(await source.token(), 'one', 'remembered while nothing says otherwise');
  source.expired?.();
  assert.equal(await source.token(), 'two');
});

test('a missing file is named, and found once it is there', async (t) => {
  const path = join(folder(t), 'token');
  const source = fileToken(path);
  const error = await refused(source);
  assert.equal(error.reason, 'TokenFileUnreadable');
  assert.ok(error.message.includes(path));
  writeFileSync(path, 'one');
  assert.equal(await source.token(), 'one');
});

/** A command that counts its runs in a file and prints what a template makes of the count. */
function counting(t: TestContext, print: string): { source: TokenSource; runs: () => number } {
  const path = join(folder(t), 'runs');
  writeFileSync(path, '');
  const script = `const f = require('fs'); f.appendFileSync(process.argv[1], 'x'); const n = f.readFileSync(process.argv[1]).length; ${print}`;
  return {
    source: execToken([process.execPath, '-e', script, path]),
    runs: () => readFileSync(path, 'utf8').length,
  };
}

test('a command that prints a token runs again when the server refuses it', async (t) => {
  const { source, runs } = counting(t, 'console.log(`hunter2-${n}`)');
  assert.deepEqual(await Promise.all([source.token(), source.token()]), ['hunter2-1', 'hunter2-1']);
  assert.equal(await source.token(), 'hunter2-1');
  assert.equal(runs(), 1);
  source.expired?.();
  assert.equal(await source.token(), 'hunter2-2');
});

test('an ExecCredential is remembered until half a minute before it expires', async (t) => {
  const credential = (seconds: number) => `const expirationTimestamp = new Date(Date.now() + ${seconds} * 1000).toISOString();
    console.log(JSON.stringify({ kind: 'ExecCredential', status: { token: 'hunter2-' + n, expirationTimestamp } }))`;
  const long = counting(t, credential(3600));
  assert.deepEqual([await long.source.token(), await long.source.token(), long.runs()], ['hunter2-1', 'hunter2-1', 1]);
  const short = counting(t, credential(20));
  assert.deepEqual([await short.source.token(), await short.source.token(), short.runs()], ['hunter2-1', 'hunter2-2', 2]);
});

test('a command that fails is told without what it printed', async () => {
  const secret = 'eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2lnbmF0dXJl';
  const check = async (script: string, expect: RegExp) => {
    const error = await refused(execToken([process.execPath, '-e', script, secret], { timeoutMs: 10_000 }));
    assert.equal(error.reason, 'TokenSourceFailed');
    assert.match(error.message, expect);
    assert.ok(!inspect(error, { depth: null }).includes(secret), error.message);
  };
  await check('console.log(process.argv[1]); console.error(`log in, not ${process.argv[1]}`); process.exit(3)', /ended with code 3: log in, not \[hidden\]/);
  await check('console.log(`{"kind": "${process.argv[1]}`)', /no JSON/);
  await check('console.log(`{"kind": "ExecCredential"}`)', /without status.token/);
  await check('console.log(`{"kind": "Secret"}`)', /of another kind/);
  const missing = await refused(execToken(['/nonexistent/program']));
  assert.match(missing.message, /cannot be run \(ENOENT\)/);
  const slow = await refused(execToken([process.execPath, '-e', 'setInterval(() => {}, 1000)'], { timeoutMs: 300 }));
  assert.match(slow.message, /did not end within 0.3 s/);
});

test('no source and no client shows a token', async () => {
  const command = execToken([process.execPath, '-e', 'console.log("hunter2")', 'hunter2']);
  await command.token();
  const sources = [staticToken('hunter2'), functionToken(() => 'hunter2'), command];
  const clients = sources.map((token) => new Client('https://bind.example.com', { token }));
  for (const value of [...sources, ...clients]) {
    const shown = `${inspect(value, { depth: null, showHidden: true })} ${JSON.stringify(value)} ${String(value)}`;
    assert.ok(!shown.includes('hunter2'), shown);
  }
});
