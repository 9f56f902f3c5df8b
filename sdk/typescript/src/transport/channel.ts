// Chooses the protocol and the connection of each call.

import type { Transport } from '@connectrpc/connect';

import type { ClientSettings } from '../settings.js';
import type { TransportConnection } from './connection.js';
import { Dialer } from './dial.js';
import { isGatewayError, isUntrusted, isWireError, lacksHttp2 } from './faults.js';
import { connectGrpc } from './http2.js';
import { WatchConnections } from './pool.js';
import { connectGrpcWeb } from './web.js';

/** After this long on gRPC-Web, gRPC is tried again, in milliseconds: the network may have changed. */
const GRPC_AGAIN_MS = 10 * 60_000;

/**
 * Sends calls by gRPC, or by gRPC-Web. With the protocol `auto` it falls back to gRPC-Web where a server that is reached and trusted
 * does not negotiate HTTP/2, and remembers that for ten minutes. Watches have connections of their own.
 */
export class ClientChannel {
  readonly #settings: ClientSettings;
  readonly #dialer: Dialer;
  readonly #watches: WatchConnections;
  #usesWeb: boolean;
  /** When gRPC is tried again after a fallback, by the clock of `performance.now()`. */
  #grpcAgainAt = Infinity;
  #grpc: TransportConnection | undefined;
  #web: TransportConnection | undefined;

  constructor(settings: ClientSettings) {
    this.#settings = settings;
    this.#dialer = new Dialer(settings);
    this.#watches = new WatchConnections(settings, this.#dialer);
    this.#usesWeb = settings.protocol === 'grpc-web';
  }

  /** The protocol that the next call uses. */
  get protocol(): 'grpc' | 'grpc-web' {
    return this.#usesWeb ? 'grpc-web' : 'grpc';
  }

  /** Makes a call without a stream. */
  unary<T>(send: (transport: Transport) => Promise<T>): Promise<T> {
    return this.#call((web) => {
      if (web) return send(this.#webTransport());
      return send((this.#grpc ??= connectGrpc(this.#settings, this.#dialer)).transport);
    }, send);
  }

  /** Opens a stream, which counts among those of its connection until the signal is aborted. */
  stream<T>(signal: AbortSignal, send: (transport: Transport) => Promise<T>): Promise<T> {
    return this.#call((web) => send(web ? this.#webTransport() : this.#watches.transport(signal)), send);
  }

  /** Closes all connections; calls in progress fail. */
  close(): void {
    this.#grpc?.close();
    this.#watches.close();
    this.#web?.close();
  }

  /** Makes a call, again by the other protocol if the one that is used cannot be negotiated. */
  async #call<T>(send: (web: boolean) => Promise<T>, sendBy: (transport: Transport) => Promise<T>): Promise<T> {
    const { transport, protocol } = this.#settings;
    if (transport !== undefined) return sendBy(transport);
    if (protocol !== 'auto') return send(this.#usesWeb);
    const web = this.#usesWeb && !this.#takeGrpcAgain();
    try {
      const response = await send(web);
      if (!web) this.#usesWeb = false;
      return response;
    } catch (error) {
      if (!web && isWireError(error)) this.#usesWeb = false;
      if (!lacksHttp2(error)) throw error;
      return this.#fallBack(error, () => send(!web), !web);
    }
  }

  /** Remembers the other protocol only if the server speaks it: a server of neither is told by the first error. */
  async #fallBack<T>(first: unknown, send: () => Promise<T>, web: boolean): Promise<T> {
    try {
      const response = await send();
      this.#remember(web);
      return response;
    } catch (error) {
      if (isWireError(error)) this.#remember(web);
      else if (!isUntrusted(error) && !isGatewayError(error)) throw first;
      throw error;
    }
  }

  #remember(web: boolean): void {
    if (web) this.#postponeGrpc();
    this.#usesWeb = web;
  }

  /** Whether gRPC is due to be tried again; one call tries it, and the others go on by gRPC-Web. */
  #takeGrpcAgain(): boolean {
    if (performance.now() < this.#grpcAgainAt) return false;
    this.#postponeGrpc();
    return true;
  }

  #postponeGrpc(): void {
    this.#grpcAgainAt = performance.now() + (this.#settings.testing.grpcAgainMs ?? GRPC_AGAIN_MS);
  }

  #webTransport(): Transport {
    return (this.#web ??= connectGrpcWeb(this.#settings, this.#dialer)).transport;
  }
}
