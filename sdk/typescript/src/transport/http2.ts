// The connection for gRPC: HTTP/2 with keep-alive.

import {
  sensitiveHeaders,
  type ClientHttp2Stream,
  type ClientSessionRequestOptions,
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
  const manager = new GuardedSessionManager(
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

/** Marks headers as sensitive before they are sent, and keeps errors of connections from ending the process. */
class GuardedSessionManager extends Http2SessionManager {
  override async request(
    method: string,
    path: string,
    headers: OutgoingHttpHeaders,
    options: Omit<ClientSessionRequestOptions, 'signal'>,
  ): Promise<ClientHttp2Stream> {
    const stream = await super.request(method, path, { ...headers, [sensitiveHeaders as symbol]: SENSITIVE }, options);
    // Connect stops listening when the client is closed, also to a session that has yet to tell its error.
    if (stream.session?.listeners('error').includes(ignore) === false) stream.session.on('error', ignore);
    return stream;
  }
}

function ignore(): void {
  // The streams of the session have the same error.
}
