// Opens connections, with a time limit and the protocol that TLS has to negotiate.

import { connect as connectTcp, type Socket } from 'node:net';
import * as tls from 'node:tls';

import type { TransportFault } from '../errors/faults.js';
import type { Settings } from '../settings.js';

const KEEP_ALIVE_MS = 30_000;

/** How long one address of a name is tried before the next one, in milliseconds. Node's own 250 ms are too few for far servers. */
const ADDRESS_TIMEOUT_MS = 2_500;

/** The protocols of ALPN that the SDK negotiates. */
export type Alpn = 'h2' | 'http/1.1';

/** The property of an error of a connection that was never made, so that nothing was sent by it. */
export const notSent: unique symbol = Symbol('bindery.notSent');

/** A connection that the SDK itself gave up. */
export class DialError extends Error {
  readonly fault: TransportFault;

  constructor(fault: TransportFault, message: string) {
    super(message);
    this.name = 'DialError';
    this.fault = fault;
  }
}

/** Opens connections to the address of a client. */
export class Dialer {
  readonly #settings: Settings;
  #secureContext: tls.SecureContext | undefined;

  constructor(settings: Settings) {
    this.#settings = settings;
  }

  /** Opens a connection that speaks this protocol. What goes wrong is an `error` of the socket. */
  dial(alpn: Alpn): Socket {
    const { address, connectTimeoutMs } = this.#settings;
    const isTls = address.scheme === 'https';
    const socket = isTls ? this.#dialTls(alpn) : connectTcp(this.#tcpOptions());
    const timer = setTimeout(() => {
      socket.destroy(new DialError('connectTimeout', `no connection within ${connectTimeoutMs / 1000} s`));
    }, connectTimeoutMs);
    const mark = (error: Error) => {
      Object.defineProperty(error, notSent, { value: true });
    };
    // Before the listeners of others, who already look at the error.
    socket.prependListener('error', mark);
    socket.once('close', () => clearTimeout(timer));
    socket.prependOnceListener(isTls ? 'secureConnect' : 'connect', () => {
      clearTimeout(timer);
      const fault = isTls ? alpnFault(socket as tls.TLSSocket, alpn) : undefined;
      if (fault === undefined) socket.off('error', mark);
      else socket.destroy(fault);
    });
    return socket;
  }

  #tcpOptions() {
    const { host, port } = this.#settings.address;
    return {
      host,
      port,
      noDelay: true,
      keepAlive: true,
      keepAliveInitialDelay: KEEP_ALIVE_MS,
      autoSelectFamily: true,
      autoSelectFamilyAttemptTimeout: ADDRESS_TIMEOUT_MS,
    };
  }

  #dialTls(alpn: Alpn): tls.TLSSocket {
    const { address, tls: settings } = this.#settings;
    const name = settings.serverName ?? address.host;
    this.#secureContext ??= tls.createSecureContext({ ...settings.clientCertificate, ca: settings.ca ?? systemCas() });
    return tls.connect({
      ...this.#tcpOptions(),
      secureContext: this.#secureContext,
      ALPNProtocols: [alpn],
      // An IP address must not stand in SNI; the certificate is checked against it all the same.
      ...(isIp(name) ? {} : { servername: name }),
      checkServerIdentity: (_host, certificate) => tls.checkServerIdentity(name, certificate),
    });
  }
}

function alpnFault(socket: tls.TLSSocket, wanted: Alpn): DialError | undefined {
  const got = socket.alpnProtocol;
  // A server that does not negotiate speaks HTTP/1.1.
  if (got === wanted || (wanted === 'http/1.1' && typeof got !== 'string')) return undefined;
  return new DialError('noHttp2', `TLS negotiated ${typeof got === 'string' ? got : 'no protocol'} in place of ${wanted}`);
}

function isIp(name: string): boolean {
  return /^[\d.]+$/.test(name) || name.includes(':');
}

/** The CAs of Node.js with those of the system; undefined, which means those of Node.js, where it cannot name them (before 22.15). */
function systemCas(): string[] | undefined {
  const { getCACertificates } = tls as { getCACertificates?: (type: 'default' | 'system') => string[] };
  if (getCACertificates === undefined) return undefined;
  return [...new Set([...getCACertificates('default'), ...getCACertificates('system')])];
}
