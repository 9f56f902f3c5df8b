// Chooses the protocol of each call.

import type { Transport } from '@connectrpc/connect';

import type { Settings } from '../settings.js';
import type { Connection } from './connection.js';
import { Dialer } from './dial.js';
import { isWireError, lacksHttp2 } from './faults.js';
import { connectGrpc } from './http2.js';
import { connectGrpcWeb } from './web.js';

/**
 * Sends calls by gRPC, or by gRPC-Web. With the protocol `auto` it falls back to gRPC-Web if HTTP/2 cannot be negotiated, and
 * remembers that choice until HTTP/1.1 cannot be negotiated either.
 */
export class Channel {
  readonly #settings: Settings;
  readonly #dialer: Dialer;
  #usesWeb: boolean;
  #grpc: Connection | undefined;
  #web: Connection | undefined;

  constructor(settings: Settings) {
    this.#settings = settings;
    this.#dialer = new Dialer(settings);
    this.#usesWeb = settings.protocol === 'grpc-web';
  }

  /** The protocol that the next call uses. */
  get protocol(): 'grpc' | 'grpc-web' {
    return this.#usesWeb ? 'grpc-web' : 'grpc';
  }

  /** Makes a call, again by the other protocol if the one that is used cannot be negotiated. */
  async call<T>(send: (transport: Transport) => Promise<T>): Promise<T> {
    const { transport, protocol } = this.#settings;
    if (transport !== undefined) return send(transport);
    if (protocol !== 'auto') return send(this.#transport());
    const usedWeb = this.#usesWeb;
    try {
      return await send(this.#transport());
    } catch (error) {
      if (!lacksHttp2(error)) throw error;
      return this.#fallBack(error, !usedWeb, send);
    }
  }

  /** Closes all connections; calls in progress fail. */
  close(): void {
    this.#grpc?.close();
    this.#web?.close();
  }

  /** Remembers the other protocol only if the server speaks it: a server of neither is told by the first error. */
  async #fallBack<T>(first: unknown, toWeb: boolean, send: (transport: Transport) => Promise<T>): Promise<T> {
    try {
      const answer = await send(this.#transport(toWeb));
      this.#usesWeb = toWeb;
      return answer;
    } catch (error) {
      if (!isWireError(error)) throw first;
      this.#usesWeb = toWeb;
      throw error;
    }
  }

  #transport(web = this.#usesWeb): Transport {
    if (web) return (this.#web ??= connectGrpcWeb(this.#settings, this.#dialer)).transport;
    return (this.#grpc ??= connectGrpc(this.#settings, this.#dialer)).transport;
  }
}
