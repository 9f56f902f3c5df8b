// The error of every call, token source and watch.

import { inspect } from 'node:util';

import type { BindableResourcesRequest } from '../gen/kubebind/v1alpha2/binding_pb.js';
import type { Condition } from '../gen/kubebind/v1alpha2/types_pb.js';
import type { ErrorReasonName, StatusCode } from './codes.js';
import { describeTransport, faultReason, type TransportFault } from './faults.js';
import { printable } from './text.js';

/** A field of a request with an invalid value. */
export interface FieldViolation {
  /** Path of the field, such as `bindable_resources_request.metadata.name`. */
  readonly field: string;
  /** What is wrong with it. */
  readonly description: string;
}

/** A precondition of a call that does not hold. */
export interface PreconditionViolation {
  /** Kind of the precondition. */
  readonly type: string;
  /** The object that it is about. */
  readonly subject: string;
  /** What is wrong with it. */
  readonly description: string;
}

/** The server answered with an error, or did not answer before the deadline. */
export interface StatusDetails {
  readonly kind: 'status';
  /** The canonical code. */
  readonly code: StatusCode;
  /** The reason; absent if the server gave none. It may be one that this version does not know. */
  readonly reason?: ErrorReasonName;
  /** Explanation for people. */
  readonly message: string;
  /** The variable parts of the message, under lowerCamelCase keys. */
  readonly metadata: Readonly<Record<string, string>>;
  /** The fields that are wrong. */
  readonly fieldViolations: readonly FieldViolation[];
  /** What must be changed before the call can succeed. */
  readonly preconditionViolations: readonly PreconditionViolation[];
  /** Delay after which the server asks for a retry, in milliseconds. */
  readonly retryAfterMs?: number;
  /** Id of the call in the server's log. */
  readonly requestId: string;
}

/** The server could not be reached, or the connection broke. */
export interface TransportDetails {
  readonly kind: 'transport';
  /** Address of the server. */
  readonly address: string;
  /** Kind of the failure. */
  readonly fault: TransportFault;
  /** Message of the failure, for people. */
  readonly detail: string;
  /** Whether the call was certainly not sent, so that the server did nothing. */
  readonly connecting: boolean;
}

/** Why a token source has no token, as a word that never changes. `LoggedOut` ends a watch; the others may pass. */
export type TokenReason =
  | 'TokenFileUnreadable'
  | 'TokenEmpty'
  | 'TokenMalformed'
  | 'TokenTooLong'
  | 'TokenSourceFailed'
  | 'LoggedOut';

/** The token source has no token that can be sent. */
export interface TokenDetails {
  readonly kind: 'token';
  /** The reason, which never changes. */
  readonly reason: TokenReason;
}

/** The server accepted the request to bind and could not fulfill it. */
export interface RequestFailedDetails {
  readonly kind: 'requestFailed';
  /** The request in phase FAILED. */
  readonly request: BindableResourcesRequest;
  /** The first condition that is false, which says why. */
  readonly condition?: Condition;
}

/** The request to bind is still pending after the client has waited. */
export interface PendingDetails {
  readonly kind: 'pending';
  /** The request in phase PENDING. */
  readonly request: BindableResourcesRequest;
  /** How long the client has waited, in milliseconds. */
  readonly waitedMs: number;
}

/** The server broke the rules of its API. */
export interface ProtocolDetails {
  readonly kind: 'protocol';
  /** Address of the server. */
  readonly address: string;
  /** What the server did. */
  readonly fault: string;
}

/** The caller aborted the call by its AbortSignal, or closed the client. */
export interface CancelledDetails {
  readonly kind: 'cancelled';
}

/** What an error is about, told apart by `kind`. */
export type ErrorDetails =
  | StatusDetails
  | TransportDetails
  | TokenDetails
  | RequestFailedDetails
  | PendingDetails
  | ProtocolDetails
  | CancelledDetails;

/** Kind of an error. */
export type ErrorKind = ErrorDetails['kind'];

/** Why a call, a token source or a watch failed. No field of it holds a token of the client. */
export class BinderyError extends Error {
  /** What the error is about; its `kind` tells which fields it has. */
  readonly details: ErrorDetails;

  /** @internal */
  constructor(details: ErrorDetails, message: string) {
    super(message);
    this.name = 'BinderyError';
    this.details = details;
  }

  /** Kind of the error. */
  get kind(): ErrorKind {
    return this.details.kind;
  }

  /** The canonical code of an error response. */
  get code(): StatusCode | undefined {
    return this.details.kind === 'status' ? this.details.code : undefined;
  }

  /** Id of the call in the server's log; undefined if the server may never have got the call. */
  get requestId(): string | undefined {
    return this.details.kind === 'status' ? this.details.requestId : undefined;
  }

  /** The reason for conditions and metrics, in UpperCamelCase or UPPER_SNAKE_CASE, which never changes. */
  get reason(): string {
    const { details } = this;
    switch (details.kind) {
      case 'status':
        return details.reason ?? details.code;
      case 'transport':
        return faultReason(details.fault);
      case 'token':
        return details.reason;
      case 'requestFailed':
        return details.condition?.reason ?? 'RequestFailed';
      case 'pending':
        return 'RequestPending';
      case 'protocol':
        return 'ProtocolViolation';
      case 'cancelled':
        return 'Cancelled';
    }
  }

  /** Tells whether the error is of this kind, and gives `details` its type. */
  is<K extends ErrorKind>(kind: K): this is BinderyError & { readonly details: Extract<ErrorDetails, { kind: K }> } {
    return this.details.kind === kind;
  }

  /** The error as JSON, for logs. */
  toJSON(): { kind: ErrorKind; reason: string; message: string } {
    return { kind: this.kind, reason: this.reason, message: this.message };
  }

  /** @internal */
  [inspect.custom](): string {
    return this.stack ?? `${this.name}: ${this.message}`;
  }
}

/** Makes the error for a status, with its violations, reason and request id in the message. */
export function statusError(details: Partial<StatusDetails> & Pick<StatusDetails, 'code' | 'requestId'>): BinderyError {
  const whole: StatusDetails = {
    kind: 'status',
    message: '',
    metadata: {},
    fieldViolations: [],
    preconditionViolations: [],
    ...details,
  };
  const parts = [whole.message === '' ? `the server answered ${whole.code}` : whole.message];
  parts.push(...whole.fieldViolations.map(({ field, description }) => `${field}: ${description}`));
  parts.push(...whole.preconditionViolations.map(({ subject, description }) => `${subject}: ${description}`));
  const request = whole.requestId === '' ? '' : `, request ${whole.requestId}`;
  return new BinderyError(whole, `${parts.join('; ')} (${whole.reason ?? whole.code}${request})`);
}

/** Makes the error for a deadline that passed on the client; the server may still work on the call. */
export function deadlineError(address: string, waitedMs: number, requestId: string): BinderyError {
  const message = `no answer from ${address} within ${(waitedMs / 1000).toFixed(1)} s`;
  return statusError({ code: 'DEADLINE_EXCEEDED', reason: 'DEADLINE', message, requestId });
}

/** Makes the error for a request that is too large and was not sent. */
export function tooLargeError(bytes: number, limit: number, requestId: string): BinderyError {
  const message = `the request has ${bytes} bytes, more than the ${limit} that a server takes`;
  return statusError({ code: 'RESOURCE_EXHAUSTED', reason: 'MESSAGE_TOO_LARGE', message, requestId });
}

/** Makes the error for a server that could not be reached, or for a connection that broke. */
export function transportError(details: Omit<TransportDetails, 'kind'>): BinderyError {
  const { address, fault, detail } = details;
  const suffix = detail === '' ? '' : ` (${detail})`;
  const message = `cannot reach the server at ${address}: ${describeTransport(fault, address)}${suffix}`;
  return new BinderyError({ kind: 'transport', ...details }, message);
}

/** Makes the error of a token source. */
export function tokenError(reason: TokenReason, message: string): BinderyError {
  return new BinderyError({ kind: 'token', reason }, message);
}

/** Makes the error for a server that broke the rules of its API. */
export function protocolError(address: string, fault: string): BinderyError {
  return new BinderyError(
    { kind: 'protocol', address, fault },
    `the server at ${address} broke the rules of its API: ${fault}`,
  );
}

/** Makes the error for a call that its caller gave up. */
export function cancelledError(what = 'the call was cancelled'): BinderyError {
  return new BinderyError({ kind: 'cancelled' }, what);
}

/** Makes the error for a request that the server could not fulfill. */
export function requestFailedError(request: BindableResourcesRequest): BinderyError {
  const condition = request.status?.conditions.find(({ status }) => status === 'False');
  const name = printable(request.metadata?.name ?? '');
  const why =
    condition === undefined
      ? ' and has no condition that says why'
      : `: ${printable(condition.message)} (${printable(condition.reason)})`;
  const details = { kind: 'requestFailed', request, ...(condition && { condition }) } as const;
  return new BinderyError(details, `request ${name} failed${why}`);
}

/** Makes the error for a request that is still pending. */
export function pendingError(request: BindableResourcesRequest, waitedMs: number): BinderyError {
  const name = printable(request.metadata?.name ?? '');
  const seconds = Math.floor(waitedMs / 1000);
  return new BinderyError(
    { kind: 'pending', request, waitedMs },
    `request ${name} is still pending after ${seconds} s; bind again to go on waiting`,
  );
}
