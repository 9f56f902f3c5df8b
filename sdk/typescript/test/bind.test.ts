// Binding: waiting, progress, and what is shown of the result.

import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { inspect } from 'node:util';

import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { timestampFromDate } from '@bufbuild/protobuf/wkt';

import { manifests, type Client } from '../src/index.js';
import {
  BindingService,
  CreateBindableResourcesRequestResponseSchema,
  CredentialService,
  Phase,
  type BindingResourceResponse,
  type CreateBindableResourcesRequestRequest,
} from '../src/v1alpha2.js';
import { failing } from './failing.js';
import { clientOf, serve } from './server.js';

type Response = MessageInitShape<typeof CreateBindableResourcesRequestResponseSchema>;

const KUBECONFIG = 'token: hunter2-is-a-secret';

const pending: Response = { bindableResourcesRequest: { metadata: { name: 'west' }, status: { phase: Phase.PENDING } } };
const succeeded: Response = {
  bindableResourcesRequest: { metadata: { name: 'west' }, status: { phase: Phase.SUCCEEDED } },
  response: {
    bindingName: 'west',
    providerNamespace: 'kube-bind-x',
    kubeconfig: { kubeconfig: Buffer.from(KUBECONFIG), credentialId: 'anchor-1' },
    requests: [{ name: 'west', resources: [{ group: 'wildwest.dev', resource: 'cowboys' }] }],
  },
};

/** A client of a server that gives these responses, the last one for ever, and the requests that it got. */
async function responding(t: TestContext, ...responses: Response[]): Promise<{ client: Client; asked: string[] }> {
  const asked: string[] = [];
  const server = await serve(t, (router) => {
    router.service(BindingService, {
      createBindableResourcesRequest: ({ bindableResourcesRequest: request, wait, validateOnly }) => {
        const { templateRef, clusterIdentity } = request?.spec ?? {};
        asked.push(`${request?.metadata?.name} ${templateRef?.name} ${clusterIdentity?.identity} ${wait?.seconds ?? '-'} ${validateOnly}`);
        const response = responses.length > 1 ? responses.shift() : responses[0];
        return create(CreateBindableResourcesRequestResponseSchema, response);
      },
    });
    router.service(CredentialService, {
      renewKubeconfig: () => ({
        contract: 'c',
        kubeconfig: { kubeconfig: Buffer.from(KUBECONFIG), expireTime: timestampFromDate(new Date('2030-01-01T00:00:00Z')) },
      }),
    });
  });
  return { client: clientOf(t, server), asked };
}

test('a bind waits and reports progress', async (t) => {
  const { client, asked } = await responding(t, pending, succeeded);
  const seen: string[] = [];
  const bound = await client.bind('cowboys', 'abc', { name: 'west', waitMs: 5_000, progress: ({ metadata }) => seen.push(metadata?.name ?? '') });
  assert.deepEqual(seen, ['west']);
  assert.deepEqual(asked, ['west cowboys abc 5 false', 'west cowboys abc 5 false']);
  assert.equal(bound.kubeconfig?.reveal(), KUBECONFIG);
  assert.equal([...manifests(bound)].at(-1)?.kind, 'APIServiceBinding');
});

test('a bind ends as it must', async (t) => {
  const ended = async (response: Response, options = {}) => {
    const { client } = await responding(t, response);
    return failing(client.bind('cowboys', 'abc', { prettyName: 'A', ...options }));
  };
  assert.equal((await ended(pending, { patienceMs: 0 })).kind, 'pending');
  assert.equal((await ended({ bindableResourcesRequest: { status: { phase: Phase.SUCCEEDED } } })).kind, 'protocol');
  assert.equal((await ended(pending, { validateOnly: true })).kind, 'protocol');
  assert.equal((await ended({})).kind, 'protocol');
  const conditions = [
    { type: 'Known', status: 'True', reason: 'Good', message: 'fine' },
    { type: 'Ready', status: 'False', reason: 'SchemaUnsupported', message: 'no \u001b schema' },
  ];
  const failed = await ended({ bindableResourcesRequest: { metadata: { name: 'west' }, status: { phase: Phase.FAILED, conditions } } });
  assert.deepEqual([failed.kind, failed.reason], ['requestFailed', 'SchemaUnsupported']);
  assert.equal(failed.message, 'request west failed: no   schema (SchemaUnsupported)');
});

test('a bind that waits is cancelled', async (t) => {
  const { client } = await responding(t, pending);
  const controller = new AbortController();
  const progress = () => controller.abort();
  const error = await failing(client.bind('cowboys', 'abc', { signal: controller.signal, progress }));
  assert.equal(error.kind, 'cancelled');
});

test('a bind sends what it is told, and waits no longer than its caller', async (t) => {
  const requests: CreateBindableResourcesRequestRequest[] = [];
  const server = await serve(t, (router) => {
    router.service(BindingService, {
      createBindableResourcesRequest: (request) => {
        requests.push(request);
        return create(CreateBindableResourcesRequestResponseSchema, requests.length % 2 === 1 ? pending : succeeded);
      },
    });
  });
  const client = clientOf(t, server);
  await client.bind('cowboys', 'abc', { prettyName: 'A', ttlAfterFinishedMs: 1_500, waitMs: 60_000, patienceMs: 9_000 });
  const [first, second] = requests;
  const spec = first?.bindableResourcesRequest?.spec;
  assert.deepEqual([spec?.clusterIdentity?.prettyName, spec?.ttlAfterFinished?.seconds, spec?.ttlAfterFinished?.nanos], ['A', 1n, 500_000_000]);
  assert.equal(first?.wait?.seconds, 9n);
  assert.ok(second?.wait && second.wait.seconds < 9n && second.wait.seconds >= 5n, String(second?.wait?.seconds));
  await client.bindByRequest({ bindableResourcesRequest: { metadata: { name: 'west' } } });
  assert.equal(requests[2]?.wait, undefined, 'the wait of the server is its own within five minutes');
  await client.bind('cowboys', 'abc', { ttlAfterFinishedMs: Infinity });
  assert.equal(requests.at(-1)?.bindableResourcesRequest?.spec?.ttlAfterFinished?.seconds, 315_576_000_000n);
  for (const options of [{ patienceMs: -1 }, { ttlAfterFinishedMs: -1 }, { waitMs: Number.NaN }, { timeoutMs: 0 }]) {
    await assert.rejects(client.bind('cowboys', 'abc', options), { name: 'ConfigError', reason: 'TimeoutInvalid' });
  }
});

test('the manifests of a bind are for the request, and name its template', async (t) => {
  const { client } = await responding(t, succeeded);
  const bound = await client.bind('cowboys', 'abc', { name: 'west' });
  const binding = [...manifests(bound)].at(-1)?.json();
  assert.equal(binding?.metadata.annotations?.['kube-bind.io/template'], 'cowboys');
  const same = manifests({ ...bound.response, kubeconfig: { ...bound.response.kubeconfig, kubeconfig: Buffer.from(KUBECONFIG) } } as BindingResourceResponse, { name: 'west', template: 'cowboys' });
  assert.equal(manifests(bound).canonical(), same.canonical());
  // The server responds with another binding than the one that was asked for.
  const other = await client.bind('cowboys', 'abc', { name: 'east' });
  assert.throws(() => manifests(other), { name: 'RefusedError', reason: 'OtherBinding' });
  const whole = await client.bindByRequest({ bindableResourcesRequest: { spec: { templateRef: { name: 'cowboys' } } } });
  assert.equal(manifests(whole).canonical(), same.canonical(), 'a request without a name takes that of the response');
});

test('one call to bind returns what it has brought', async (t) => {
  const { client } = await responding(t, pending, succeeded);
  const request = { bindableResourcesRequest: { metadata: { name: 'west' } } };
  assert.equal((await client.createBindableResourcesRequest(request)).bound, undefined);
  assert.equal((await client.createBindableResourcesRequest(request)).bound?.kubeconfig?.reveal(), KUBECONFIG);
});

test('no result shows its kubeconfig', async (t) => {
  const { client } = await responding(t, succeeded);
  const bound = await client.bind('cowboys', 'abc', { name: 'west' });
  const renewed = await client.renewKubeconfig();
  const raw = await client.call(BindingService.method.createBindableResourcesRequest, {});
  assert.equal(renewed.kubeconfig.reveal(), KUBECONFIG);
  assert.equal(renewed.expireTime?.toISOString(), '2030-01-01T00:00:00.000Z');
  assert.equal(Buffer.from(raw.response?.kubeconfig?.kubeconfig ?? []).toString(), KUBECONFIG);
  const codes = [...Buffer.from(KUBECONFIG.slice(0, 8))];
  const secrets = ['hunter2', Buffer.from(KUBECONFIG).toString('base64'), Buffer.from(KUBECONFIG.slice(0, 8)).toString('hex').replace(/(..)(?=.)/g, '$1 '), codes.join(','), codes.join(', ')];
  const values = [bound, bound.response, bound.kubeconfig, renewed, renewed.response, renewed.kubeconfig, raw, raw.response?.kubeconfig];
  for (const value of values) {
    const shown = [2, null].flatMap((depth) => [inspect(value, { depth }), inspect(value, { depth, customInspect: false })]);
    for (const text of [...shown, JSON.stringify(value, (_, item: unknown) => (typeof item === 'bigint' ? String(item) : item)), `${String(value)}`]) {
      for (const secret of secrets) assert.ok(!text.includes(secret), text);
    }
  }
  assert.match(inspect(renewed), /26 bytes hidden/);
  assert.match(JSON.stringify({ bound }), /kube-bind-x/);
});
