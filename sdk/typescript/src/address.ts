// The address of a backend, and the audience that goes with it. Each address has one spelling, because a server derives the audience
// that it demands from its own address by the same rules.

import { isIPv4, isIPv6 } from 'node:net';

import { ConfigError } from './errors/config.js';

/** Longest host name that DNS knows. */
const HOST_LENGTH_MAX = 253;

const DEFAULT_PORTS = { https: 443, http: 80 } as const;

/** Where a backend is. */
export interface Address {
  /** `https` for TLS, `http` for plaintext. */
  readonly scheme: 'https' | 'http';
  /** Host name or IP address, without the brackets of an IPv6 address. */
  readonly host: string;
  /** Port, also if it is the default of the scheme. */
  readonly port: number;
  /** Path of the API behind a proxy, such as `/bindery`; empty if there is none. */
  readonly prefix: string;
  /** The address in its one spelling, which is also the audience of tokens. */
  readonly text: string;
  /** Whether no byte leaves this machine: a loopback IP address, or `localhost`. */
  readonly isLoopback: boolean;
}

/**
 * Returns the audience that tokens for the backend at this address must have. `HTTPS://Bind.Example.com:443/` and
 * `bind.example.com` both give `https://bind.example.com`.
 *
 * @throws ConfigError if the text is not an address of a backend.
 */
export function audience(address: string): string {
  return parseAddress(address).text;
}

/** Parses the address of a backend; a missing scheme is https. */
export function parseAddress(text: string): Address {
  const refuse = (fault: string): never => {
    throw new ConfigError(
      'AddressInvalid',
      `${JSON.stringify(text)} is no address of a backend: ${fault}; write https://host or https://host:port`,
    );
  };
  const [scheme, rest] = splitScheme(text, refuse);
  if (/[?#]/.test(rest)) refuse('it has a query or a fragment');
  const slash = rest.indexOf('/');
  const authority = slash < 0 ? rest : rest.slice(0, slash);
  if (authority.includes('@')) refuse('it names a user');
  const prefix = parsePrefix(slash < 0 ? '' : rest.slice(slash), refuse);
  const { host, isV6, digits } = splitPort(authority, refuse);
  const port = digits === undefined ? DEFAULT_PORTS[scheme] : parsePort(digits, refuse);
  const suffix = port === DEFAULT_PORTS[scheme] ? '' : `:${port}`;
  return {
    scheme,
    host,
    port,
    prefix,
    text: `${scheme}://${isV6 ? `[${host}]` : host}${suffix}${prefix}`,
    isLoopback: host === 'localhost' || host === '::1' || (isIPv4(host) && host.startsWith('127.')),
  };
}

type Refuse = (fault: string) => never;

function splitScheme(text: string, refuse: Refuse): ['https' | 'http', string] {
  const at = text.indexOf('://');
  if (at < 0) return ['https', text];
  const scheme = text.slice(0, at).toLowerCase();
  if (scheme !== 'https' && scheme !== 'http') return refuse('its scheme is neither https nor http');
  return [scheme, text.slice(at + 3)];
}

function parsePrefix(path: string, refuse: Refuse): string {
  const trimmed = path.endsWith('/') ? path.slice(0, -1) : path;
  if (trimmed === '') return '';
  const isSegment = (segment: string) => /^[A-Za-z0-9._~-]+$/.test(segment) && segment !== '.' && segment !== '..';
  if (!trimmed.slice(1).split('/').every(isSegment)) refuse('its path has something other than plain segments');
  return trimmed;
}

function splitPort(authority: string, refuse: Refuse): { host: string; isV6: boolean; digits: string | undefined } {
  if (authority.startsWith('[')) {
    const end = authority.indexOf(']');
    if (end < 0) refuse('its bracket is not closed');
    const ip = authority.slice(1, end);
    const rest = authority.slice(end + 1);
    if (!isIPv6(ip) || ip.includes('%')) refuse('what stands in brackets is no IPv6 address');
    if (rest !== '' && !rest.startsWith(':')) refuse('something other than a port follows the IPv6 address');
    return { host: shortestIpv6(ip), isV6: true, digits: rest === '' ? undefined : rest.slice(1) };
  }
  const colon = authority.indexOf(':');
  const host = colon < 0 ? authority : authority.slice(0, colon);
  return { host: parseHost(host, refuse), isV6: false, digits: colon < 0 ? undefined : authority.slice(colon + 1) };
}

function parseHost(host: string, refuse: Refuse): string {
  if (isIPv4(host)) return host;
  if (host === '') refuse('it has no host');
  const labels = host.split('.');
  const fits = (label: string) => /^[A-Za-z0-9_-]{1,63}$/.test(label);
  // A last label of digits would be read as part of an IPv4 address by others, and as another one.
  const looksLikeIp = /^(\d+|0[xX][0-9a-fA-F]*)$/.test(labels.at(-1) ?? '');
  if (host.length > HOST_LENGTH_MAX || !labels.every(fits) || looksLikeIp) refuse('its host is no DNS name');
  return host.toLowerCase();
}

function parsePort(digits: string, refuse: Refuse): number {
  if (!/^\d*$/.test(digits)) refuse('its port is no number');
  const port = Number(digits);
  if (digits === '' || port < 1 || port > 65535) refuse('its port is not between 1 and 65535');
  return port;
}

/** Spells an IPv6 address by RFC 5952: lower case, the longest run of zeros as `::`, and IPv4 addresses in it with dots. */
function shortestIpv6(ip: string): string {
  const short = new URL(`http://[${ip}]/`).hostname.slice(1, -1);
  const mapped = /^::ffff:([0-9a-f]{1,4}):([0-9a-f]{1,4})$/.exec(short);
  if (mapped === null) return short;
  const bytes = [mapped[1], mapped[2]].flatMap((half) => {
    const number = Number.parseInt(half ?? '0', 16);
    return [number >> 8, number & 0xff];
  });
  return `::ffff:${bytes.join('.')}`;
}
