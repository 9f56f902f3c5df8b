// Binding: waiting, progress, and what is shown of the result.

import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { inspect } from 'node:util';

import { create, type MessageInitShape } from '@bufbuild/protobuf';

import { BinderyError, manifests, type Client } from '../src/index.js';
import { BindingService, CreateBindableResourcesRequestResponseSchema, CredentialService, Phase } from '../src/v1alpha2.js';
import { failing } from './failing.js';
import { clientOf, serve } from './server.js';

type Answer = MessageInitShape<typeof CreateBindableResourcesRequestResponseSchema>;

const KUBECONFIG = 'token: hunter2-is-a-secret';

const pending: Answer = { bindableResourcesRequest: { metadata: { name: 'west' }, status: { phase: Phase.PENDING } } };
const succeeded: Answer = {
  bindableResourcesRequest: { metadata: { name: 'west' }, status: { phase: Phase.SUCCEEDED } },
  response: {
    bindingName: 'west',
    providerNamespace: 'kube-bind-x',
    kubeconfig: { kubeconfig: Buffer.from(KUBECONFIG), credentialId: 'anchor-1' },
    requests: [{ name: 'west', resources: [{ group: 'wildwest.dev', resource: 'cowboys' }] }],
  },
};

/** A client of a server that gives these answers, the last one for ever, and the requests that it got. */
async function answering(t: TestContext, ...answers: Answer[]): Promise<{ client: Client; asked: string[] }> {
  const asked: string[] = [];
  const server = await serve(t, (router) => {
    router.service(BindingService, {
      createBindableResourcesRequest: ({ bindableResourcesRequest: request, wait, validateOnly }) => {
        const { templateRef, clusterIdentity } = request?.spec ?? {};
        asked.push(`${request?.metadata?.name} ${templateRef?.name} ${clusterIdentity?.identity} ${wait?.seconds ?? '-'} ${validateOnly}`);
        const answer = answers.length > 1 ? answers.shift() : answers[0];
        return create(CreateBindableResourcesRequestResponseSchema, answer);
      },
    });
    router.service(CredentialService, {
      renewKubeconfig: () => ({ contract: 'c', kubeconfig: { kubeconfig: Buffer.from(KUBECONFIG) } }),
    });
  });
  return { client: clientOf(t, server), asked };
}

test('a bind waits and reports progress', async (t) => {
  const { client, asked } = await answering(t, pending, succeeded);
  const seen: string[] = [];
  const bound = await client.bind('cowboys', 'abc', { name: 'west', waitMs: 5_000, progress: ({ metadata }) => seen.push(metadata?.name ?? '') });
  assert.deepEqual(seen, ['west']);
  assert.deepEqual(asked, ['west cowboys abc 5 false', 'west cowboys abc 5 false']);
  assert.equal(bound.kubeconfig, KUBECONFIG);
  assert.equal([...manifests(bound, { name: 'west' })].at(-1)?.kind, 'APIServiceBinding');
});

test('a bind ends as it must', async (t) => {
  const ended = async (answer: Answer, options = {}) => {
    const { client } = await answering(t, answer);
    return failing(client.bind('cowboys', { identity: 'abc', prettyName: 'A' }, options));
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
  const { client } = await answering(t, pending);
  const controller = new AbortController();
  const progress = () => controller.abort();
  const error = await failing(client.bind('cowboys', 'abc', { signal: controller.signal, progress }));
  assert.equal(error.kind, 'cancelled');
});

test('no answer shows its kubeconfig', async (t) => {
  const { client } = await answering(t, succeeded);
  const bound = await client.bind('cowboys', 'abc', { name: 'west' });
  const renewed = await client.renewKubeconfig();
  const codes = [...Buffer.from(KUBECONFIG.slice(0, 8))];
  const secrets = ['hunter2', Buffer.from(KUBECONFIG).toString('base64'), Buffer.from(KUBECONFIG.slice(0, 8)).toString('hex').replace(/(..)(?=.)/g, '$1 '), codes.join(','), codes.join(', ')];
  for (const value of [bound, bound.response, bound.response.kubeconfig, renewed]) {
    for (const depth of [2, null]) {
      const shown = inspect(value, { depth });
      for (const secret of secrets) assert.ok(!shown.includes(secret), shown);
    }
  }
  assert.ok(!JSON.stringify(bound).includes('hunter2'));
  assert.ok(!JSON.stringify(bound.response.kubeconfig).includes(codes.join(',')));
  assert.match(inspect(bound.response, { depth: null }), /26 bytes redacted/);
  assert.ok(!(bound instanceof BinderyError));
});
