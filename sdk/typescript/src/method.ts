// What a method says of its calls: how long they may take, and whether they may be repeated.

import type { DescMessage, Message } from '@bufbuild/protobuf';
import { DurationSchema, MethodOptions_IdempotencyLevel as Idempotency, type Duration } from '@bufbuild/protobuf/wkt';

import { ProviderService } from './gen/kubebind/v1alpha2/provider_pb.js';

const TOTAL_MS = 30_000;
const ATTEMPT_MS = 10_000;

/** Time limits of a call and of one attempt, in milliseconds. */
export interface Times {
  readonly totalMs: number;
  readonly attemptMs: number;
}

/** How long a server waits for its controller if a request does not say, in milliseconds. */
const SERVER_WAIT_MS = 30_000;

/** No server waits for longer, in milliseconds: a day. Timers know no time beyond a few weeks. */
const WAIT_MAX_MS = 24 * 60 * 60 * 1000;

/** Returns how long the server may wait before it answers, in milliseconds: the field `wait` of the request, or 30,000 if that is unset. */
export function serverWaitMs(schema: DescMessage, message: Message): number {
  if (schema.field['wait']?.message?.typeName !== DurationSchema.typeName) return 0;
  const { wait } = message as { wait?: Duration };
  const ms = wait === undefined ? SERVER_WAIT_MS : Number(wait.seconds) * 1000 + wait.nanos / 1_000_000;
  return ms >= 0 ? Math.min(ms, WAIT_MAX_MS) : SERVER_WAIT_MS;
}

/** Returns the time limits of a call for which the server may wait. Limits that the user set do not become longer by the wait. */
export function times(total: number | undefined, attempt: number | undefined, waitMs: number): Times {
  const totalMs = total ?? TOTAL_MS + waitMs;
  return { totalMs, attemptMs: Math.min(attempt ?? ATTEMPT_MS + waitMs, totalMs) };
}

/** Whether a call may be repeated when it is unknown whether the server executed it. */
export function isIdempotent(method: { readonly idempotency: Idempotency }): boolean {
  return method.idempotency !== Idempotency.IDEMPOTENCY_UNKNOWN;
}

/** Whether the method is called without a token. Callers who ask how to log in have none, or an expired one. */
export function isOpen(method: object): boolean {
  return method === ProviderService.method.getProvider;
}
