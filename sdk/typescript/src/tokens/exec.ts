// A token source that runs a command, such as `kubectl bind token`.

import { execFile } from 'node:child_process';

import { tokenError } from '../errors/error.js';
import { printable } from '../errors/text.js';
import type { TokenSource } from './source.js';

/** A token is replaced this long before it expires, in milliseconds. */
const EXPIRY_MARGIN_MS = 30_000;

const TIMEOUT_MS = 60_000;

/** The most that a command may print, in bytes. */
const OUTPUT_MAX = 256 * 1024;

/** Settings of a command that prints tokens. */
export interface ExecTokenOptions {
  /** Environment variables of the command, added to those of this process. */
  readonly env?: Readonly<Record<string, string>>;
  /** Time limit of one run, in milliseconds: 60,000. */
  readonly timeoutMs?: number;
}

/**
 * Makes a source of a command that prints a token, or an ExecCredential of Kubernetes as JSON, such as
 * `kubectl bind token --exec-credential`. The command runs without a shell and without standard input. Its token is remembered
 * until 30 s before the ExecCredential expires, and until the server says that the token has expired.
 *
 * @param command - The program and its arguments.
 */
export function execToken(command: readonly [string, ...string[]], options: ExecTokenOptions = {}): TokenSource {
  return new ExecToken(command, options);
}

interface Credential {
  readonly token: string;
  /** When the token expires, in milliseconds since the epoch. */
  readonly expiresAt: number;
}

class ExecToken implements TokenSource {
  /** The program; its arguments are not shown, as they may hold secrets. */
  readonly program: string;
  readonly #arguments: readonly string[];
  readonly #options: ExecTokenOptions;
  #last: Credential | undefined;
  #running: Promise<string> | undefined;

  constructor([program, ...rest]: readonly [string, ...string[]], options: ExecTokenOptions) {
    this.program = program;
    this.#arguments = rest;
    this.#options = options;
  }

  token(): string | Promise<string> {
    if (this.#last !== undefined && Date.now() < this.#last.expiresAt - EXPIRY_MARGIN_MS) return this.#last.token;
    this.#running ??= this.#run().finally(() => {
      this.#running = undefined;
    });
    return this.#running;
  }

  expired(): void {
    this.#last = undefined;
  }

  async #run(): Promise<string> {
    const output = await this.#execute();
    const credential = parseCredential(output.trim(), (fault) => {
      throw tokenError('TokenSourceFailed', `${printable(this.program)} printed an ExecCredential ${fault}`);
    });
    this.#last = credential;
    return credential.token;
  }

  #execute(): Promise<string> {
    const { env, timeoutMs = TIMEOUT_MS } = this.#options;
    const settings = { env: { ...process.env, ...env }, timeout: timeoutMs, maxBuffer: OUTPUT_MAX, windowsHide: true };
    return new Promise((resolve, reject) => {
      const child = execFile(this.program, this.#arguments, settings, (error, stdout, stderr) => {
        if (error === null) resolve(stdout);
        else reject(tokenError('TokenSourceFailed', failure(this.program, error, stderr, timeoutMs)));
      });
      child.stdin?.end();
    });
  }
}

function parseCredential(output: string, refuse: (fault: string) => never): Credential {
  if (!output.startsWith('{')) return { token: output, expiresAt: Infinity };
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
  if (expiry === undefined || expiry === null) return { token, expiresAt: Infinity };
  const expiresAt = typeof expiry === 'string' ? Date.parse(expiry) : Number.NaN;
  if (Number.isNaN(expiresAt)) refuse('whose status.expirationTimestamp is no time');
  return { token, expiresAt };
}

/** Says why a command failed, with the last line that it wrote to standard error, less what could be a token. */
function failure(
  program: string,
  error: Error & { code?: unknown; killed?: boolean; signal?: unknown },
  stderr: string,
  timeoutMs: number,
): string {
  let how: string;
  if (typeof error.code === 'number') how = `ended with code ${error.code}`;
  else if (error.code === 'ERR_CHILD_PROCESS_STDIO_MAXBUFFER') how = `printed more than ${OUTPUT_MAX} bytes`;
  else if (error.killed === true) how = `did not end within ${timeoutMs / 1000} s`;
  else if (typeof error.code === 'string') how = `cannot be run (${error.code})`;
  else how = `was ended by ${String(error.signal)}`;
  const line = stderr.trim().split('\n').at(-1)?.slice(0, 300).replace(/[^\s"'()<>,;]{32,}/g, '[hidden]') ?? '';
  return printable(`cannot get a token: ${program} ${how}${line === '' ? '' : `: ${line}`}`);
}
