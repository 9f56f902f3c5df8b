// The time limit of one attempt.

import { Code, ConnectError } from '@connectrpc/connect';

import { cancelledError } from './errors/error.js';

/** Aborts an attempt at its deadline, and when its caller gives up. */
export class Limit {
  readonly #controller = new AbortController();
  readonly #timer: NodeJS.Timeout;
  readonly #outer: AbortSignal | undefined;
  #isLate = false;

  constructor(ms: number, outer: AbortSignal | undefined) {
    this.#outer = outer;
    this.#timer = setTimeout(() => {
      this.#isLate = true;
      this.#abort();
    }, ms);
    outer?.addEventListener('abort', this.#abort);
    if (outer?.aborted === true) this.#abort();
  }

  /** The signal that ends the attempt. */
  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Whether the deadline has passed. */
  get isLate(): boolean {
    return this.#isLate;
  }

  /** Waits for a promise until the attempt ends. */
  race<T>(pending: Promise<T>): Promise<T> {
    return raceAbort(pending, this.signal);
  }

  /** Ends the limit; nothing is aborted any more. */
  end(): void {
    clearTimeout(this.#timer);
    this.#outer?.removeEventListener('abort', this.#abort);
  }

  readonly #abort = (): void => {
    // The code says how the stream ends: with CANCEL.
    this.#controller.abort(new ConnectError('the attempt has ended', Code.Canceled));
  };
}

/** Waits for a promise until the signal is aborted. */
export function raceAbort<T>(pending: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const cancel = () => reject(cancelledError());
    const end = () => signal.removeEventListener('abort', cancel);
    signal.addEventListener('abort', cancel);
    if (signal.aborted) cancel();
    pending.then(resolve, reject).finally(end);
  });
}
