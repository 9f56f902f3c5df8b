// The runner of the contract suite: does what each line of standard input says, and writes a line when that has ended.

import { createInterface } from 'node:readline';
import { inspect } from 'node:util';

import { fromJson, type JsonObject } from '@bufbuild/protobuf';

import { Client, execToken, fileToken, functionToken, manifests, staticToken, type RetryPolicy, type TokenSource } from '../src/index.js';
import { testing } from '../src/testing.js';
import { BindingResourceResponseSchema } from '../src/v1alpha2.js';
import { act, type Action, type Outcome } from './runner/actions.js';
import { errorJson, shown } from './runner/json.js';

interface Line {
  readonly id: string;
  readonly client: ClientJson;
  readonly action: Action;
  /** The action is done this often at the same moment, on one client. */
  readonly concurrent?: number;
  readonly cancelAfterMs?: number;
}

interface TokenJson {
  readonly static?: string;
  readonly file?: string;
  readonly exec?: [string, ...string[]];
  /** Time limit of the program. */
  readonly timeoutMs?: number;
  readonly function?: 'slow' | 'throws' | 'static-value';
}

interface ClientJson {
  readonly address: string;
  readonly caPem?: string;
  readonly caFile?: string;
  readonly serverName?: string;
  readonly allowPlaintext?: boolean;
  readonly token?: TokenJson | null;
  readonly timeoutMs?: number;
  readonly attemptTimeoutMs?: number;
  readonly retry?: Partial<RetryPolicy>;
  readonly reconnect?: { baseMs: number; capMs: number };
  readonly silenceMs?: number;
  readonly userAgent?: string;
}

async function run(line: Line): Promise<JsonObject> {
  const texts: string[] = [];
  const ended = async (work: (outcome: Outcome) => Promise<void>): Promise<JsonObject> => {
    const outcome: Outcome = {};
    try {
      await work(outcome);
      return outcome as JsonObject;
    } catch (error) {
      texts.push(...shown(error));
      return { ...(outcome as JsonObject), error: errorJson(error) };
    }
  };
  const result = await ended((outcome) => perform(line, ended, outcome, texts));
  return { id: line.id, ...result, shown: texts };
}

type Ended = (work: (outcome: Outcome) => Promise<void>) => Promise<JsonObject>;

async function perform(line: Line, ended: Ended, outcome: Outcome, texts: string[]): Promise<void> {
  const { client: settings, action, concurrent, cancelAfterMs } = line;
  if ('manifests' in action) {
    const response = fromJson(BindingResourceResponseSchema, action.manifests.response);
    const made = manifests(response, action.manifests.options);
    texts.push(...shown(made), ...[...made].flatMap(shown));
    outcome.ok = made.canonical();
    return;
  }
  const token = tokenOf(settings);
  texts.push(...shown(token));
  const client = clientOf(settings, token);
  texts.push(...shown(client));
  const controller = new AbortController();
  const timer = cancelAfterMs === undefined ? undefined : setTimeout(() => controller.abort(), cancelAfterMs);
  const once = (one: Outcome) => act(client, action, controller.signal, one, texts);
  try {
    if (concurrent === undefined) await once(outcome);
    else outcome.ok = await Promise.all(Array.from({ length: concurrent }, () => ended(once)));
  } finally {
    clearTimeout(timer);
    client.close();
  }
}

function tokenOf({ token }: ClientJson): TokenSource | undefined {
  if (token?.static !== undefined) return staticToken(token.static);
  if (token?.file !== undefined) return fileToken(token.file);
  if (token?.exec !== undefined) return execToken(token.exec, { [testing]: { timeoutMs: token.timeoutMs } });
  switch (token?.function) {
    case 'slow':
      return functionToken(() => new Promise(() => undefined));
    case 'throws':
      return functionToken(() => {
        // As `AbortSignal.timeout` throws it.
        throw new DOMException('hunter2', 'TimeoutError');
      });
    case 'static-value':
      return functionToken(() => 'hunter2.is-a-secret.of-the-contract');
    case undefined:
      return undefined;
  }
}

function clientOf(settings: ClientJson, token: TokenSource | undefined): Client {
  const { address, caPem, reconnect, silenceMs, token: _, ...options } = settings;
  return new Client(address, {
    ...options,
    ca: caPem,
    token,
    [testing]: { ...(reconnect && { reconnect }), ...(silenceMs !== undefined && { silenceMs }) },
  });
}

for await (const text of createInterface({ input: process.stdin, crlfDelay: Infinity })) {
  if (text.trim() === '') continue;
  const line = JSON.parse(text) as Line;
  run(line).then(
    (result) => process.stdout.write(`${JSON.stringify(result)}\n`),
    (error: unknown) => console.error(inspect(error)),
  );
}
