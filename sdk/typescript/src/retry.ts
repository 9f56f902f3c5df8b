// Which failed calls are tried again, and when.

import type { BinderyError } from './errors/error.js';
import { needsMending } from './errors/faults.js';

/**
 * How often and how soon a failed call is tried again.
 *
 * Tried again are UNAVAILABLE, after the delay that the server asks for, and connections that could not be made. For idempotent
 * methods, connections that broke, DEADLINE_EXCEEDED, and RESOURCE_EXHAUSTED with a RetryInfo are tried again too. No attempt
 * begins after the deadline of the call.
 */
export interface RetryPolicy {
  /** Number of attempts at most, the first included; 1 means no retry. */
  readonly attempts: number;
  /** Upper limit of the first random delay, in milliseconds; it doubles with each attempt. */
  readonly baseMs: number;
  /** Upper limit of a random delay, in milliseconds, to which the delay that the server asks for is added. */
  readonly capMs: number;
}

/** The policy of a client whose options do not say otherwise. */
export const DEFAULT_RETRY: RetryPolicy = { attempts: 5, baseMs: 200, capMs: 5_000 };

/**
 * Returns the delay after this many failures, in milliseconds: what the server asks for, plus a random part (`random` in 0..1) of a
 * time that doubles.
 */
export function delay(policy: RetryPolicy, failures: number, leastMs: number, random: number): number {
  const doublings = Math.min(Math.max(failures - 1, 0), 31);
  const window = Math.min(policy.baseMs * 2 ** doublings, policy.capMs);
  return leastMs + window * Math.min(Math.max(random, 0), 1);
}

/** Returns the delay before the next attempt, in milliseconds; undefined if there is none. */
export function nextAttempt(
  policy: RetryPolicy,
  error: BinderyError,
  isIdempotent: boolean,
  attemptsMade: number,
  leftMs: number,
  random: number,
): number | undefined {
  if (attemptsMade >= policy.attempts) return undefined;
  const leastMs = retryableAfter(error, isIdempotent);
  if (leastMs === undefined) return undefined;
  const ms = delay(policy, attemptsMade, leastMs, random);
  return ms < leftMs ? ms : undefined;
}

/** Returns the shortest delay before a retry can help, in milliseconds; undefined if it cannot help. */
function retryableAfter({ details }: BinderyError, isIdempotent: boolean): number | undefined {
  if (details.kind === 'transport') {
    return !needsMending(details.fault) && (isIdempotent || details.connecting) ? 0 : undefined;
  }
  if (details.kind !== 'status') return undefined;
  switch (details.code) {
    case 'UNAVAILABLE':
      return details.retryAfterMs ?? 0;
    case 'DEADLINE_EXCEEDED':
      return isIdempotent ? (details.retryAfterMs ?? 0) : undefined;
    case 'RESOURCE_EXHAUSTED':
      return isIdempotent ? details.retryAfterMs : undefined;
    default:
      return undefined;
  }
}
