// Connections for gRPC: HTTP/2 with keep-alive.

import {
  constants,
  sensitiveHeaders,
  type ClientHttp2Stream,
  type ClientSessionRequestOptions,
  type Http2Session,
  type OutgoingHttpHeaders,
} from 'node:http2';

import { Http2SessionManager, createGrpcTransport } from '@connectrpc/connect-node';

import { MESSAGE_RECEIVE_MAX, MESSAGE_SEND_MAX } from '../limits.js';
import type { ClientSettings } from '../settings.js';
import type { TransportConnection } from './connection.js';
import type { Dialer } from './dial.js';

/** A connection with open streams is asked for a sign of life after this long without one, in milliseconds. */
const PING_INTERVAL_MS = 30_000;

/** A connection that does not respond to a PING is closed after this long, in milliseconds. */
const PING_TIMEOUT_MS = 20_000;

/** A connection without streams is closed after this long, in milliseconds. */
const IDLE_MS = 15 * 60_000;

/** Headers that must not enter the header tables that both ends keep: secrets, and values that differ in each call. */
const SENSITIVE = ['authorization', 'x-request-id', 'grpc-timeout'];

/** A connection for gRPC. It is made by its first call, and again after it was closed. */
export interface GrpcConnection extends TransportConnection {
  /** How many streams the server allows at once, as far as it has said so. */
  streamsMax(): number;
}

/** Makes a transport that speaks gRPC over one connection. */
export function connectGrpc(settings: ClientSettings, dialer: Dialer, idleMs = IDLE_MS): GrpcConnection {
  const manager = new AdjustedSessionManager(
    settings.address.text,
    { pingIntervalMs: PING_INTERVAL_MS, pingTimeoutMs: PING_TIMEOUT_MS, idleConnectionTimeoutMs: idleMs },
    { createConnection: () => dialer.dial('h2') },
  );
  const transport = createGrpcTransport({
    baseUrl: settings.address.text,
    sessionManager: manager,
    readMaxBytes: MESSAGE_RECEIVE_MAX,
    writeMaxBytes: MESSAGE_SEND_MAX,
    acceptCompression: [],
  });
  return { transport, close: () => manager.abort(), streamsMax: () => manager.streamsMax };
}

/** Adjusts what Connect asks of HTTP/2. */
class AdjustedSessionManager extends Http2SessionManager {
  /** How many streams the server allows at once, as far as it has said so. */
  streamsMax = Infinity;
  /** The last stream that the server processes on each connection, from its GOAWAY; Infinity before that. */
  readonly #lastStreams = new WeakMap<Http2Session, number>();

  override async request(
    method: string,
    path: string,
    headers: OutgoingHttpHeaders,
    options: Omit<ClientSessionRequestOptions, 'signal'>,
  ): Promise<ClientHttp2Stream> {
    Object.assign(headers, { [sensitiveHeaders]: SENSITIVE });
    const stream = await super.request(method, path, headers, options);
    const { session } = stream;
    if (session !== undefined) {
      this.#watch(session);
      tellUnprocessed(stream, () => this.#lastStreams.get(session) ?? Infinity);
    }
    cancelByItsCode(stream);
    return stream;
  }

  /** Listens to a connection, once. */
  #watch(session: Http2Session): void {
    if (this.#lastStreams.has(session)) return;
    this.#lastStreams.set(session, Infinity);
    // An error must not end the process: when the client is closed, Connect stops listening also to a session that has yet to tell
    // its error. The streams of the session have the same error.
    session.on('error', () => undefined);
    session.on('goaway', (_code: number, lastStream: number) => this.#lastStreams.set(session, lastStream));
    session.on('remoteSettings', ({ maxConcurrentStreams = Infinity }) => {
      this.streamsMax = Math.max(1, maxConcurrentStreams);
    });
  }
}

/** The error of a stream that the server certainly did not process. */
export class UnprocessedError extends Error {
  constructor(cause: Error) {
    super(cause.message, { cause });
    this.name = 'UnprocessedError';
  }
}

/**
 * Makes a stream that the server certainly did not process end with an UnprocessedError: the server refused it before it responded, or
 * said by GOAWAY that it processes only earlier ones (RFC 9113, 8.7).
 */
function tellUnprocessed(stream: ClientHttp2Stream, lastStream: () => number): void {
  let hasResponse = false;
  stream.once('response', () => {
    hasResponse = true;
  });
  const destroy = stream._destroy.bind(stream);
  // The error of a connection is the same object for all its streams, so each stream gets one of its own.
  stream._destroy = (error, callback) => {
    destroy(error, (ended) => {
      if (!ended || hasResponse) callback(ended);
      else if (stream.rstCode === constants.NGHTTP2_REFUSED_STREAM) callback(new UnprocessedError(ended));
      // Node.js tells of a GOAWAY after it has destroyed the streams.
      else setImmediate(() => callback((stream.id ?? 0) > lastStream() ? new UnprocessedError(ended) : ended));
    });
  };
}

/** Makes a stream that is given up at its deadline end with CANCEL, as gRPC says. Connect says INTERNAL_ERROR, as a fault would. */
function cancelByItsCode(stream: ClientHttp2Stream): void {
  const close = stream.close.bind(stream);
  stream.close = (code, callback) => {
    close(code === constants.NGHTTP2_INTERNAL_ERROR ? constants.NGHTTP2_CANCEL : code, callback);
  };
}
