// Waiting for promises and signals.

import { setMaxListeners } from 'node:events';

import { cancelledError } from './errors/error.js';

/**
 * Waits for a promise until so many milliseconds have passed, and then returns undefined; Infinity is no limit. Fails when the signal is
 * aborted.
 */
export function within<T>(pending: Promise<T>, ms: number, signal: AbortSignal | undefined): Promise<T | undefined> {
  return new Promise((resolve, reject) => {
    const cancel = () => end(() => reject(cancelledError()));
    const timer = ms === Infinity ? undefined : setTimeout(() => end(() => resolve(undefined)), ms);
    const end = (settle: () => void) => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', cancel);
      settle();
    };
    signal?.addEventListener('abort', cancel);
    if (signal?.aborted === true) cancel();
    pending.then(
      (value) => end(() => resolve(value)),
      (error: unknown) => end(() => reject(error)),
    );
  });
}

/** Lets many calls and watches share a signal without the warning of Node.js about more than ten listeners. */
export function allowSharing(signal: AbortSignal | undefined): void {
  // Not for signals of other makes, which Node.js does not count.
  if (signal instanceof AbortSignal) setMaxListeners(0, signal);
}
