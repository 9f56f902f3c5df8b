// Failures as answers of HTTP.

import { BinderyError, RefusedError, type StatusCode } from '@bindery/sdk';

/** A failure that is the answer to a request. */
export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly reason: string,
    message: string,
    readonly more: { retryAfterMs?: number; requestId?: string; fields?: readonly unknown[] } = {},
  ) {
    super(message);
  }
}

const STATUS: Partial<Record<StatusCode, number>> = {
  INVALID_ARGUMENT: 400,
  UNAUTHENTICATED: 401,
  PERMISSION_DENIED: 403,
  NOT_FOUND: 404,
  ALREADY_EXISTS: 409,
  ABORTED: 409,
  FAILED_PRECONDITION: 409,
  RESOURCE_EXHAUSTED: 429,
  UNIMPLEMENTED: 501,
  UNAVAILABLE: 503,
  DEADLINE_EXCEEDED: 504,
};

/** Makes the answer of what a handler threw. Only what the backend says to the caller is passed on. */
export function problemOf(error: unknown): Problem {
  if (error instanceof Problem) return error;
  if (error instanceof RefusedError) return new Problem(502, error.reason, error.message);
  if (!(error instanceof BinderyError)) return new Problem(500, 'Internal', 'the service failed');
  const { details, message, reason } = error;
  switch (details.kind) {
    case 'status': {
      const { requestId, retryAfterMs, fieldViolations: fields } = details;
      const more = { requestId, fields, ...(retryAfterMs !== undefined && { retryAfterMs }) };
      return new Problem(STATUS[details.code] ?? 502, reason, message, more);
    }
    case 'token':
      return new Problem(401, reason, message);
    case 'requestFailed':
      return new Problem(422, reason, message);
    case 'pending':
      return new Problem(409, reason, message, { retryAfterMs: 5_000 });
    case 'transport':
      return new Problem(503, reason, 'the backend cannot be reached', { retryAfterMs: 5_000 });
    case 'protocol':
      return new Problem(502, reason, 'the backend broke the rules of its API');
    case 'cancelled':
      return new Problem(503, reason, 'the service is ending');
  }
}
