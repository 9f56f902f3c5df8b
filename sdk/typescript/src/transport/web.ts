// Connections for gRPC-Web over HTTP/1.1, for networks whose proxies do not speak HTTP/2.

import { Agent as HttpAgent } from 'node:http';
import { Agent as HttpsAgent } from 'node:https';

import { createGrpcWebTransport } from '@connectrpc/connect-node';

import { MESSAGE_RECEIVE_MAX, MESSAGE_SEND_MAX } from '../limits.js';
import type { Settings } from '../settings.js';
import type { Connection } from './connection.js';
import type { Dialer } from './dial.js';

/** A connection that no call uses is closed after this long, in milliseconds: before common proxies close it. */
const IDLE_MS = 50_000;

/** Makes a transport that speaks gRPC-Web. Each call in progress, and each watch, has a connection of its own. */
export function connectGrpcWeb(settings: Settings, dialer: Dialer): Connection {
  const options = { keepAlive: true, timeout: IDLE_MS };
  const agent = settings.address.scheme === 'https' ? new HttpsAgent(options) : new HttpAgent(options);
  Object.assign(agent, { createConnection: () => dialer.dial('http/1.1') });
  const transport = createGrpcWebTransport({
    httpVersion: '1.1',
    baseUrl: settings.address.text,
    readMaxBytes: MESSAGE_RECEIVE_MAX,
    writeMaxBytes: MESSAGE_SEND_MAX,
    acceptCompression: [],
    nodeOptions: { agent },
  });
  return { transport, close: () => agent.destroy() };
}
