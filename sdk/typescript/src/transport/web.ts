// Connections for gRPC-Web over HTTP/1.1, for networks whose proxies do not speak HTTP/2.

import { Agent as HttpAgent } from 'node:http';
import { Agent as HttpsAgent } from 'node:https';

import { Code, ConnectError, type Transport } from '@connectrpc/connect';
import { createGrpcWebTransport } from '@connectrpc/connect-node';

import { MESSAGE_RECEIVE_MAX, MESSAGE_SEND_MAX } from '../limits.js';
import type { ClientSettings } from '../settings.js';
import type { TransportConnection } from './connection.js';
import type { Dialer } from './dial.js';

/** A connection that no call uses is closed after this long, in milliseconds: before common proxies close it. */
const IDLE_MS = 50_000;

/** Makes a transport that speaks gRPC-Web. Each call in progress, and each watch, has a connection of its own. */
export function connectGrpcWeb(settings: ClientSettings, dialer: Dialer): TransportConnection {
  const options = { keepAlive: true, timeout: IDLE_MS };
  const agent = settings.address.scheme === 'https' ? new HttpsAgent(options) : new HttpAgent(options);
  Object.assign(agent, { createConnection: () => dialer.dial('http/1.1') });
  const base = createGrpcWebTransport({
    httpVersion: '1.1',
    baseUrl: settings.address.text,
    readMaxBytes: MESSAGE_RECEIVE_MAX,
    writeMaxBytes: MESSAGE_SEND_MAX,
    acceptCompression: [],
    nodeOptions: { agent },
  });
  const transport: Transport = {
    unary: (...call) => base.unary(...call),
    // Connect looks at the type of a unary response alone: a web page must not pass for a stream.
    stream: async (...call) => {
      const response = await base.stream(...call);
      const type = response.header.get('content-type') ?? '';
      if (/^application\/grpc-web/i.test(type)) return response;
      throw new ConnectError(`unsupported content type ${type}`, Code.Unknown);
    },
  };
  return { transport, close: () => agent.destroy() };
}
