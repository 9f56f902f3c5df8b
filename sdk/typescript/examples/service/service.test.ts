// The service in front of a backend in the process of the test.

import assert from 'node:assert/strict';
import type { AddressInfo } from 'node:net';
import { test, type TestContext } from 'node:test';

import { create } from '@bufbuild/protobuf';
import { Code, type ConnectRouter, type HandlerContext } from '@connectrpc/connect';
import { Client } from '@bindery/sdk';
import {
  BindableResourcesRequestStatusSchema,
  BindingService,
  CatalogService,
  CreateBindableResourcesRequestResponseSchema,
  Phase,
  WatchBindableResourcesRequestsResponseSchema,
  type BindableResourcesRequest,
} from '@bindery/sdk/v1alpha2';

import { failure, serve, until } from '../../test/server.js';
import { STREAMS_PER_CALLER_MAX } from './limits.js';
import { makeService } from './service.js';

/** A backend with one user, ann, and the requests that she made. */
class Backend {
  readonly requests = new Map<string, BindableResourcesRequest>();
  /** Resume tokens that watches began with. */
  readonly resumed: string[] = [];
  #changed: (() => void)[] = [];

  /** Finishes all requests, and tells the watches. */
  finish(phase: Phase): void {
    for (const request of this.requests.values()) {
      request.status = create(BindableResourcesRequestStatusSchema, { phase });
    }
    this.#changed.splice(0).forEach((wake) => wake());
  }

  readonly routes = (router: ConnectRouter): void => {
    router.service(CatalogService, {
      listTemplates: (_, context) => {
        authenticate(context);
        return { templates: [{ metadata: { name: 'cowboys' }, spec: { description: 'the west' } }] };
      },
    });
    router.service(BindingService, {
      createBindableResourcesRequest: (asked, context) => {
        authenticate(context);
        return this.#create(asked.bindableResourcesRequest as BindableResourcesRequest);
      },
      getBindableResourcesRequest: ({ name }, context) => {
        authenticate(context);
        const request = this.requests.get(name);
        if (request === undefined) throw failure(Code.NotFound, 'REQUEST_NOT_FOUND');
        return { bindableResourcesRequest: request };
      },
      watchBindableResourcesRequests: (asked, context) => {
        authenticate(context);
        this.resumed.push(asked.resumeToken);
        return this.#watch(asked.names[0] ?? '', asked.resumeToken, context.signal);
      },
    });
  };

  #create(asked: BindableResourcesRequest) {
    const name = asked.metadata?.name ?? '';
    if (asked.spec?.templateRef?.name !== 'cowboys') throw failure(Code.PermissionDenied, 'TEMPLATE_BIND_DENIED');
    asked.status = create(BindableResourcesRequestStatusSchema, { phase: Phase.PENDING });
    const request = this.requests.get(name) ?? asked;
    this.requests.set(name, request);
    const response = {
      bindingName: name,
      providerNamespace: 'kube-bind-x',
      kubeconfig: { kubeconfig: Buffer.from('token: hunter2') },
      requests: [{ name, resources: [{ group: 'wildwest.dev', resource: 'cowboys' }] }],
    };
    const isDone = request.status?.phase === Phase.SUCCEEDED;
    return create(CreateBindableResourcesRequestResponseSchema, { bindableResourcesRequest: request, ...(isDone && { response }) });
  }

  async *#watch(name: string, token: string, signal: AbortSignal) {
    const message = (init: Parameters<typeof create<typeof WatchBindableResourcesRequestsResponseSchema>>[1]) =>
      create(WatchBindableResourcesRequestsResponseSchema, init);
    const applied = (resumeToken: string) => {
      const request = this.requests.get(name);
      return message({ ...(request && { event: { case: 'applied', value: request } }), resumeToken });
    };
    if (token === '') {
      yield message({ event: { case: 'snapshotBegin', value: {} } });
      yield applied('');
      yield message({ event: { case: 'snapshotComplete', value: { objectCount: 1 } }, resumeToken: 'r1' });
    } else {
      // The handlers of Connect send headers with the first message.
      yield message({ event: { case: 'heartbeat', value: {} } });
    }
    await new Promise<void>((resolve) => {
      this.#changed.push(resolve);
      signal.addEventListener('abort', () => resolve());
    });
    if (!signal.aborted) yield applied('r2');
  }
}

function authenticate({ requestHeader }: HandlerContext): void {
  if (requestHeader.get('authorization') !== 'Bearer ann') throw failure(Code.Unauthenticated, 'TOKEN_INVALID');
}

async function start(t: TestContext) {
  const backend = new Backend();
  const { address, connections } = await serve(t, backend.routes);
  const service = makeService(new Client(address, { allowPlaintext: true }));
  await new Promise<void>((resolve) => {
    service.server.listen(0, '127.0.0.1', resolve);
  });
  t.after(() => service.end());
  const origin = `http://127.0.0.1:${(service.server.address() as AddressInfo).port}`;
  const call = (path: string, init: RequestInit & { token?: string } = {}) =>
    fetch(`${origin}${path}`, { ...init, headers: { authorization: `Bearer ${init.token ?? 'ann'}`, ...init.headers } });
  const bind = (body: unknown) => call('/requests', { method: 'POST', body: typeof body === 'string' ? body : JSON.stringify(body) });
  return { backend, service, call, bind, connections };
}

/** Reads events of a stream until it ends, or has so many. */
async function* events(response: Response): AsyncGenerator<{ event: string; id: string; data: { phase?: string } }> {
  let text = '';
  for await (const chunk of response.body as unknown as AsyncIterable<Uint8Array>) {
    text += Buffer.from(chunk).toString();
    for (let end = text.indexOf('\n\n'); end >= 0; end = text.indexOf('\n\n')) {
      const lines = new Map(text.slice(0, end).split('\n').map((line) => line.split(': ', 2) as [string, string]));
      text = text.slice(end + 2);
      const data = lines.get('data');
      if (data !== undefined) yield { event: lines.get('event') ?? '', id: lines.get('id') ?? '', data: JSON.parse(data.replace(/^.*?\{/, '{')) };
    }
  }
}

test('templates are those of the caller', async (t) => {
  const { call, connections } = await start(t);
  const answer = await call('/templates');
  assert.deepEqual(await answer.json(), { templates: [{ name: 'cowboys', description: 'the west', isReady: false }] });
  assert.equal(answer.headers.get('cache-control'), 'no-store');
  const refused = await call('/templates', { token: 'bob' });
  assert.deepEqual([refused.status, ((await refused.json()) as { reason: string }).reason], [401, 'TOKEN_INVALID']);
  assert.equal((await call('/templates', { headers: { authorization: 'Basic eA==' } })).status, 401);
  assert.equal(connections(), 1, 'all callers share a connection');
});

test('a bind is begun, followed and installed', async (t) => {
  const { backend, call, bind } = await start(t);
  const begun = await bind({ template: 'cowboys', cluster: 'a/b', name: 'west' });
  const paths = (await begun.json()) as { events: string; manifests: string; phase: string };
  assert.deepEqual([begun.status, paths.phase, paths.events], [202, 'PENDING', '/requests/a%2Fb/west/events']);
  assert.equal((await call(paths.manifests)).status, 409, 'it is still pending');

  const stream = await call(paths.events);
  assert.equal(stream.headers.get('content-type'), 'text/event-stream');
  const found = [];
  for await (const { event, id, data } of events(stream)) {
    found.push([event, id, data.phase]);
    if (found.length === 1) backend.finish(Phase.SUCCEEDED);
  }
  assert.deepEqual(found, [['progress', '', 'PENDING'], ['progress', 'r1', 'SUCCEEDED']]);

  const made = await call(paths.manifests);
  const kinds = (await made.text()).trim().split('\n').map((line) => (JSON.parse(line) as { kind: string }).kind);
  assert.deepEqual([made.status, kinds], [200, ['ClusterRole', 'ClusterRoleBinding', 'Secret', 'APIServiceBinding']]);
});

test('a stream that comes back goes on where it was', async (t) => {
  const { backend, call, bind } = await start(t);
  await bind({ template: 'cowboys', cluster: 'a' });
  const stream = await call('/requests/a/cowboys/events', { headers: { 'last-event-id': 'r1' } });
  await until(() => backend.resumed.length === 1, 'the watch');
  backend.finish(Phase.FAILED);
  const found = [];
  for await (const { data } of events(stream)) found.push(data.phase);
  assert.deepEqual([found, backend.resumed], [['FAILED'], ['r1']]);
});

test('wrong requests are told so', async (t) => {
  const { call, bind } = await start(t);
  const check = async (answer: Promise<Response>, status: number, reason: string) => {
    const got = await answer;
    assert.deepEqual([got.status, ((await got.json()) as { reason: string }).reason], [status, reason]);
  };
  await check(bind('no json'), 400, 'BodyInvalid');
  await check(bind('null'), 400, 'BodyInvalid');
  await check(bind({ template: 'cowboys' }), 400, 'BodyInvalid');
  await check(bind({ template: 'cowboys', cluster: 'a', name: 7 }), 400, 'BodyInvalid');
  await check(bind({ template: 'x'.repeat(20_000), cluster: 'a' }), 413, 'BodyTooLarge');
  await check(bind({ template: 'sheriffs', cluster: 'a' }), 403, 'TEMPLATE_BIND_DENIED');
  await check(call('/nothing'), 404, 'NotFound');
  await check(call('/requests/a/west/manifests'), 404, 'REQUEST_NOT_FOUND');
  await check(call('/requests/a/%E0%A4%A/manifests'), 400, 'PathInvalid');
  await check(call('/requests/a/b/events', { token: 'bob' }), 401, 'TOKEN_INVALID');
  assert.deepEqual(await (await call('/healthz')).json(), { status: 'ok' });
});

test('streams are limited, and end with their readers and with the service', async (t) => {
  const { backend, service, call, bind } = await start(t);
  await bind({ template: 'cowboys', cluster: 'a' });
  const open = () => call('/requests/a/cowboys/events');
  const streams = await Promise.all(Array.from({ length: STREAMS_PER_CALLER_MAX }, open));
  const refused = await open();
  assert.deepEqual([refused.status, refused.headers.get('retry-after')], [429, '5']);
  await streams[0]?.body?.cancel();
  let again = await open();
  for (let tries = 0; again.status === 429 && tries < 100; tries += 1) {
    await refused.body?.cancel();
    await new Promise((resolve) => setTimeout(resolve, 20));
    again = await open();
  }
  assert.equal(again.status, 200, 'a stream whose reader has gone is free');
  assert.ok(backend.resumed.length > STREAMS_PER_CALLER_MAX);

  const rest = Promise.all([...streams.slice(1), again].map((stream) => stream.text()));
  const endedAt = performance.now();
  await service.end();
  assert.ok((await rest).every((text) => text.includes('"phase":"PENDING"')));
  assert.ok(performance.now() - endedAt < 5_000, 'streams do not outlast the service');
  await assert.rejects(call('/healthz'));
});
