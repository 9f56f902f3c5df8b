// Names of codes and reasons, as they stand in messages, logs and metrics.

import { Code } from '@connectrpc/connect';

import type { ErrorReason } from '../gen/kubebind/v1alpha2/errors_pb.js';

const NAMES = {
  [Code.Canceled]: 'CANCELLED',
  [Code.Unknown]: 'UNKNOWN',
  [Code.InvalidArgument]: 'INVALID_ARGUMENT',
  [Code.DeadlineExceeded]: 'DEADLINE_EXCEEDED',
  [Code.NotFound]: 'NOT_FOUND',
  [Code.AlreadyExists]: 'ALREADY_EXISTS',
  [Code.PermissionDenied]: 'PERMISSION_DENIED',
  [Code.ResourceExhausted]: 'RESOURCE_EXHAUSTED',
  [Code.FailedPrecondition]: 'FAILED_PRECONDITION',
  [Code.Aborted]: 'ABORTED',
  [Code.OutOfRange]: 'OUT_OF_RANGE',
  [Code.Unimplemented]: 'UNIMPLEMENTED',
  [Code.Internal]: 'INTERNAL',
  [Code.Unavailable]: 'UNAVAILABLE',
  [Code.DataLoss]: 'DATA_LOSS',
  [Code.Unauthenticated]: 'UNAUTHENTICATED',
} as const satisfies Record<Code, string>;

/** A canonical code of gRPC other than OK, as gRPC spells it. */
export type StatusCode = (typeof NAMES)[Code];

/** A reason that this version knows, as `ErrorInfo.reason` spells it; see the enum `ErrorReason` for what each means. */
export type KnownErrorReason = Exclude<keyof typeof ErrorReason, 'UNSPECIFIED'>;

/** A reason as `ErrorInfo.reason` spells it: a known one, or the text of a newer server. */
export type ErrorReasonName = KnownErrorReason | (string & Record<never, never>);

/** Domain of `ErrorInfo` in every error of the backend; reasons of other domains are ignored. */
export const ERROR_DOMAIN = 'kube-bind.io';

/** Returns the code as gRPC spells it. */
export function codeName(code: Code): StatusCode {
  // A server may send a number that is no code.
  return (NAMES as Partial<Record<Code, StatusCode>>)[code] ?? 'UNKNOWN';
}
