// The settings of a client, checked before the first call.

import { X509Certificate, createPrivateKey } from 'node:crypto';
import { readFileSync } from 'node:fs';

import type { Transport } from '@connectrpc/connect';

import { parseAddress, type Address } from './address.js';
import { ConfigError, type ConfigReason } from './errors/config.js';
import { DEFAULT_RETRY, type RetryPolicy } from './retry.js';
import { testing, type TestSettings } from './testing.js';
import { toTokenSource, type TokenInput, type TokenSource } from './tokens/source.js';
import { USER_AGENT } from './version.js';

/** Longest time limit, in milliseconds: a day. */
const TIMEOUT_MAX_MS = 24 * 60 * 60 * 1000;

const CONNECT_TIMEOUT_MS = 10_000;

/** Which protocol a client speaks: gRPC over HTTP/2, gRPC-Web over HTTP/1.1, or gRPC wherever HTTP/2 can be negotiated. */
export type Protocol = 'auto' | 'grpc' | 'grpc-web';

/** A certificate by which the client shows the server who it is, and its private key, both PEM. */
export interface ClientCertificate {
  /** The certificate, with its intermediates. */
  readonly certificate: string | Uint8Array;
  /** The private key. */
  readonly key: string | Uint8Array;
}

/** Settings of a client. */
export interface ClientOptions {
  /** Tokens of the calls: a token, a function that returns one, or a source such as {@link fileToken} makes. */
  readonly token?: TokenInput | undefined;
  /** CA certificates (PEM) that are trusted instead of those of the system. */
  readonly ca?: string | Uint8Array | undefined;
  /** File with CA certificates (PEM) that are trusted instead of those of the system; it is read once. */
  readonly caFile?: string | undefined;
  /** Name that the server's certificate must be for, instead of the host of the address. */
  readonly serverName?: string | undefined;
  /** Certificate that is presented if the server asks for one. A token is needed all the same. */
  readonly clientCertificate?: ClientCertificate | undefined;
  /** Allows `http://` to a loopback address. It is never allowed to other hosts. */
  readonly allowPlaintext?: boolean | undefined;
  /** Time limit of a call with all its attempts, in milliseconds: 30,000, and longer for calls that wait for a controller. */
  readonly timeoutMs?: number | undefined;
  /** Time limit of one attempt, in milliseconds: 10,000, and longer for calls that wait for a controller. */
  readonly attemptTimeoutMs?: number | undefined;
  /** Time limit on connecting, TLS included, in milliseconds: 10,000. */
  readonly connectTimeoutMs?: number | undefined;
  /** How often and how soon failed calls are tried again. */
  readonly retry?: Partial<RetryPolicy> | undefined;
  /** User agent, which precedes the SDK's own in the server's log. */
  readonly userAgent?: string | undefined;
  /** Which protocol to speak: `auto` unless set, which falls back to gRPC-Web where a proxy does not speak HTTP/2. */
  readonly protocol?: Protocol | undefined;
  /**
   * Sends calls by this transport of Connect instead of an own connection, for example by an in-memory one. The address still
   * determines the audience and the names in errors; TLS, user agent and protocol are those of the transport.
   */
  readonly transport?: Transport | undefined;
  /** @internal */
  readonly [testing]?: TestSettings | undefined;
}

/** TLS as it is used for every connection. */
export interface TlsSettings {
  readonly ca: string | undefined;
  readonly serverName: string | undefined;
  readonly clientCertificate: { readonly cert: string; readonly key: string } | undefined;
}

/** Checked settings. */
export interface Settings {
  readonly address: Address;
  readonly tls: TlsSettings;
  readonly tokens: TokenSource | undefined;
  readonly timeoutMs: number | undefined;
  readonly attemptTimeoutMs: number | undefined;
  readonly connectTimeoutMs: number;
  readonly retry: RetryPolicy;
  readonly userAgent: string;
  readonly protocol: Protocol;
  readonly transport: Transport | undefined;
  readonly testing: TestSettings;
}

/** Checks settings; throws a ConfigError that names the first one that cannot work. */
export function check(text: string, options: ClientOptions): Settings {
  const address = parseAddress(text);
  checkPlaintext(address, options.allowPlaintext ?? false);
  return {
    address,
    tls: {
      ca: readCa(address, options),
      serverName: checkServerName(options.serverName),
      clientCertificate: options.clientCertificate && checkClientCertificate(address, options.clientCertificate),
    },
    tokens: options.token === undefined ? undefined : toTokenSource(options.token),
    timeoutMs: options.timeoutMs === undefined ? undefined : checkTimeout('timeoutMs', options.timeoutMs),
    attemptTimeoutMs:
      options.attemptTimeoutMs === undefined ? undefined : checkTimeout('attemptTimeoutMs', options.attemptTimeoutMs),
    connectTimeoutMs: checkTimeout('connectTimeoutMs', options.connectTimeoutMs ?? CONNECT_TIMEOUT_MS),
    retry: checkRetry({ ...DEFAULT_RETRY, ...defined(options.retry ?? {}) }),
    userAgent: checkUserAgent(options.userAgent),
    protocol: options.protocol ?? 'auto',
    transport: options.transport,
    testing: options[testing] ?? {},
  };
}

/** Checks a time limit in milliseconds, and rounds it up to whole ones. */
export function checkTimeout(name: string, ms: number): number {
  if (!(ms > 0 && ms <= TIMEOUT_MAX_MS)) {
    fail('SettingInvalid', `${name} is ${ms}; give milliseconds, more than 0 and at most ${TIMEOUT_MAX_MS}`);
  }
  return Math.ceil(ms);
}

function checkPlaintext(address: Address, isAllowed: boolean): void {
  if (address.scheme === 'https') return;
  const why = `${address.text} is plaintext, over which tokens could be read`;
  if (!address.isLoopback) {
    fail('PlaintextRefused', `${why}; dial https://, plaintext is for loopback addresses alone`);
  }
  if (!isAllowed) fail('PlaintextRefused', `${why}; dial https://, or allow plaintext explicitly`);
}

function readCa(address: Address, options: ClientOptions): string | undefined {
  if (options.ca !== undefined && options.caFile !== undefined) {
    fail('CaInvalid', `the CA certificates for ${address.text} are given twice; give either ca or caFile`);
  }
  const pem = options.ca === undefined ? readCaFile(address, options.caFile) : pemText(options.ca);
  if (pem === undefined) return undefined;
  const refuse = (fault: string) =>
    fail(
      'CaInvalid',
      `the CA certificates for ${address.text} cannot be used: ${fault}; give one or more PEM blocks of type CERTIFICATE`,
    );
  const blocks = pem.match(/-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----/g);
  if (blocks === null) return refuse('there is none');
  for (const block of blocks) {
    try {
      new X509Certificate(block);
    } catch (error) {
      refuse(messageOf(error));
    }
  }
  return blocks.join('\n');
}

function readCaFile(address: Address, path: string | undefined): string | undefined {
  if (path === undefined) return undefined;
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    return fail('CaInvalid', `the CA certificates for ${address.text} cannot be read: ${messageOf(error)}`);
  }
}

function checkClientCertificate(address: Address, client: ClientCertificate): { cert: string; key: string } {
  const cert = pemText(client.certificate);
  const key = pemText(client.key);
  const refuse = (fault: string) =>
    fail(
      'ClientCertificateInvalid',
      `the client certificate for ${address.text} cannot be used: ${fault}; give its chain and its private key, both PEM`,
    );
  let leaf: X509Certificate;
  try {
    leaf = new X509Certificate(cert);
  } catch (error) {
    return refuse(`the certificate: ${messageOf(error)}`);
  }
  try {
    if (!leaf.checkPrivateKey(createPrivateKey(key))) refuse('the private key is not that of the certificate');
  } catch (error) {
    if (error instanceof ConfigError) throw error;
    // What the library says of a key is not shown: it may quote the file.
    refuse('the private key: it is no PEM of a private key');
  }
  return { cert, key };
}

function checkServerName(name: string | undefined): string | undefined {
  if (name !== undefined && !/^[A-Za-z0-9._:-]{1,253}$/.test(name)) {
    fail('SettingInvalid', `the server name ${JSON.stringify(name)} is neither a DNS name nor an IP address`);
  }
  return name;
}

function checkUserAgent(name: string | undefined): string {
  if (name === undefined) return USER_AGENT;
  if (!/^[\x20-\x7e]+$/.test(name)) {
    fail('UserAgentInvalid', `the user agent ${JSON.stringify(name)} cannot stand in a header`);
  }
  return `${name} ${USER_AGENT}`;
}

function checkRetry(retry: RetryPolicy): RetryPolicy {
  const { attempts, baseMs, capMs } = retry;
  if (!Number.isInteger(attempts) || attempts < 1) {
    fail('SettingInvalid', `retry.attempts is ${attempts}; give a whole number of at least 1`);
  }
  for (const [name, ms] of [['baseMs', baseMs], ['capMs', capMs]] as const) {
    if (!(ms >= 0 && ms <= TIMEOUT_MAX_MS)) {
      fail('SettingInvalid', `retry.${name} is ${ms}; give milliseconds, from 0 to ${TIMEOUT_MAX_MS}`);
    }
  }
  return retry;
}

function defined<T extends object>(values: T): { [K in keyof T]: Exclude<T[K], undefined> } {
  const entries = Object.entries(values).filter(([, value]) => value !== undefined);
  return Object.fromEntries(entries) as { [K in keyof T]: Exclude<T[K], undefined> };
}

function pemText(pem: string | Uint8Array): string {
  return typeof pem === 'string' ? pem : Buffer.from(pem).toString('latin1');
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

function fail(reason: ConfigReason, message: string): never {
  throw new ConfigError(reason, message);
}
