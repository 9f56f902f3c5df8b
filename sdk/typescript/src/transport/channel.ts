// Chooses the protocol and the connection of each call.

import type { Transport } from '@connectrpc/connect';

import type { ClientSettings } from '../settings.js';
import { ProtocolChoice } from './choice.js';
import type { TransportConnection } from './connection.js';
import { Dialer } from './dial.js';
import { isOfOther, isUntrusted, isWireError, lacksHttp2, lacksProtocol } from './faults.js';
import { connectGrpc } from './http2.js';
import { WatchConnections } from './pool.js';
import { connectGrpcWeb } from './web.js';

/**
 * Sends calls by gRPC, or by gRPC-Web. With the protocol `auto` it goes on by gRPC-Web where HTTP/2 does not reach the server: TLS does
 * not negotiate it, or something on the way refuses gRPC by an HTTP status. In both cases the server has not seen the call. Watches
 * have connections of their own.
 */
export class ClientChannel {
  readonly #settings: ClientSettings;
  readonly #dialer: Dialer;
  readonly #watches: WatchConnections;
  readonly #choice: ProtocolChoice;
  #grpc: TransportConnection | undefined;
  #web: TransportConnection | undefined;

  constructor(settings: ClientSettings) {
    this.#settings = settings;
    this.#dialer = new Dialer(settings);
    this.#watches = new WatchConnections(settings, this.#dialer);
    this.#choice = new ProtocolChoice(settings.protocol, settings.testing.grpcAgainMs);
  }

  /** The protocol that the next call uses first. */
  get protocol(): 'grpc' | 'grpc-web' {
    return this.#choice.current;
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

  /** Makes a call by the protocol that is due, and again by the other one if the first cannot reach the server. */
  async #call<T>(send: (web: boolean) => Promise<T>, sendBy: (transport: Transport) => Promise<T>): Promise<T> {
    const { transport } = this.#settings;
    if (transport !== undefined) return sendBy(transport);
    const plan = this.#choice.plan(performance.now());
    if (plan === 'web') {
      try {
        return await send(true);
      } catch (error) {
        if (isOfOther(error)) this.#choice.webFailed();
        if (!this.#choice.isFree || !lacksProtocol(error)) throw error;
      }
    }
    try {
      const response = await send(false);
      this.#choice.grpcWorked();
      return response;
    } catch (error) {
      if (isWireError(error)) this.#choice.grpcWorked();
      if (plan !== 'grpcOrWeb' || !lacksHttp2(error)) throw error;
      return this.#fallBack(error, () => send(true));
    }
  }

  /** Makes a call by gRPC-Web after it could not be made by gRPC. A server of neither is told by the first error. */
  async #fallBack<T>(first: unknown, send: () => Promise<T>): Promise<T> {
    try {
      const response = await send();
      this.#choice.webWorked(performance.now());
      return response;
    } catch (error) {
      if (isWireError(error)) this.#choice.webWorked(performance.now());
      else if (isOfOther(error) && !isUntrusted(error)) throw first;
      throw error;
    }
  }

  #webTransport(): Transport {
    return (this.#web ??= connectGrpcWeb(this.#settings, this.#dialer)).transport;
  }
}
