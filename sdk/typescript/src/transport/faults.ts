// Tells error responses of a server from failures of the connection, and these from each other. Only this module reads Connect's errors.

import { Code, ConnectError } from '@connectrpc/connect';

import { codeName } from '../errors/codes.js';
import { deadlineError, protocolError, statusError, transportError, type BinderyError } from '../errors/error.js';
import type { TransportFault } from '../errors/faults.js';
import { printable } from '../errors/text.js';
import { parseStatus } from './status.js';
import { DialError, notSent } from './dial.js';
import { UnprocessedError } from './http2.js';

/** Errors of the verification of a certificate, as OpenSSL names them, other than those for its time. */
const UNTRUSTED = new Set([
  'CERT_CHAIN_TOO_LONG',
  'CERT_REJECTED',
  'CERT_REVOKED',
  'CERT_SIGNATURE_FAILURE',
  'CERT_UNTRUSTED',
  'DEPTH_ZERO_SELF_SIGNED_CERT',
  'ERROR_IN_CERT_NOT_AFTER_FIELD',
  'ERROR_IN_CERT_NOT_BEFORE_FIELD',
  'INVALID_CA',
  'INVALID_PURPOSE',
  'PATH_LENGTH_EXCEEDED',
  'SELF_SIGNED_CERT_IN_CHAIN',
  'UNABLE_TO_DECODE_ISSUER_PUBLIC_KEY',
  'UNABLE_TO_DECRYPT_CERT_SIGNATURE',
  'UNABLE_TO_GET_ISSUER_CERT',
  'UNABLE_TO_GET_ISSUER_CERT_LOCALLY',
  'UNABLE_TO_VERIFY_LEAF_SIGNATURE',
]);

const FAULTS: Readonly<Record<string, TransportFault>> = {
  ECONNREFUSED: 'refused',
  ENOTFOUND: 'nameUnknown',
  EAI_AGAIN: 'nameUnknown',
  ETIMEDOUT: 'connectTimeout',
  ERR_TLS_CERT_ALTNAME_INVALID: 'certificateName',
  HOSTNAME_MISMATCH: 'certificateName',
  CERT_HAS_EXPIRED: 'certificateExpired',
  CERT_NOT_YET_VALID: 'certificateExpired',
  ERR_SSL_WRONG_VERSION_NUMBER: 'serverIsPlaintext',
  ERR_SSL_PACKET_LENGTH_TOO_LONG: 'serverIsPlaintext',
  ERR_SSL_HTTP_REQUEST: 'serverIsPlaintext',
  ERR_SSL_UNEXPECTED_MESSAGE: 'tls',
};

/** What a server can say of the certificate of a client, in the alerts of TLS as OpenSSL names them. */
const CLIENT_CERTIFICATE_ALERT =
  /ALERT_(CERTIFICATE_REQUIRED|BAD_CERTIFICATE|UNSUPPORTED_CERTIFICATE|CERTIFICATE_REVOKED|CERTIFICATE_EXPIRED|CERTIFICATE_UNKNOWN|UNKNOWN_CA|ACCESS_DENIED|DECRYPT_ERROR)$/;

/** What is known of a call that failed. */
export interface FailedCall {
  /** Address of the server. */
  readonly address: string;
  /** Id of the call. */
  readonly requestId: string;
  /** How long the call took, in milliseconds. */
  readonly elapsedMs: number;
}

/** Whether the server sent the error, by any of the protocols. */
export function isWireError(error: unknown): boolean {
  return error instanceof ConnectError && error.isWireError;
}

/** The reasons not to trust a server. */
const CERTIFICATE_FAULTS: ReadonlySet<TransportFault | undefined> = new Set<TransportFault>([
  'certificateUntrusted',
  'certificateName',
  'certificateExpired',
]);

/** Whether the error says that the certificate of the server is not trusted. */
export function isUntrusted(error: unknown): boolean {
  return chainOf(error).some((cause) => CERTIFICATE_FAULTS.has(faultOf(cause)));
}

/**
 * Whether a call by gRPC-Web failed without reaching the server. A gateway that speaks for a server that is away or busy, a time limit, and
 * the caller say nothing against gRPC-Web.
 */
export function isOfOther(error: unknown): boolean {
  if (!(error instanceof ConnectError) || error.isWireError) return !isWireError(error);
  return !/^HTTP (429|502|503|504)$/.test(error.rawMessage) && !ENDS_OF_CALLS.has(error.code);
}

/** Codes of the errors that Connect makes where the client ends a call. */
const ENDS_OF_CALLS: ReadonlySet<Code> = new Set([Code.Canceled, Code.DeadlineExceeded]);

/** Whether the error says that the protocol of the connection cannot be negotiated. */
export function lacksProtocol(error: unknown): boolean {
  return chainOf(error).some((cause) => faultOf(cause) === 'noHttp2');
}

/** Whether the error of a call by gRPC says that HTTP/2 does not reach the server, so that the server did nothing. */
export function lacksHttp2(error: unknown): boolean {
  return lacksProtocol(error) || refusesGrpc(error);
}

/**
 * Whether a proxy refuses gRPC as such by an HTTP status: it took the call by HTTP/2 and passed it on by HTTP/1.1, over which there is no
 * gRPC, or does not know its content type. 464 is how some load balancers say that the protocol does not fit the server.
 */
function refusesGrpc(error: unknown): boolean {
  if (!(error instanceof ConnectError) || !/^HTTP (400|405|415|426|464|501|505)$/.test(error.rawMessage)) return false;
  return !/^application\/grpc/i.test(error.metadata.get('content-type') ?? '');
}

/** Makes the error of a call of what the transport threw. The cause is not kept: it may hold what a proxy echoes. */
export function errorOf(thrown: unknown, call: FailedCall): BinderyError {
  const error = ConnectError.from(thrown, Code.Internal);
  if (error.isWireError) return parseStatus(error, call.requestId);
  const chain = chainOf(thrown);
  const fault = chain.map(faultOf).find((found) => found !== undefined);
  const connecting = chain.some((cause) => notSent in cause);
  const last = chain.at(-1);
  const broken = isBroken(error, chain);
  if (fault !== undefined || connecting || broken) {
    // A deadline of the system on an open connection is no time limit on connecting.
    const kind = fault === 'connectTimeout' && !connecting ? 'broken' : (fault ?? 'broken');
    const detail = printable((last instanceof ConnectError ? last.rawMessage : (last?.message ?? '')).trim());
    const isUnprocessed = connecting || chain.some((cause) => cause instanceof UnprocessedError);
    return transportError({ address: call.address, fault: kind, detail, connecting, unprocessed: isUnprocessed });
  }
  if (error.code === Code.DeadlineExceeded) return deadlineError(call.address, call.elapsedMs, call.requestId);
  if (error.code === Code.ResourceExhausted) {
    // Connect's own limit on what it reads.
    return statusError({
      code: 'RESOURCE_EXHAUSTED',
      reason: 'MESSAGE_TOO_LARGE',
      message: `the response is too large: ${error.rawMessage}`,
      requestId: call.requestId,
    });
  }
  if (/^HTTP \d+$/.test(error.rawMessage)) {
    const message = `${call.address} responded ${error.rawMessage} in place of gRPC`;
    return statusError({ code: codeName(error.code), message, requestId: call.requestId });
  }
  return protocolError(call.address, printable(error.rawMessage));
}

/** Whether the connection or the stream ended before the response. */
function isBroken(error: ConnectError, chain: readonly Error[]): boolean {
  if (error.rawMessage.startsWith('http/2 stream closed with error code')) return true;
  if (error.rawMessage === 'PING timed out' || error.code === Code.Aborted) return true;
  return chain.some((cause) => /^(E[A-Z]+|ERR_HTTP2_.*|ERR_STREAM_.*|ERR_SSL_.*|HPE_.*)$/.test(codeOf(cause)));
}

function faultOf(error: Error): TransportFault | undefined {
  if (error instanceof DialError) return error.fault;
  const code = codeOf(error);
  const known = FAULTS[code];
  if (known !== undefined) return known;
  if (UNTRUSTED.has(code)) return 'certificateUntrusted';
  if (CLIENT_CERTIFICATE_ALERT.test(code)) return 'clientCertificate';
  if (code.endsWith('ALERT_NO_APPLICATION_PROTOCOL')) return 'noHttp2';
  if (code.startsWith('EAI_')) return 'nameUnknown';
  return code.startsWith('ERR_SSL_') || code === 'EPROTO' ? 'tls' : undefined;
}

/** The code of an error of Node.js. EPROTO has that of OpenSSL in its message alone. */
function codeOf(error: Error): string {
  if (!('code' in error) || typeof error.code !== 'string') return '';
  const reason = error.code === 'EPROTO' ? /SSL routines:[^:]*:([^:]+):/.exec(error.message)?.[1] : undefined;
  return reason === undefined ? error.code : `ERR_SSL_${reason.toUpperCase().replaceAll(' ', '_')}`;
}

/** The error and its causes, the outermost first. */
function chainOf(error: unknown): Error[] {
  const chain: Error[] = [];
  let next = error;
  while (next instanceof Error && !chain.includes(next)) {
    chain.push(next);
    next = next.cause;
  }
  return chain;
}
