// A token source that runs a program, such as `kubectl bind token`.

import { spawn, type ChildProcessByStdio } from 'node:child_process';
import type { Readable } from 'node:stream';

import { tokenError, type BinderyError } from '../errors/error.js';
import { testing } from '../testing.js';
import { SharedTokenFetch } from './fetch.js';
import type { TokenSource } from './source.js';

/** A token is replaced this long before it expires, in milliseconds. */
const EXPIRY_MARGIN_MS = 30_000;

/** How long a token without an expiry is kept, in milliseconds. */
const KEPT_MS = 60_000;

/** Time limit of one run, in milliseconds. */
const TIMEOUT_MS = 60_000;

/** How long output is waited for after the program has ended, in milliseconds: a program that it started may keep its output open. */
const OUTPUT_AFTER_EXIT_MS = 1_000;

/** The most that a program may print, in bytes. */
const OUTPUT_MAX = 256 * 1024;

/** What programs for credentials of Kubernetes are told in the variable KUBERNETES_EXEC_INFO. */
const EXEC_INFO = JSON.stringify({
  apiVersion: 'client.authentication.k8s.io/v1',
  kind: 'ExecCredential',
  spec: { interactive: false },
});

/** Settings of a program that prints tokens. */
export interface ExecTokenOptions {
  /** Environment variables of the program, added to those of this process. */
  readonly env?: Readonly<Record<string, string>> | undefined;
  /** @internal */
  readonly [testing]?: { readonly timeoutMs?: number | undefined };
}

/**
 * Makes a source of a program that prints a token, or an ExecCredential of Kubernetes as JSON, such as
 * `kubectl bind token --exec-credential`. The program runs without a shell and without standard input, for 60 s at most, once for
 * all callers that wait for it; what it writes to standard error is seen. Its token is kept until 30 s before the ExecCredential
 * expires (for a minute if it does not say when), and until the server refuses it.
 *
 * @param command - The program and its arguments.
 */
export function execToken(command: readonly [string, ...string[]], options: ExecTokenOptions = {}): TokenSource {
  return new ExecToken(command, options);
}

interface ExecCredential {
  readonly token: string;
  /** Until when the token is used, in milliseconds since the epoch. */
  readonly usableUntil: number;
}

class ExecToken implements TokenSource {
  /** The program; its arguments are not shown, as they may hold secrets. */
  readonly program: string;
  readonly #arguments: readonly string[];
  readonly #env: Readonly<Record<string, string>>;
  readonly #timeoutMs: number;
  #last: ExecCredential | undefined;
  readonly #runs = new SharedTokenFetch((isRefused) => this.#run(isRefused));

  constructor([program, ...rest]: readonly [string, ...string[]], options: ExecTokenOptions) {
    this.program = program;
    this.#arguments = rest;
    this.#env = options.env ?? {};
    this.#timeoutMs = options[testing]?.timeoutMs ?? TIMEOUT_MS;
  }

  token(): string | Promise<string> {
    if (this.#last !== undefined && Date.now() < this.#last.usableUntil) return this.#last.token;
    return this.#runs.token();
  }

  forget(token: string): void {
    if (this.#last?.token === token) this.#last = undefined;
    this.#runs.refuse(token);
  }

  async #run(isRefused: (token: string) => boolean): Promise<string> {
    const output = await this.#output();
    const credential = parseCredential(output.trim(), (fault) => {
      throw this.#failure(`printed an ExecCredential ${fault}`);
    });
    this.#last = isRefused(credential.token) ? undefined : credential;
    return credential.token;
  }

  /** Runs the program, and returns what it prints. */
  #output(): Promise<string> {
    const env = { ...process.env, ...this.#env, KUBERNETES_EXEC_INFO: EXEC_INFO };
    return new Promise((resolve, reject) => {
      let child: ChildProcessByStdio<null, Readable, null>;
      try {
        child = spawn(this.program, this.#arguments, { env, stdio: ['ignore', 'pipe', 'inherit'], windowsHide: true });
      } catch (error) {
        reject(this.#failure(`cannot be run (${codeOf(error)})`));
        return;
      }
      const chunks: Buffer[] = [];
      let length = 0;
      let late: NodeJS.Timeout | undefined;
      const end = (failure?: BinderyError) => {
        clearTimeout(limit);
        clearTimeout(late);
        child.stdout.destroy();
        if (failure === undefined) resolve(Buffer.concat(chunks).toString('utf8'));
        else reject(failure);
      };
      const kill = (why: string) => {
        child.kill('SIGKILL');
        // At once: programs that it has started may keep its output open.
        end(this.#failure(why));
      };
      const limit = setTimeout(() => kill(`did not end within ${this.#timeoutMs / 1000} s and was killed`), this.#timeoutMs);
      child.stdout.on('error', () => undefined);
      child.stdout.on('data', (chunk: Buffer) => {
        chunks.push(chunk);
        length += chunk.byteLength;
        if (length > OUTPUT_MAX) kill(`printed more than ${OUTPUT_MAX} bytes`);
      });
      child.once('error', (error) => end(this.#failure(`cannot be run (${codeOf(error)})`)));
      child.once('exit', (code, signal) => {
        if (code === 0) late = setTimeout(end, OUTPUT_AFTER_EXIT_MS);
        else end(this.#failure(code === null ? `was ended by ${String(signal)}` : `ended with status ${code}`));
      });
      child.once('close', () => end());
    });
  }

  /** Makes the error of a run. Nothing that the program printed is in it. */
  #failure(how: string): BinderyError {
    return tokenError('TokenSourceFailed', `cannot get a token: ${this.program} ${how}`);
  }
}

function parseCredential(output: string, refuse: (fault: string) => never): ExecCredential {
  const kept = Date.now() + KEPT_MS;
  if (!output.startsWith('{')) return { token: output, usableUntil: kept };
  let document: unknown;
  try {
    document = JSON.parse(output);
  } catch {
    // The message of the parser quotes its input.
    return refuse('that is no JSON');
  }
  const { kind, status } = document as { kind?: unknown; status?: { token?: unknown; expirationTimestamp?: unknown } };
  if (kind !== 'ExecCredential') refuse('of another kind');
  const token = status?.token;
  if (typeof token !== 'string') return refuse('without status.token');
  const expiry = status?.expirationTimestamp;
  if (expiry === undefined || expiry === null) return { token, usableUntil: kept };
  const expiresAt = typeof expiry === 'string' ? Date.parse(expiry) : Number.NaN;
  if (Number.isNaN(expiresAt)) refuse('whose status.expirationTimestamp is no time');
  return { token, usableUntil: expiresAt - EXPIRY_MARGIN_MS };
}

function codeOf(error: unknown): string {
  const { code } = error as { code?: unknown };
  return typeof code === 'string' ? code : 'unknown error';
}
