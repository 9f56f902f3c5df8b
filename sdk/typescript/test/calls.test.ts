// Unary calls: retries, tokens, pages, errors, deadlines, cancellation.

import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';

import type { MessageInitShape } from '@bufbuild/protobuf';
import { Code, ConnectError, type ConnectRouter } from '@connectrpc/connect';

import { LoggedOutError, MESSAGE_SEND_MAX, type Client } from '../src/index.js';
import {
  CatalogService,
  CredentialService,
  ExportService,
  GetExportResponseSchema,
  ProviderService,
  type ListTemplatesResponseSchema,
} from '../src/v1alpha2.js';
import { failing } from './failing.js';
import {
  BadRequestSchema,
  GRPC_HEADERS,
  PreconditionFailureSchema,
  RequestInfoSchema,
  answer,
  clientOf,
  failure,
  framed,
  retryAfter,
  serve,
  serveScript,
  until,
} from './server.js';

/** Routes whose calls fail with these errors, one after the other, and succeed then. */
function failingWith(errors: readonly ConnectError[]): (router: ConnectRouter) => void {
  const left = [...errors];
  const next = () => {
    const error = left.shift();
    if (error !== undefined) throw error;
  };
  return (router) => {
    router.service(ExportService, {
      getExport: () => {
        next();
        return { export: {} };
      },
    });
    router.service(CredentialService, {
      renewKubeconfig: () => {
        next();
        return { contract: 'c', kubeconfig: {} };
      },
    });
  };
}

/** What becomes of an idempotent call and of a renewal if the first attempt fails so. */
async function attempts(t: TestContext, first: ConnectError): Promise<[number, number]> {
  const calls = [(client: Client) => client.getExport('', 'cowboys'), (client: Client) => client.renewKubeconfig('')];
  const counts = [];
  for (const call of calls) {
    const server = await serve(t, failingWith([first]));
    const result = await call(clientOf(t, server)).then(() => true, () => false);
    assert.equal(result, server.seen.length === 2, first.message);
    counts.push(server.seen.length);
  }
  return counts as [number, number];
}

test('calls are tried again by code', async (t) => {
  assert.deepEqual(await attempts(t, failure(Code.Unavailable, 'CACHE_NOT_READY', [retryAfter(20)])), [2, 2]);
  assert.deepEqual(await attempts(t, new ConnectError('', Code.Unavailable)), [2, 2]);
  assert.deepEqual(await attempts(t, new ConnectError('', Code.DeadlineExceeded)), [2, 1]);
  assert.deepEqual(await attempts(t, failure(Code.ResourceExhausted, 'RATE_LIMITED', [retryAfter(20)])), [2, 1]);
  assert.deepEqual(await attempts(t, failure(Code.ResourceExhausted, 'RATE_LIMITED')), [1, 1]);
  assert.deepEqual(await attempts(t, new ConnectError('', Code.Internal)), [1, 1]);
  assert.deepEqual(await attempts(t, failure(Code.PermissionDenied, 'CONTRACT_DENIED')), [1, 1]);
});

test('a broken connection is tried again where that is harmless', async (t) => {
  const good = answer([framed(GetExportResponseSchema, { export: {} })]);
  for (const breaking of [
    (stream: import('node:http2').ServerHttp2Stream) => stream.session?.destroy(),
    (stream: import('node:http2').ServerHttp2Stream) => stream.close(2),
  ]) {
    const server = await serveScript(t, [breaking, good]);
    await clientOf(t, server).getExport('', 'cowboys');
    assert.equal(server.seen.length, 2);
    const other = await serveScript(t, [breaking, good]);
    const error = await failing(clientOf(t, other).renewKubeconfig(''));
    assert.deepEqual([error.reason, other.seen.length], ['ConnectionBroken', 1]);
  }
});

test('a call waits as long as the server asks', async (t) => {
  const server = await serve(t, failingWith([failure(Code.Unavailable, 'OVERLOADED', [retryAfter(300)])]));
  await clientOf(t, server).getExport('', 'cowboys');
  const [first, second] = server.seen;
  assert.ok(first && second && second.at - first.at >= 290);
  assert.equal(first.headers['x-request-id'], second.headers['x-request-id']);
  assert.match(String(first.headers['x-request-id']), /^[0-9a-f]{32}$/);
  assert.match(String(first.headers['user-agent']), /^bindery-sdk-typescript\/\d/);
});

test('attempts end', async (t) => {
  const server = await serve(t, failingWith(Array.from({ length: 9 }, () => new ConnectError('', Code.Unavailable))));
  const error = await failing(clientOf(t, server).getExport('', 'cowboys'));
  assert.deepEqual([error.code, server.seen.length], ['UNAVAILABLE', 5]);
});

test('the deadline holds over all attempts, and the server is told', async (t) => {
  const server = await serveScript(t, [() => undefined]);
  const start = performance.now();
  const client = clientOf(t, server, { timeoutMs: 400, attemptTimeoutMs: 150 });
  const error = await failing(client.getExport('', 'cowboys'));
  const took = performance.now() - start;
  assert.deepEqual([error.code, error.reason], ['DEADLINE_EXCEEDED', 'DEADLINE']);
  assert.ok(took < 900, `${took} ms`);
  assert.ok(server.seen.length >= 2, `${server.seen.length} attempts`);
  assert.match(String(server.seen[0]?.headers['grpc-timeout']), /^1[0-5]\dm$/);
});

test('a retry that would come too late is not made', async (t) => {
  const server = await serve(t, failingWith([failure(Code.Unavailable, 'OVERLOADED', [retryAfter(300_000)])]));
  const error = await failing(clientOf(t, server).getExport('', 'cowboys'));
  assert.deepEqual([error.reason, server.seen.length], ['OVERLOADED', 1]);
  assert.ok(error.is('status') && error.details.retryAfterMs === 300_000);
});

test('calls that wait have longer', async (t) => {
  const server = await serve(t, (router) => {
    router.service(ExportService, { deleteExport: () => ({}) });
  });
  const client = clientOf(t, server);
  await client.deleteExport({ name: 'a', uid: 'u', wait: { seconds: 60n } });
  await client.deleteExport({ name: 'a', uid: 'u' });
  const told = server.seen.map(({ headers }) => Number.parseInt(String(headers['grpc-timeout']), 10));
  assert.ok(told[0] && told[0] > 69_000 && told[0] <= 70_000, String(told));
  assert.ok(told[1] && told[1] > 39_000 && told[1] <= 40_000, String(told));
});

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
    [() => Promise.reject(new LoggedOutError('nobody is logged in')), 'LoggedOut'],
  ] as const;
  for (const [token, reason] of reasons) {
    const error = await failing(clientOf(t, server, { token }).getExport('', 'cowboys'));
    assert.deepEqual([error.kind, error.reason], ['token', reason]);
  }
  assert.equal(server.seen.length, 0);
});

test('a token source that hangs ends with the deadline', async (t) => {
  const server = await serve(t, failingWith([]));
  const client = clientOf(t, server, { token: () => new Promise(() => undefined), timeoutMs: 100 });
  const error = await failing(client.getExport('', 'cowboys'));
  assert.equal(error.reason, 'DEADLINE');
  const controller = new AbortController();
  const pending = failing(client.getExport('', 'cowboys', { signal: controller.signal, timeoutMs: 60_000 }));
  controller.abort();
  assert.equal((await pending).kind, 'cancelled');
});

test('lists go on over empty pages', async (t) => {
  const page = (names: string[], nextPageToken: string): MessageInitShape<typeof ListTemplatesResponseSchema> => ({
    templates: names.map((name) => ({ metadata: { name } })),
    nextPageToken,
  });
  const asked: string[] = [];
  const pages = [page(['a'], '1'), page([], '2'), page(['b', 'c'], '')];
  const server = await serve(t, (router) => {
    router.service(CatalogService, {
      listTemplates: ({ collection, pageToken }) => {
        asked.push(`${collection} ${pageToken}`);
        return pages[Number(pageToken)] ?? {};
      },
    });
  });
  const list = clientOf(t, server).listTemplates({ collection: 'wild' });
  const names = [];
  for await (const template of list) names.push(template.metadata?.name);
  assert.deepEqual(names, ['a', 'b', 'c']);
  assert.deepEqual(asked, ['wild ', 'wild 1', 'wild 2']);
  assert.equal((await list.all()).length, 3);
});

test('a list that names itself is an error', async (t) => {
  const server = await serve(t, (router) => {
    router.service(CatalogService, { listTemplates: () => ({ nextPageToken: 'again' }) });
  });
  const error = await failing(clientOf(t, server).listTemplates().all());
  assert.equal(error.reason, 'ProtocolViolation');
  assert.match(error.message, /names itself/);
  assert.equal(server.seen.length, 2);
});

test('details of an error arrive', async (t) => {
  const details = [
    { desc: BadRequestSchema, value: { fieldViolations: [{ field: 'metadata.name', description: 'must not be empty' }] } },
    { desc: PreconditionFailureSchema, value: { violations: [{ type: 'TEMPLATE', subject: 'cowboys', description: 'is not ready' }] } },
    { desc: RequestInfoSchema, value: { requestId: 'got-1' } },
    retryAfter(1500),
  ];
  const server = await serve(t, failingWith([failure(Code.InvalidArgument, 'FIELD_INVALID', details)]));
  const error = await failing(clientOf(t, server).getExport('', ''));
  assert.ok(error.is('status'));
  assert.equal(error.details.code, 'INVALID_ARGUMENT');
  assert.equal(error.details.reason, 'FIELD_INVALID');
  assert.deepEqual(error.details.fieldViolations, [{ field: 'metadata.name', description: 'must not be empty' }]);
  assert.equal(error.details.preconditionViolations[0]?.subject, 'cowboys');
  assert.deepEqual([error.requestId, error.details.retryAfterMs], ['got-1', 1500]);
  assert.equal(
    error.message,
    'it is FIELD_INVALID; metadata.name: must not be empty; cowboys: is not ready (FIELD_INVALID, request got-1)',
  );
});

test('a newer reason is kept, a reason of others is not, and nothing rewrites a terminal', async (t) => {
  const foreign = new ConnectError('all \u001b[2Jgood', Code.Internal);
  const server = await serve(t, failingWith([failure(Code.Aborted, 'SOMETHING_NEWER'), foreign]));
  const client = clientOf(t, server);
  let error = await failing(client.getExport('', 'a'));
  assert.deepEqual([error.code, error.reason], ['ABORTED', 'SOMETHING_NEWER']);
  error = await failing(client.getExport('', 'a'));
  assert.deepEqual([error.code, error.reason], ['INTERNAL', 'INTERNAL']);
  assert.match(error.message, /^all  \[2Jgood \(INTERNAL, request [0-9a-f]{32}\)$/);
});

test('what breaks the protocol is an error of its own', async (t) => {
  const check = async (script: Parameters<typeof serveScript>[1][number], kind: string, fault: RegExp) => {
    const server = await serveScript(t, [script]);
    const error = await failing(clientOf(t, server).getExport('', 'cowboys'));
    assert.equal(error.kind, kind, error.message);
    assert.match(error.message, fault);
    assert.equal(server.seen.length, 1);
  };
  const good = framed(GetExportResponseSchema, { export: {} });
  await check(answer([framed(GetExportResponseSchema, {})]), 'protocol', /has no export/);
  await check(answer([]), 'protocol', /missing output message/);
  await check(answer([good, good]), 'protocol', /extra output message/);
  await check(answer([good], {}), 'protocol', /missing status/);
  await check(answer([Buffer.from([0, 0, 0, 0, 2, 0xff, 0xff])]), 'protocol', /parse binary/);
  await check(answer([], { 'grpc-status': '5', 'grpc-status-details-bin': '!!!' }), 'protocol', /invalid base64/);
  await check(answer([], { 'grpc-status': '5', 'grpc-message': '%E0%A4%A' }), 'protocol', /URI malformed/);
  await check(answer([], { 'grpc-status': '77' }), 'status', /invalid grpc-status/);
  await check(
    (stream) => {
      stream.respond({ ':status': 200, 'content-type': 'text/html' });
      stream.end('<html>');
    },
    'protocol',
    /unsupported content type text\/html/,
  );
});

test('what a proxy answers has the code of its HTTP status', async (t) => {
  for (const [http, code, count] of [[503, 'UNAVAILABLE', 5], [403, 'PERMISSION_DENIED', 1], [404, 'UNIMPLEMENTED', 1]] as const) {
    const server = await serveScript(t, [
      (stream) => {
        stream.respond({ ':status': http, 'content-type': 'text/html' });
        stream.end('<html>');
      },
    ]);
    const error = await failing(clientOf(t, server).getExport('', 'cowboys'));
    assert.deepEqual([error.code, server.seen.length], [code, count]);
  }
});

test('messages are limited both ways', async (t) => {
  const server = await serve(t, (router) => {
    router.service(ExportService, { getExport: () => ({ export: { metadata: { name: 'x'.repeat(5 << 20) } } }) });
  });
  const client = clientOf(t, server, { timeoutMs: 4_000 });
  let error = await failing(client.getExport('', 'cowboys'));
  assert.deepEqual([error.code, error.reason], ['RESOURCE_EXHAUSTED', 'MESSAGE_TOO_LARGE']);
  error = await failing(client.getExport('', 'x'.repeat(MESSAGE_SEND_MAX)));
  assert.deepEqual([error.code, error.reason], ['RESOURCE_EXHAUSTED', 'MESSAGE_TOO_LARGE']);
  assert.equal(server.seen.length, 1, 'the large request was not sent');
});

test('a frame that announces too much is refused before it comes', async (t) => {
  const server = await serveScript(t, [
    (stream) => {
      stream.respond(GRPC_HEADERS);
      stream.write(Buffer.from([0, 0xff, 0xff, 0xff, 0xff, 1, 2, 3]));
    },
  ]);
  const error = await failing(clientOf(t, server).getExport('', 'cowboys'));
  assert.equal(error.reason, 'MESSAGE_TOO_LARGE');
});

test('a schema that is unchanged is not sent', async (t) => {
  const server = await serve(t, (router) => {
    router.service(ExportService, { getBoundSchema: ({ knownHash }) => ({ unchanged: knownHash === 'h' || knownHash === '' }) });
  });
  const client = clientOf(t, server);
  assert.equal(await client.getBoundSchema('', 'cowboys.wildwest.dev', 'h'), undefined);
  assert.equal((await failing(client.getBoundSchema('', 'cowboys.wildwest.dev'))).kind, 'protocol');
});

test('a signal cancels a call and its pause', async (t) => {
  const hanging = await serveScript(t, [() => undefined]);
  const refusing = await serve(t, failingWith([failure(Code.Unavailable, 'OVERLOADED', [retryAfter(20_000)])]));
  for (const server of [hanging, refusing]) {
    const controller = new AbortController();
    const start = performance.now();
    const pending = failing(clientOf(t, server).getExport('', 'cowboys', { signal: controller.signal }));
    await until(() => server.seen.length > 0, 'the call');
    controller.abort();
    assert.equal((await pending).kind, 'cancelled');
    assert.ok(performance.now() - start < 5_000);
  }
  const error = await failing(clientOf(t, hanging).getExport('', 'a', { signal: AbortSignal.abort() }));
  assert.equal(error.kind, 'cancelled');
});

test('many calls and watches share a signal without a warning', async (t) => {
  const warnings: Error[] = [];
  const note = (warning: Error) => warnings.push(warning);
  process.on('warning', note);
  t.after(() => process.off('warning', note));
  const server = await serveScript(t, [() => undefined]);
  const client = clientOf(t, server);
  const controller = new AbortController();
  const { signal } = controller;
  const calls = Array.from({ length: 20 }, () => failing(client.getExport('', 'a', { signal })));
  const watches = Array.from({ length: 20 }, () => failing(client.watchExports({}, { signal }).next()));
  await until(() => server.seen.length === 40, 'all calls');
  controller.abort();
  const errors = await Promise.all([...calls, ...watches]);
  assert.ok(errors.every(({ kind }) => kind === 'cancelled'));
  assert.deepEqual(warnings, []);
});

test('a closed client makes no call, and ends those in progress', async (t) => {
  const server = await serveScript(t, [() => undefined]);
  const client = clientOf(t, server);
  const pending = failing(client.getExport('', 'cowboys'));
  await until(() => server.seen.length > 0, 'the call');
  client.close();
  assert.equal((await pending).kind, 'cancelled');
  assert.equal((await failing(client.getExport('', 'cowboys'))).kind, 'cancelled');
  assert.equal(server.seen.length, 1);
});

test('a server that is away is told by what is wrong', async (t) => {
  const once = { retry: { attempts: 1 } };
  let error = await failing(clientOf(t, { address: 'http://127.0.0.1:1' }, once).getProvider());
  assert.ok(error.is('transport'));
  assert.deepEqual([error.details.fault, error.details.connecting, error.reason], ['refused', true, 'ConnectionRefused']);
  error = await failing(clientOf(t, { address: 'https://bindery.invalid' }, once).getProvider());
  assert.ok(error.is('transport'));
  assert.deepEqual([error.details.fault, error.details.connecting], ['nameUnknown', true]);
});
