// Limits of the service.

/** Longest body of a request, in bytes. */
export const BODY_MAX = 16 * 1024;

/** How many streams of events there are at most, in all and for one caller. */
export const STREAMS_MAX = 200;
export const STREAMS_PER_CALLER_MAX = 5;

/** A stream ends after this long, in milliseconds; the browser comes back with its last event id. */
export const STREAM_AGE_MAX_MS = 10 * 60_000;

/** A stream whose reader leaves so many bytes unread is ended. */
export const UNREAD_MAX = 64 * 1024;

/** A comment keeps proxies from closing a silent stream; in milliseconds. */
export const COMMENT_EVERY_MS = 15_000;

/** How long calls may go on after the service was told to end, in milliseconds. */
export const GRACE_MS = 10_000;

/** Counts what is in use, in all and for each key. */
export class Quota {
  readonly #used = new Map<string, number>();
  #total = 0;

  constructor(
    readonly total: number,
    readonly perKey: number,
  ) {}

  /** Takes one for a key, and returns the function that gives it back; undefined if none is left. */
  take(key: string): (() => void) | undefined {
    const used = this.#used.get(key) ?? 0;
    if (this.#total >= this.total || used >= this.perKey) return undefined;
    this.#total += 1;
    this.#used.set(key, used + 1);
    let isTaken = true;
    return () => {
      if (!isTaken) return;
      isTaken = false;
      this.#total -= 1;
      const left = (this.#used.get(key) ?? 1) - 1;
      if (left === 0) this.#used.delete(key);
      else this.#used.set(key, left);
    };
  }
}
