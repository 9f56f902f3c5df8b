// Token sources: files, commands, and what is shown of them.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, renameSync, rmSync, utimesSync, statSync, writeFileSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { inspect } from 'node:util';

import { BinderyError, Client, execToken, fileToken, functionToken, staticToken, type TokenSource } from '../src/index.js';
import { testing } from '../src/testing.js';

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
  source.forget?.('another token');
  assert.equal(await source.token(), 'one');
  source.forget?.('one');
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

/** A program that counts its runs in a file and prints what a template makes of the count. */
function counting(t: TestContext, print: string): { source: TokenSource; runs: () => number } {
  const path = join(folder(t), 'runs');
  writeFileSync(path, '');
  const script = `const f = require('fs'); f.appendFileSync(process.argv[1], 'x'); const n = f.readFileSync(process.argv[1]).length; ${print}`;
  return {
    source: execToken([process.execPath, '-e', script, path]),
    runs: () => readFileSync(path, 'utf8').length,
  };
}

test('a program that prints a token runs again when the server refuses it', async (t) => {
  const { source, runs } = counting(t, 'console.log(`hunter2-${n}`)');
  assert.deepEqual(await Promise.all([source.token(), source.token()]), ['hunter2-1', 'hunter2-1']);
  assert.equal(await source.token(), 'hunter2-1');
  assert.equal(runs(), 1);
  source.forget?.('another token');
  assert.equal(await source.token(), 'hunter2-1');
  source.forget?.('hunter2-1');
  assert.equal(await source.token(), 'hunter2-2');
  // A refusal of the first token that comes late.
  source.forget?.('hunter2-1');
  assert.equal(await source.token(), 'hunter2-2');
  assert.equal(runs(), 2);
});

test('an ExecCredential is remembered until half a minute before it expires', async (t) => {
  const credential = (seconds: number) => `const expirationTimestamp = new Date(Date.now() + ${seconds} * 1000).toISOString();
    console.log(JSON.stringify({ kind: 'ExecCredential', status: { token: 'hunter2-' + n, expirationTimestamp } }))`;
  const long = counting(t, credential(3600));
  assert.deepEqual([await long.source.token(), await long.source.token(), long.runs()], ['hunter2-1', 'hunter2-1', 1]);
  const short = counting(t, credential(20));
  assert.deepEqual([await short.source.token(), await short.source.token(), short.runs()], ['hunter2-1', 'hunter2-2', 2]);
});

test('a run that began before a refusal does not bring the token back', async (t) => {
  // The first two runs print the same token, as a program with a cache does; the second one is in progress when the server refuses it.
  const path = join(folder(t), 'runs');
  const script = `const f = require('fs'); f.appendFileSync(process.argv[1], 'x'); const n = f.readFileSync(process.argv[1]).length;
    const expirationTimestamp = new Date(n < 3 ? 0 : Date.now() + 3600_000).toISOString();
    setTimeout(() => console.log(JSON.stringify({ kind: 'ExecCredential', status: { token: n < 3 ? 'stale' : 'fresh', expirationTimestamp } })), n === 2 ? 500 : 0)`;
  const source = execToken([process.execPath, '-e', script, path]);
  assert.equal(await source.token(), 'stale');
  const second = source.token();
  source.forget?.('stale');
  assert.deepEqual([await second, await source.token()], ['fresh', 'fresh']);
  assert.equal(readFileSync(path, 'utf8').length, 3);
});

test('a token without an expiry is kept for a minute', async (t) => {
  t.mock.timers.enable({ apis: ['Date'] });
  const { source, runs } = counting(t, 'console.log(`hunter2-${n}`)');
  await source.token();
  t.mock.timers.tick(59_000);
  assert.equal(await source.token(), 'hunter2-1');
  t.mock.timers.tick(2_000);
  assert.equal(await source.token(), 'hunter2-2');
  assert.equal(runs(), 2);
});

test('a program that fails is told without what it printed', async (t) => {
  const secret = 'hunter2';
  const check = async (script: string, expect: RegExp) => {
    const error = await refused(execToken([process.execPath, '-e', script, secret]));
    assert.equal(error.reason, 'TokenSourceFailed');
    assert.match(error.message, expect);
    assert.ok(!inspect(error, { depth: null }).includes(secret), error.message);
  };
  await check('console.log(process.argv[1]); process.exit(3)', /ended with status 3$/);
  await check('console.log(process.argv[1]); process.kill(process.pid, "SIGTERM"); setInterval(() => {}, 1000)', /ended by SIGTERM$/);
  await check('console.log(`{"kind": "${process.argv[1]}`)', /no JSON/);
  await check('console.log(`{"kind": "ExecCredential"}`)', /without status.token/);
  await check('console.log(`{"kind": "Secret", "status": {"token": "${process.argv[1]}"}}`)', /of another kind/);
  await check('console.log(`{"status": {"token": "${process.argv[1]}"}}`)', /of another kind/);
  await check('process.stdout.write(process.argv[1].repeat(100_000))', /more than \d+ bytes/);
  const missing = await refused(execToken(['/nonexistent/program']));
  assert.match(missing.message, /cannot be run \(ENOENT\)/);
  const closed = await refused(execToken([join(folder(t), 'a\nb')]));
  assert.ok(!closed.message.includes('\n'));
});

test('what a program writes to standard error is seen, and is in no error', async (t) => {
  const errors = join(folder(t), 'errors.mjs');
  const sdk = new URL('../src/index.js', import.meta.url).href;
  const program = ['/bin/sh', '-c', 'echo token hunter2 rejected >&2; exit 3'];
  const script = `import { execToken } from ${JSON.stringify(sdk)};
    await execToken(${JSON.stringify(program)}).token().catch((error) => console.log(error));`;
  writeFileSync(errors, script);
  const { status, stdout, stderr } = spawnSync(process.execPath, [errors], { encoding: 'utf8' });
  assert.deepEqual([status, stderr], [0, 'token hunter2 rejected\n']);
  assert.match(stdout, /ended with status 3/);
  assert.ok(!stdout.includes('hunter2'), stdout);
});

test('a program that does not end is killed, also if it ignores signals', async () => {
  const start = performance.now();
  const options = { [testing]: { timeoutMs: 300 } };
  // The shell ignores SIGTERM; the program that it waits for keeps its output open.
  const source = execToken(['/bin/sh', '-c', 'trap "" TERM; sleep 5; echo late'], options);
  const both = await Promise.all([refused(source), refused(source)]);
  assert.equal(both[0], both[1], 'it ran once');
  assert.match(both[0].message, /did not end within 0.3 s and was killed/);
  assert.ok(performance.now() - start < 3_000);
});

test('what a program leaves behind does not delay its token', async () => {
  const start = performance.now();
  assert.equal(await execToken(['/bin/sh', '-c', 'sleep 5 & echo hunter2']).token(), 'hunter2');
  assert.ok(performance.now() - start < 4_000);
});

test('a program learns what it is asked for, and has no input', async () => {
  const script = 'process.stdin.on("data", () => {}).on("end", () => console.log(Buffer.from(process.env.KUBERNETES_EXEC_INFO + process.env.MORE).toString("base64url")))';
  const source = execToken([process.execPath, '-e', script], { env: { MORE: ' more', KUBERNETES_EXEC_INFO: 'other' } });
  const told = Buffer.from(await source.token(), 'base64url').toString();
  assert.equal(told, '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","spec":{"interactive":false}} more');
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
