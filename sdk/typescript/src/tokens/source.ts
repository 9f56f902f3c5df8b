// Sources of bearer tokens.

import { BinderyError, tokenError } from '../errors/error.js';
import { printable } from '../errors/text.js';

/** Length limit of a token in bytes, so that it fits the headers that a server accepts. */
const TOKEN_LENGTH_MAX = 15 * 1024;

/** Provides the token of each call. It is asked once per attempt, so it should answer from memory. */
export interface TokenSource {
  /** Returns the token to send now, without "Bearer". */
  token(): string | Promise<string>;
  /** Drops a remembered token: the server said that it has expired, or is not valid any more. */
  expired?(): void;
}

/** What can be given as the tokens of a client. */
export type TokenInput = string | TokenSource | (() => string | Promise<string>);

/** A token source throws this error if it has no token until somebody logs in again. A watch ends with it. */
export class LoggedOutError extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'LoggedOutError';
  }
}

/** Makes a source that always returns the same token. */
export function staticToken(token: string): TokenSource {
  return new StaticToken(token);
}

/** Makes a source of a function, which is called for each attempt. */
export function functionToken(source: () => string | Promise<string>): TokenSource {
  return new FunctionToken(source);
}

/** @internal */
export function toTokenSource(input: TokenInput): TokenSource {
  if (typeof input === 'string') return new StaticToken(input);
  return typeof input === 'function' ? new FunctionToken(input) : input;
}

/** Checks that a token can stand in the header `authorization`. */
export function checkToken(token: unknown): string {
  if (typeof token !== 'string') {
    throw tokenError('TokenSourceFailed', `the token source gave a value of type ${typeof token} in place of a token`);
  }
  if (token === '') throw tokenError('TokenEmpty', 'the token is empty; give one that is for the audience of the backend');
  if (token.length > TOKEN_LENGTH_MAX) {
    throw tokenError('TokenTooLong', `the token has ${token.length} bytes, which is more than ${TOKEN_LENGTH_MAX}`);
  }
  if (!/^[\x21-\x7e]+$/.test(token)) {
    throw tokenError('TokenMalformed', 'the token holds spaces, line breaks or other characters that no token has');
  }
  return token;
}

/** Makes the error for a source that threw. */
export function sourceError(error: unknown): BinderyError {
  if (error instanceof BinderyError) return error;
  const message = printable(error instanceof Error ? error.message : String(error));
  return error instanceof LoggedOutError
    ? tokenError('LoggedOut', `there is no token: ${message}`)
    : tokenError('TokenSourceFailed', `cannot get a token: ${message}`);
}

class StaticToken implements TokenSource {
  readonly #token: string;

  constructor(token: string) {
    this.#token = token;
  }

  token(): string {
    return this.#token;
  }
}

class FunctionToken implements TokenSource {
  readonly #source: () => string | Promise<string>;

  constructor(source: () => string | Promise<string>) {
    this.#source = source;
  }

  token(): string | Promise<string> {
    return this.#source();
  }
}
