// The package as its users get it: packed, installed into an empty folder from files alone; the lines of the README, and the example.
// `npm run test:package` runs this by itself, without the time limit of the unit tests: npm can be slow.

import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

import { Code } from '@connectrpc/connect';

import { BindingService, CatalogService, Phase } from '../src/v1alpha2.js';
import { Authority } from './certificates.js';
import { failure, serve } from './server.js';

const run = promisify(execFile);
const root = fileURLToPath(new URL('../../', import.meta.url));
const folder = mkdtempSync(join(tmpdir(), 'bindery-sdk-package-'));
process.once('exit', () => rmSync(folder, { recursive: true, force: true }));
const project = join(folder, 'project');
mkdirSync(project);

/** Packs the package and what it depends on, and installs the tarballs without a registry. */
async function install(): Promise<string[]> {
  const { dependencies } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as { dependencies: Record<string, string> };
  const packages = ['.', ...Object.keys(dependencies).map((name) => `./node_modules/${name}`)];
  await run('npm', ['pack', '--ignore-scripts', '--pack-destination', folder, ...packages], { cwd: root });
  const tarballs = readdirSync(folder).filter((name) => name.endsWith('.tgz'));
  writeFileSync(join(project, 'package.json'), '{ "private": true, "type": "module" }');
  const files = tarballs.map((name) => join('..', name));
  await run('npm', ['install', '--offline', '--no-audit', '--no-fund', '--ignore-scripts', ...files], { cwd: project });
  const own = tarballs.find((name) => name.startsWith('bindery-sdk-')) ?? '';
  const { stdout } = await run('tar', ['-tzf', join(folder, own)]);
  return stdout.trim().split('\n');
}

test('all samples of the README are JavaScript', async () => {
  const samples = [...readFileSync(join(root, 'README.md'), 'utf8').matchAll(/```js\n([\s\S]*?)```/g)];
  assert.equal(samples.length, 3);
  for (const [index, sample] of samples.entries()) {
    const file = join(folder, `sample-${index}.mjs`);
    writeFileSync(file, sample[1] ?? '');
    await run(process.execPath, ['--check', file]);
  }
});

test('the package installs from files; the lines of the README and the example work', async (t) => {
  const packed = await install();
  for (const file of ['package/LICENSE', 'package/README.md', 'package/package.json', 'package/dist/index.d.ts']) {
    assert.ok(packed.includes(file), `${file} is missing`);
  }
  assert.ok(packed.every((file) => /^package\/(dist\/|LICENSE$|README\.md$|package\.json$)/.test(file)), packed.join(' '));

  const lines = /```js\n(import \{ Client[\s\S]*?)\n```/.exec(readFileSync(join(root, 'README.md'), 'utf8'))?.[1] ?? '';
  assert.equal(lines.trim().split('\n').filter((line) => line !== '').length, 9);
  writeFileSync(join(project, 'bind.mjs'), lines);

  const authority = new Authority();
  const server = await serve(
    t,
    (router) => {
      router.service(CatalogService, { listTemplates: () => ({ templates: [{ metadata: { name: 'cowboys' } }] }) });
      router.service(BindingService, {
        createBindableResourcesRequest: ({ bindableResourcesRequest: request }, { requestHeader }) => {
          if (requestHeader.get('authorization') !== 'Bearer hunter2') throw failure(Code.Unauthenticated, 'TOKEN_INVALID');
          return {
            bindableResourcesRequest: { metadata: { name: 'cowboys' }, status: { phase: Phase.SUCCEEDED } },
            response: {
              bindingName: request?.metadata?.name ?? '',
              providerNamespace: 'kube-bind-x',
              kubeconfig: { kubeconfig: Buffer.from('apiVersion: v1') },
              requests: [{ name: 'cowboys', resources: [{ group: 'wildwest.dev', resource: 'cowboys' }] }],
            },
          };
        },
      });
    },
    authority.sign('IP:127.0.0.1'),
  );
  writeFileSync(join(project, 'ca.pem'), authority.pem);
  writeFileSync(join(project, 'token'), 'hunter2\n');
  const env = {
    PATH: process.env['PATH'],
    BIND_SERVER: server.address,
    BIND_CA_FILE: 'ca.pem',
    BIND_TOKEN_FILE: 'token',
    BIND_TEMPLATE: 'cowboys',
    BIND_CLUSTER_IDENTITY: 'abc',
  };
  const { stdout, stderr } = await run(process.execPath, ['bind.mjs'], { cwd: project, env });
  const kinds = stdout.trim().split('\n').map((line) => (JSON.parse(line) as { kind: string }).kind);
  assert.deepEqual(kinds, ['ClusterRole', 'ClusterRoleBinding', 'Secret', 'APIServiceBinding']);
  assert.ok(stdout.includes('"kube-bind.io/template":"cowboys"'), stdout);
  assert.equal(stderr, 'may bind: cowboys\n');

  await checkTypes();
  await runExample();
});

/** The types hold in a strict program of a user, and nothing internal is among them. */
async function checkTypes(): Promise<void> {
  writeFileSync(
    join(project, 'user.mts'),
    `import { BinderyError, Client, execToken, manifests, type Bound, type WatchEvent } from '@bindery/sdk';
import { Phase, type Export } from '@bindery/sdk/v1alpha2';

export async function use(address: string): Promise<string> {
  const client = new Client(address, { token: execToken(['kubectl', 'bind', 'token']), timeoutMs: 5_000 });
  const seen: WatchEvent<Export>[] = [];
  for await (const event of client.watchExports({ contract: 'c' })) seen.push(event);
  try {
    const bound = await client.bind('cowboys', 'abc', { name: 'west', prettyName: 'A' });
    if (bound.request.status?.phase !== Phase.SUCCEEDED) throw new Error('never');
    return manifests(bound, { bundle: 'west' }).canonical();
  } catch (error) {
    if (error instanceof BinderyError && error.is('status')) return error.details.fieldViolations.map(({ field }) => field).join();
    throw error;
  }
}
// @ts-expect-error The callers of clients are internal.
export const hidden = new Client({} as object);
// @ts-expect-error The settings of tests are internal.
export const exec = execToken(['a'], { timeoutMs: 5 });
// @ts-expect-error The names of the request are internal.
export const requested = (bound: Bound) => bound.requested;
`,
  );
  const flags = '--strict --noEmit --module nodenext --target es2022 --lib es2023,dom,dom.asynciterable --exactOptionalPropertyTypes --noUncheckedIndexedAccess';
  await compile(project, [...flags.split(' '), 'user.mts']);
}

/** The example builds by its own script with the installed package, runs, and ends with a signal. */
async function runExample(): Promise<void> {
  const example = join(project, 'service');
  cpSync(join(root, 'examples/service'), example, { recursive: true, filter: (path) => !path.endsWith('.test.ts') });
  symlinkSync(join(root, 'node_modules/@types'), join(project, 'node_modules/@types'));
  const { scripts } = JSON.parse(readFileSync(join(example, 'package.json'), 'utf8')) as { scripts: Record<string, string> };
  const [program, ...args] = (scripts['build'] ?? '').split(' ');
  assert.equal(program, 'tsc');
  await compile(example, args);
  const service = spawn(process.execPath, ['build/main.js'], {
    cwd: example,
    env: { BIND_SERVER: 'https://bind.example.com', PORT: '0' },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let text = '';
  for await (const chunk of service.stdout.setEncoding('utf8')) {
    text += chunk;
    if (text.endsWith('bind.example.com\n')) service.kill('SIGTERM');
  }
  assert.match(text, /^listening on http:\S+ for https:\/\/bind\.example\.com\nended\n$/);
}

async function compile(cwd: string, args: readonly string[]): Promise<void> {
  const compiler = createRequire(import.meta.url).resolve('typescript/package.json');
  await run(process.execPath, [join(compiler, '..', 'bin', 'tsc'), ...args], { cwd }).catch((error: unknown) => {
    assert.fail(String((error as { stdout?: string }).stdout ?? error));
  });
}
