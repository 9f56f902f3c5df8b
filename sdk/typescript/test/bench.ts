// Measures what the client costs beside the plain client of Connect: calls per second, and resident memory of 1,000 watches.
//
// `node bench.js ADDRESS CA_FILE TOKEN` prints one line of JSON: calls per second, 32 at a time (`calls`) and one after the other
// (`callsInTurn`), the best of three rounds in which both take turns; and by how many bytes the resident memory of a fresh process grows
// by watches that are past their snapshot. Without arguments it measures against a server of its own, without TLS.

import { fork, type ChildProcess } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http2';
import type { AddressInfo } from 'node:net';
import { fileURLToPath } from 'node:url';

import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { createClient, type Transport } from '@connectrpc/connect';
import { connectNodeAdapter, createGrpcTransport } from '@connectrpc/connect-node';

import { Client } from '../src/index.js';
import { ContractService, ProviderService, WatchContractsResponseSchema } from '../src/v1alpha2.js';

const ROUNDS = 3;
const CALLS = 3_000;
const CALLS_IN_TURN = 1_000;
const AT_ONCE = 32;
const WATCHES = 1_000;
/** Watches on one connection of the plain client; servers allow 256 streams. */
const WATCHES_PER_CONNECTION = 200;

type Kind = 'raw' | 'sdk';
type Figures = Record<Kind, number>;

/** A server, and how it is called. */
interface Target {
  readonly address: string;
  readonly caFile: string;
  readonly token: string;
}

const HEADERS = { 'x-request-id': '0123456789abcdef0123456789abcdef' };

function sdkClient({ address, caFile, token }: Target): Client {
  const isPlaintext = address.startsWith('http://');
  return new Client(address, { token, allowPlaintext: isPlaintext, caFile: isPlaintext ? undefined : caFile });
}

function rawTransport({ address, caFile }: Target): Transport {
  const nodeOptions = address.startsWith('http://') ? {} : { ca: readFileSync(caFile) };
  return createGrpcTransport({ baseUrl: address, pingIntervalMs: 30_000, acceptCompression: [], nodeOptions });
}

/** Makes the same call by both clients: GetCaller, or GetProvider where the server does not know the caller. */
async function callers(target: Target): Promise<Record<Kind, () => Promise<unknown>>> {
  const sdk = sdkClient(target);
  const raw = createClient(ProviderService, rawTransport(target));
  const options = { headers: { ...HEADERS, authorization: `Bearer ${target.token}` }, timeoutMs: 10_000 };
  const { getCaller, getProvider } = ProviderService.method;
  const both = { sdk: () => sdk.call(getCaller, {}) as Promise<unknown>, raw: () => raw.getCaller({}, options) as Promise<unknown> };
  try {
    await both.sdk();
    await both.raw();
    return both;
  } catch {
    return { sdk: () => sdk.call(getProvider, {}), raw: () => raw.getProvider({}, { headers: HEADERS, timeoutMs: 10_000 }) };
  }
}

/** Returns calls per second. */
async function rate(call: () => Promise<unknown>, count: number, atOnce: number): Promise<number> {
  let left = count;
  const worker = async () => {
    while (left-- > 0) await call();
  };
  const start = performance.now();
  await Promise.all(Array.from({ length: atOnce }, worker));
  return (count * 1000) / (performance.now() - start);
}

/** Measures both clients by turns, so that a busy machine slows both down, and returns the best of each. */
async function rates(call: Record<Kind, () => Promise<unknown>>, count: number, atOnce: number): Promise<Figures> {
  const best: Figures = { sdk: 0, raw: 0 };
  for (const kind of ['sdk', 'raw'] as const) await rate(call[kind], count / 2, atOnce);
  for (let round = 0; round < ROUNDS; round += 1) {
    for (const kind of ['sdk', 'raw'] as const) best[kind] = Math.max(best[kind], Math.round(await rate(call[kind], count, atOnce)));
  }
  return best;
}

/** Opens watches until they are past their snapshots, and returns by how many bytes the resident memory has grown. */
async function watches(kind: Kind, target: Target): Promise<number> {
  const open: unknown[] = [];
  const sdk = kind === 'sdk' ? sdkClient(target) : undefined;
  const transports = Array.from({ length: Math.ceil(WATCHES / WATCHES_PER_CONNECTION) }, () => rawTransport(target));
  const options = { headers: { ...HEADERS, authorization: `Bearer ${target.token}` } };
  const one = async (index: number) => {
    if (sdk !== undefined) {
      const watch = sdk.watchContracts();
      for (let event = await watch.next(); event.value?.type !== 'snapshotComplete'; event = await watch.next()) {
        if (event.done === true) throw new Error('the watch has ended');
        if (event.value.type === 'disconnected') throw event.value.error ?? new Error('the stream has ended');
      }
      open.push(watch, watch.next());
      return;
    }
    const transport = transports[Math.floor(index / WATCHES_PER_CONNECTION)] as Transport;
    const stream = createClient(ContractService, transport).watchContracts({}, options)[Symbol.asyncIterator]();
    for (let message = await stream.next(); ; message = await stream.next()) {
      if (message.done === true) throw new Error('the stream has ended');
      if (message.value.event.case === 'snapshotComplete') break;
    }
    open.push(stream, stream.next());
  };
  await one(0);
  const before = await resident();
  for (let index = 0; index < WATCHES; index += 50) {
    await Promise.all(Array.from({ length: 50 }, (_, offset) => one(Math.min(index + offset, WATCHES - 1))));
  }
  return (await resident()) - before;
}

/** Resident memory after garbage collections, in bytes. */
async function resident(): Promise<number> {
  for (let count = 0; count < 5; count += 1) {
    globalThis.gc?.();
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
  return process.memoryUsage.rss();
}

/** Serves a caller, and watches that bring one contract and stay open. */
function serve(): void {
  const message = (init: MessageInitShape<typeof WatchContractsResponseSchema>) => create(WatchContractsResponseSchema, init);
  const routes = connectNodeAdapter({
    routes: (router) => {
      router.service(ProviderService, { getCaller: () => ({ caller: { username: 'ann' } }) });
      router.service(ContractService, {
        watchContracts: async function* (_, { signal }) {
          yield message({ event: { case: 'snapshotBegin', value: {} } });
          yield message({ event: { case: 'applied', value: { name: 'kube-bind-x' } } });
          yield message({ event: { case: 'snapshotComplete', value: { objectCount: 1 } }, resumeToken: 'r1' });
          await new Promise<void>((resolve) => {
            signal.addEventListener('abort', () => resolve());
          });
        },
      });
    },
  });
  const server = createServer({ settings: { maxConcurrentStreams: 256 } }, routes);
  server.listen(0, '127.0.0.1', () => process.send?.((server.address() as AddressInfo).port));
}

function child(...args: string[]): ChildProcess {
  return fork(fileURLToPath(import.meta.url), args, { execArgv: ['--expose-gc'] });
}

function reported(from: ChildProcess): Promise<number> {
  return new Promise((resolve, reject) => {
    from.once('message', (value) => resolve(value as number));
    from.once('exit', () => reject(new Error('a measurement ended without a result')));
  });
}

/** Measures the watches of a client in a fresh process. */
async function watchesOf(kind: Kind, { address, caFile, token }: Target): Promise<number> {
  const fresh = child('watches', kind, address, caFile, token);
  try {
    return await reported(fresh);
  } finally {
    fresh.kill();
  }
}

async function measure(target: Target): Promise<void> {
  const call = await callers(target);
  const calls = await rates(call, CALLS, AT_ONCE);
  const callsInTurn = await rates(call, CALLS_IN_TURN, 1);
  const memory = { count: WATCHES, sdk: await watchesOf('sdk', target), raw: await watchesOf('raw', target) };
  console.log(JSON.stringify({ calls, callsInTurn, watches: memory }));
}

const [what = '', ...rest] = process.argv.slice(2);
if (what === 'serve') {
  serve();
} else if (what === 'watches') {
  const [kind, address = '', caFile = '', token = ''] = rest;
  process.send?.(await watches(kind as Kind, { address, caFile, token }));
} else {
  const [caFile = '', token = ''] = rest;
  const server = what === '' ? child('serve') : undefined;
  const address = server === undefined ? what : `http://127.0.0.1:${await reported(server)}`;
  await measure({ address, caFile, token: token === '' ? 'token' : token });
  server?.kill();
  process.exit();
}
