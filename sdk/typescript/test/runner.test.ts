// The runner of the contract suite, as the suite talks to it.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { test, type TestContext } from 'node:test';
import { fileURLToPath } from 'node:url';

import type { JsonObject } from '@bufbuild/protobuf';
import { timestampFromDate } from '@bufbuild/protobuf/wkt';
import { Code } from '@connectrpc/connect';

import { BindingService, CatalogService, ContractService, CredentialService, ExportService, ProviderService } from '../src/v1alpha2.js';
import { failure, serve } from './server.js';

const KUBECONFIG = Buffer.from('token: hunter2').toString('base64');

/** Starts the runner; the function that it returns sends a line and waits for what came of it. */
function start(t: TestContext): (line: JsonObject) => Promise<JsonObject> {
  const child = spawn(process.execPath, [fileURLToPath(new URL('./runner.js', import.meta.url))], { stdio: ['pipe', 'pipe', 'inherit'] });
  t.after(() => child.kill());
  const waiting = new Map<unknown, (result: JsonObject) => void>();
  createInterface({ input: child.stdout }).on('line', (line) => {
    const result = JSON.parse(line) as JsonObject;
    waiting.get(result['id'])?.(result);
  });
  return (line) =>
    new Promise((resolve) => {
      const id = String(waiting.size);
      waiting.set(id, resolve);
      child.stdin.write(`${JSON.stringify({ id, ...line })}\n`);
    });
}

test('each method of the API has one of the client, whose result is proto JSON', async (t) => {
  const response = { bindingName: 'west', kubeconfig: { kubeconfig: Buffer.from(KUBECONFIG, 'base64'), credentialId: 'c1' } };
  const { address } = await serve(t, (router) => {
    router.service(ProviderService, {
      getProvider: () => ({ provider: { prettyName: 'MangoDB' } }),
      getCaller: () => ({ caller: { username: 'ann' } }),
    });
    router.service(CatalogService, {
      listTemplates: ({ pageToken }) => ({ templates: [{ metadata: { name: `t${pageToken}` } }], nextPageToken: pageToken === '' ? '2' : '' }),
      getTemplate: ({ name }) => ({ template: { metadata: { name } }, schemas: [{ resource: 'cowboys' }] }),
      listCollections: () => ({ collections: [] }),
      getCollection: ({ name }) => ({ collection: { metadata: { name } } }),
    });
    router.service(BindingService, {
      createBindableResourcesRequest: ({ bindableResourcesRequest }) => ({ ...(bindableResourcesRequest && { bindableResourcesRequest }), response }),
      getBindableResourcesRequest: ({ name, clusterIdentity }) => ({ bindableResourcesRequest: { metadata: { name, uid: clusterIdentity } } }),
      listBindableResourcesRequests: () => ({ bindableResourcesRequests: [{ metadata: { name: 'west' } }] }),
      deleteBindableResourcesRequest: () => ({}),
    });
    router.service(ExportService, {
      listExports: ({ contract }) => ({ exports: [{ metadata: { name: contract } }] }),
      getExport: ({ contract, name }) => ({ export: { metadata: { name, namespace: contract } } }),
      getBoundSchema: ({ knownHash, name }) => (knownHash === 'h' ? { unchanged: true } : { boundSchema: { metadata: { name } } }),
      deleteExport: () => ({}),
    });
    router.service(CredentialService, {
      renewKubeconfig: ({ contract }) => ({
        contract,
        kubeconfig: { ...response.kubeconfig, expireTime: timestampFromDate(new Date('2030-01-01T00:00:00Z')) },
      }),
      revokeCredentials: () => ({}),
    });
    router.service(ContractService, {
      listContracts: () => ({ contracts: [{ name: 'c' }] }),
      getContract: ({ contract }) => ({ contract: { name: contract } }),
      shareContract: ({ contract }) => ({ contract: { name: contract } }),
      revokeContract: () => ({}),
      unbindContract: ({ contract }) => ({ exports: [{ name: contract }] }),
    });
  });
  const ask = start(t);
  const wanted: [string, JsonObject, unknown][] = [
    ['GetProvider', {}, { prettyName: 'MangoDB' }],
    ['GetCaller', {}, { username: 'ann' }],
    ['ListTemplates', {}, [{ metadata: { name: 't' } }, { metadata: { name: 't2' } }]],
    ['GetTemplate', { name: 'a' }, { template: { metadata: { name: 'a' } }, schemas: [{ resource: 'cowboys' }] }],
    ['ListCollections', {}, []],
    ['GetCollection', { name: 'a' }, { metadata: { name: 'a' } }],
    [
      'CreateBindableResourcesRequest',
      { bindableResourcesRequest: { metadata: { name: 'west' } } },
      { bindableResourcesRequest: { metadata: { name: 'west' } }, response: { bindingName: 'west', kubeconfig: { kubeconfig: KUBECONFIG, credentialId: 'c1' } } },
    ],
    ['GetBindableResourcesRequest', { name: 'a', clusterIdentity: 'b' }, { metadata: { name: 'a', uid: 'b' } }],
    ['ListBindableResourcesRequests', {}, [{ metadata: { name: 'west' } }]],
    ['DeleteBindableResourcesRequest', { name: 'a' }, {}],
    ['ListExports', { contract: 'c' }, [{ metadata: { name: 'c' } }]],
    ['GetExport', { contract: 'c', name: 'a' }, { metadata: { name: 'a', namespace: 'c' } }],
    ['GetBoundSchema', { contract: 'c', name: 'a' }, { metadata: { name: 'a' } }],
    ['GetBoundSchema', { contract: 'c', name: 'a', knownHash: 'h' }, { unchanged: true }],
    ['DeleteExport', { contract: 'c', name: 'a' }, {}],
    ['RenewKubeconfig', { contract: 'c' }, { contract: 'c', kubeconfig: { kubeconfig: KUBECONFIG, credentialId: 'c1', expireTime: '2030-01-01T00:00:00Z' } }],
    ['RevokeCredentials', { contract: 'c' }, {}],
    ['ListContracts', {}, [{ name: 'c' }]],
    ['GetContract', { contract: 'c' }, { name: 'c' }],
    ['ShareContract', { contract: 'c' }, { name: 'c' }],
    ['RevokeContract', { contract: 'c' }, {}],
    ['UnbindContract', { contract: 'c' }, [{ name: 'c' }]],
  ];
  const client = { address, allowPlaintext: true, token: { function: 'static-value' } };
  for (const [typed, request, ok] of wanted) {
    const result = await ask({ client, action: { typed, request } });
    assert.deepEqual(result['ok'], ok, `${typed}: ${JSON.stringify(result)}`);
    const shown = JSON.stringify(result['shown']);
    assert.ok(!shown.includes('hunter2') && !shown.includes(KUBECONFIG), shown);
  }
});

test('actions at the same moment have results of their own', async (t) => {
  let count = 0;
  const { address } = await serve(t, (router) => {
    router.service(ProviderService, {
      getCaller: () => {
        count += 1;
        if (count === 2) throw failure(Code.PermissionDenied, 'CONTRACT_DENIED');
        return { caller: { username: 'ann' } };
      },
    });
  });
  const ask = start(t);
  const result = await ask({ client: { address, allowPlaintext: true }, action: { call: 'GetCaller' }, concurrent: 3 });
  const ok = result['ok'] as JsonObject[];
  assert.equal(ok.filter((one) => 'ok' in one).length, 2);
  assert.deepEqual(ok.filter((one) => 'error' in one).map(({ error }) => (error as JsonObject)['reason']), ['CONTRACT_DENIED']);
});

test('settings and token sources that fail are told, and show no token', async (t) => {
  const ask = start(t);
  const address = 'http://127.0.0.1:1';
  const call = (client: JsonObject) => ask({ client: { address, allowPlaintext: true, ...client }, action: { call: 'GetCaller' } });
  const wanted: [JsonObject, string, string][] = [
    [{ timeoutMs: 0 }, 'config', 'TimeoutInvalid'],
    [{ caFile: '/nonexistent' }, 'config', 'CaInvalid'],
    [{ token: { function: 'throws' } }, 'token', 'TokenSourceFailed'],
    [{ token: { function: 'slow' }, timeoutMs: 100 }, 'token', 'TokenSourceFailed'],
    [{ token: { exec: ['/bin/sh', '-c', 'sleep 5'], timeoutMs: 100 } }, 'token', 'TokenSourceFailed'],
  ];
  for (const [client, kind, reason] of wanted) {
    const result = await call(client);
    const error = result['error'] as JsonObject;
    assert.deepEqual([error['kind'], error['reason']], [kind, reason], JSON.stringify(result));
    assert.ok(!JSON.stringify(result).includes('hunter2'), JSON.stringify(result));
  }
});
