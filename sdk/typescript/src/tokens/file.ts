// A token source that reads a file which another program keeps fresh.

import { readFile, stat } from 'node:fs/promises';

import { tokenError } from '../errors/error.js';
import { printable } from '../errors/text.js';
import type { TokenSource } from './source.js';

/** The file is looked at this often at most, in milliseconds. */
const LOOK_AFTER_MS = 500;

/** A file is read again after this long even if its metadata has not changed: not every file system updates it. */
const REREAD_AFTER_MS = 60_000;

/** The longest file that can hold a token, in bytes; a longer one is not read. */
const FILE_MAX = 64 * 1024;

/**
 * Makes a source for a file, such as a projected ServiceAccount token. It is read again within a second after it has changed,
 * every minute, and when the server says that the token has expired. White space around the token is dropped.
 */
export function fileToken(path: string): TokenSource {
  return new FileToken(path);
}

/** The token that was read last, when, and the metadata of the file then. */
interface Read {
  readonly token: string;
  readonly look: string;
  readonly at: number;
}

class FileToken implements TokenSource {
  /** The file. */
  readonly path: string;
  #last: Read | undefined;
  #lookedAt = 0;
  #isStale = false;
  #reading: Promise<string> | undefined;

  constructor(path: string) {
    this.path = path;
  }

  token(): string | Promise<string> {
    if (this.#last !== undefined && !this.#isStale && performance.now() - this.#lookedAt < LOOK_AFTER_MS) {
      return this.#last.token;
    }
    this.#reading ??= this.#read().finally(() => {
      this.#reading = undefined;
    });
    return this.#reading;
  }

  expired(): void {
    this.#isStale = true;
  }

  async #read(): Promise<string> {
    const now = performance.now();
    const isStale = this.#isStale;
    this.#isStale = false;
    try {
      const { mtimeMs, ino, size } = await stat(this.path);
      const look = `${mtimeMs} ${ino} ${size}`;
      const last = this.#last;
      if (last === undefined || isStale || last.look !== look || now - last.at >= REREAD_AFTER_MS) {
        if (size > FILE_MAX) throw new Error(`it has ${size} bytes, more than a token has`);
        this.#last = { token: (await readFile(this.path, 'utf8')).trim(), look, at: now };
      }
      this.#lookedAt = now;
    } catch (error) {
      this.#isStale = true;
      const message = error instanceof Error ? error.message : String(error);
      throw tokenError('TokenFileUnreadable', printable(`cannot read the token file ${this.path}: ${message}`));
    }
    return this.#last?.token ?? '';
  }
}
