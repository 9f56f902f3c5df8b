// Waiting for a promise with a time limit.

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
