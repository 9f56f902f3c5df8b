// A token source that reads a file which another program keeps fresh.

import { readFile, stat } from 'node:fs/promises';

import { tokenError } from '../errors/error.js';
import { SharedTokenFetch } from './fetch.js';
import type { TokenSource } from './source.js';

/** The file is looked at this often at most, in milliseconds. */
const LOOK_AFTER_MS = 500;

/** A file is read again after this long even if its metadata has not changed: not every file system updates it. */
const REREAD_AFTER_MS = 60_000;

/** The longest file that can hold a token, in bytes; a longer one is not read. */
const FILE_MAX = 64 * 1024;

/**
 * Makes a source for a file, such as a projected ServiceAccount token. It is read again within a second after it has changed,
 * every minute, and when the server refuses its token. White space around the token is dropped.
 */
export function fileToken(path: string): TokenSource {
  return new FileToken(path);
}

/** The token that was read last, when, and the metadata of the file then. */
interface FileRead {
  readonly token: string;
  readonly metadata: string;
  readonly at: number;
}

class FileToken implements TokenSource {
  /** Path of the file with the token. */
  readonly path: string;
  #last: FileRead | undefined;
  #lookedAt = 0;
  readonly #reads = new SharedTokenFetch((isRefused) => this.#read(isRefused));

  constructor(path: string) {
    this.path = path;
  }

  token(): string | Promise<string> {
    if (this.#last !== undefined && performance.now() - this.#lookedAt < LOOK_AFTER_MS) return this.#last.token;
    return this.#reads.token();
  }

  forget(token: string): void {
    if (this.#last?.token === token) this.#last = undefined;
    this.#reads.refuse(token);
  }

  async #read(isRefused: (token: string) => boolean): Promise<string> {
    const now = performance.now();
    try {
      const { mtimeMs, ino, size } = await stat(this.path);
      const metadata = `${mtimeMs} ${ino} ${size}`;
      const last = this.#last;
      if (last?.metadata === metadata && now - last.at < REREAD_AFTER_MS) {
        this.#lookedAt = now;
        return last.token;
      }
      if (size > FILE_MAX) throw new Error(`it has ${size} bytes, more than a token has`);
      const token = (await readFile(this.path, 'utf8')).trim();
      this.#last = isRefused(token) ? undefined : { token, metadata, at: now };
      this.#lookedAt = now;
      return token;
    } catch (error) {
      this.#last = undefined;
      const message = error instanceof Error ? error.message : String(error);
      throw tokenError('TokenFileUnreadable', `cannot read the token file ${this.path}: ${message}`);
    }
  }
}
