// Connections for watches. Servers limit the streams of one connection, and calls must not wait until watches end.

import type { Transport } from '@connectrpc/connect';

import type { ClientSettings } from '../settings.js';
import type { Dialer } from './dial.js';
import { connectGrpc, type GrpcConnection } from './http2.js';

/** The most watches on one connection; backends of Bindery allow 256 streams. */
const WATCHES_MAX = 200;

/** A connection without a watch is closed after this long, in milliseconds. */
const IDLE_MS = 60_000;

interface WatchConnection {
  readonly connection: GrpcConnection;
  watches: number;
}

/** Makes one more connection for every 200 watches, or as many as the server allows if that is fewer. */
export class WatchConnections {
  readonly #settings: ClientSettings;
  readonly #dialer: Dialer;
  readonly #connections: WatchConnection[] = [];

  constructor(settings: ClientSettings, dialer: Dialer) {
    this.#settings = settings;
    this.#dialer = dialer;
  }

  /** Returns the transport for a watch that ends, also if it could not be opened, when the signal is aborted. */
  transport(signal: AbortSignal): Transport {
    const chosen = this.#connections.find(({ watches, connection }) => watches < Math.min(WATCHES_MAX, connection.streamsMax()));
    const used = chosen ?? this.#connect();
    if (!signal.aborted) {
      used.watches += 1;
      signal.addEventListener('abort', () => (used.watches -= 1), { once: true });
    }
    return used.connection.transport;
  }

  /** Closes all connections; watches on them fail. */
  close(): void {
    for (const { connection } of this.#connections) connection.close();
  }

  #connect(): WatchConnection {
    const made = { connection: connectGrpc(this.#settings, this.#dialer, IDLE_MS), watches: 0 };
    this.#connections.push(made);
    return made;
  }
}
