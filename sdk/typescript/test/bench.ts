// Measures what the client costs beside the plain client of Connect: calls per second, and memory of 1,000 watches.
//
// `npm run bench` prints a table. Each measurement runs in a process of its own, against a server in another one, by turns.

import { fork, type ChildProcess } from 'node:child_process';
import { createServer } from 'node:http2';
import type { AddressInfo } from 'node:net';
import { fileURLToPath } from 'node:url';

import { create } from '@bufbuild/protobuf';
import { createClient } from '@connectrpc/connect';
import { connectNodeAdapter, createGrpcTransport } from '@connectrpc/connect-node';

import { Client } from '../src/index.js';
import { ExportService, WatchExportsResponseSchema } from '../src/v1alpha2.js';

const ROUNDS = Number(process.env['BENCH_ROUNDS'] ?? 5);
const CALLS = 4_000;
const AT_ONCE = 32;
const WATCHES = 1_000;

type Kind = 'raw' | 'sdk';

/** Serves one export, and watches that bring it and stay open. */
function serve(): void {
  const message = (init: Parameters<typeof create<typeof WatchExportsResponseSchema>>[1]) => create(WatchExportsResponseSchema, init);
  const routes = connectNodeAdapter({
    routes: (router) => {
      router.service(ExportService, {
        getExport: ({ name }) => ({ export: { metadata: { name } } }),
        watchExports: async function* (_, { signal }) {
          yield message({ event: { case: 'snapshotBegin', value: {} } });
          yield message({ event: { case: 'applied', value: { metadata: { name: 'cowboys' } } } });
          yield message({ event: { case: 'snapshotComplete', value: { objectCount: 1 } }, resumeToken: 'r1' });
          await new Promise<void>((resolve) => {
            signal.addEventListener('abort', () => resolve());
          });
        },
      });
    },
  });
  const server = createServer({ settings: { maxConcurrentStreams: 10_000 } }, routes);
  server.listen(0, '127.0.0.1', () => process.send?.((server.address() as AddressInfo).port));
}

function rawClient(address: string) {
  return createClient(ExportService, createGrpcTransport({ baseUrl: address, pingIntervalMs: 30_000, acceptCompression: [] }));
}

/** Returns calls per second of time, or of processor time of this process, which a busy machine changes less. */
async function calls(kind: Kind, address: string, clock: 'calls' | 'processor'): Promise<number> {
  const headers = { authorization: 'Bearer hunter2', 'x-request-id': '0123456789abcdef0123456789abcdef' };
  const raw = rawClient(address);
  const sdk = new Client(address, { allowPlaintext: true, token: 'hunter2' });
  const call =
    kind === 'raw'
      ? () => raw.getExport({ contract: 'c', name: 'cowboys' }, { headers, timeoutMs: 10_000 })
      : () => sdk.getExport('c', 'cowboys');
  const many = async (count: number) => {
    let left = count;
    const worker = async () => {
      while (left-- > 0) await call();
    };
    await Promise.all(Array.from({ length: AT_ONCE }, worker));
  };
  await many(CALLS);
  const [start, used] = [performance.now(), process.cpuUsage()];
  await many(CALLS);
  const { user, system } = process.cpuUsage(used);
  return (CALLS * 1000) / (clock === 'calls' ? performance.now() - start : (user + system) / 1000);
}

/** Returns the memory that the watches take, in KiB each. */
async function watches(kind: Kind, address: string): Promise<number> {
  const raw = rawClient(address);
  const sdk = new Client(address, { allowPlaintext: true, token: 'hunter2' });
  const open: unknown[] = [];
  const one = async () => {
    let seen = 0;
    if (kind === 'raw') {
      const stream = raw.watchExports({ contract: 'c' }, { headers: { authorization: 'Bearer hunter2' } })[Symbol.asyncIterator]();
      while (seen < 3) seen += (await stream.next()).done === true ? 3 : 1;
      open.push(stream, stream.next());
    } else {
      const watch = sdk.watchExports({ contract: 'c' });
      while (seen < 4) seen += (await watch.next()).done === true ? 4 : 1;
      open.push(watch, watch.next());
    }
  };
  await one();
  const before = settled();
  for (let count = 0; count < WATCHES; count += 50) await Promise.all(Array.from({ length: 50 }, one));
  await new Promise((resolve) => setTimeout(resolve, 500));
  return (settled() - before) / WATCHES / 1024;
}

/** Memory in use after a garbage collection, in bytes. */
function settled(): number {
  globalThis.gc?.();
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

function child(...args: string[]): ChildProcess {
  return fork(fileURLToPath(import.meta.url), args, { execArgv: ['--expose-gc'] });
}

function answer(process: ChildProcess): Promise<number> {
  return new Promise((resolve, reject) => {
    process.once('message', (value) => resolve(value as number));
    process.once('exit', () => reject(new Error('a measurement ended without a result')));
  });
}

async function measure(what: string, kind: Kind, address: string): Promise<number> {
  const process = child(what, kind, address);
  try {
    return await answer(process);
  } finally {
    process.kill();
  }
}

/** Measures by turns, so that a busy machine slows both down, and returns the medians. */
async function compare(what: string, address: string): Promise<Record<Kind, number>> {
  const found: Record<Kind, number[]> = { raw: [], sdk: [] };
  for (let round = 0; round < ROUNDS; round += 1) {
    for (const kind of ['raw', 'sdk'] as const) found[kind].push(await measure(what, kind, address));
  }
  const median = (values: number[]) => values.sort((one, other) => one - other)[Math.floor(values.length / 2)] ?? 0;
  return { raw: median(found.raw), sdk: median(found.sdk) };
}

const [, , what, kind, address = ''] = process.argv;
if (what === 'serve') serve();
else if (what === 'calls' || what === 'processor') process.send?.(await calls(kind as Kind, address, what));
else if (what === 'watches') process.send?.(await watches(kind as Kind, address));
else {
  const server = child('serve');
  const origin = `http://127.0.0.1:${await answer(server)}`;
  const rate = await compare('calls', origin);
  const processor = await compare('processor', origin);
  const memory = await compare('watches', origin);
  console.log(`calls per second, ${AT_ONCE} at once:    raw ${rate.raw.toFixed(0)}, SDK ${rate.sdk.toFixed(0)}, ratio ${(rate.raw / rate.sdk).toFixed(2)}`);
  console.log(`calls per second of processor time: raw ${processor.raw.toFixed(0)}, SDK ${processor.sdk.toFixed(0)}, ratio ${(processor.raw / processor.sdk).toFixed(2)}`);
  console.log(`memory of one of ${WATCHES} watches: raw ${memory.raw.toFixed(1)} KiB, SDK ${memory.sdk.toFixed(1)} KiB, ratio ${(memory.sdk / memory.raw).toFixed(2)}`);
  server.kill();
}
