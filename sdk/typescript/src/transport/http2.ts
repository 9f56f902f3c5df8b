// The connection for gRPC: HTTP/2 with keep-alive.

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
import type { Settings } from '../settings.js';
import type { Connection } from './connection.js';
import type { Dialer } from './dial.js';

/** A connection with open streams is asked for a sign of life after this long without one, in milliseconds. */
const PING_INTERVAL_MS = 30_000;

/** A connection that does not answer is closed after this long, in milliseconds. */
const PING_TIMEOUT_MS = 20_000;

/** Headers that must not enter the header tables that both ends keep: secrets, and values that differ in each call. */
const SENSITIVE = ['authorization', 'x-request-id', 'grpc-timeout'];

/** Makes a transport that speaks gRPC; all its calls and watches share one connection, which the first of them opens. */
export function connectGrpc(settings: Settings, dialer: Dialer): Connection {
  const manager = new AdjustedSessionManager(
    settings.address.text,
    { pingIntervalMs: PING_INTERVAL_MS, pingTimeoutMs: PING_TIMEOUT_MS },
    { createConnection: () => dialer.dial('h2') },
  );
  const transport = createGrpcTransport({
    baseUrl: settings.address.text,
    sessionManager: manager,
    readMaxBytes: MESSAGE_RECEIVE_MAX,
    writeMaxBytes: MESSAGE_SEND_MAX,
    acceptCompression: [],
  });
  return { transport, close: () => manager.abort() };
}

/** Adjusts what Connect asks of HTTP/2. */
class AdjustedSessionManager extends Http2SessionManager {
  readonly #guarded = new WeakSet<Http2Session>();

  override async request(
    method: string,
    path: string,
    headers: OutgoingHttpHeaders,
    options: Omit<ClientSessionRequestOptions, 'signal'>,
  ): Promise<ClientHttp2Stream> {
    Object.assign(headers, { [sensitiveHeaders]: SENSITIVE });
    const stream = await super.request(method, path, headers, options);
    this.#guard(stream.session);
    cancelByItsCode(stream);
    return stream;
  }

  /**
   * Keeps an error of a session from ending the process: when the client is closed, Connect stops listening also to a session that has
   * yet to tell its error. The streams of the session have the same error.
   */
  #guard(session: Http2Session | undefined): void {
    if (session === undefined || this.#guarded.has(session)) return;
    this.#guarded.add(session);
    session.on('error', () => undefined);
  }
}

/** Makes a stream that is given up at its deadline end with CANCEL, as gRPC says. Connect says INTERNAL_ERROR, as a fault would. */
function cancelByItsCode(stream: ClientHttp2Stream): void {
  const close = stream.close.bind(stream);
  stream.close = (code, callback) => {
    close(code === constants.NGHTTP2_INTERNAL_ERROR ? constants.NGHTTP2_CANCEL : code, callback);
  };
}
