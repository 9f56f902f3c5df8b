// Sources of bearer tokens.

import { BinderyError, tokenError } from '../errors/error.js';

/** Length limit of a token in bytes, so that it fits the headers that a server accepts. */
const TOKEN_LENGTH_MAX = 15 * 1024;

/** Provides the token of each call. It is asked before each attempt, so it should remember its token. */
export interface TokenSource {
  /** Returns the token to send now, without "Bearer". The call waits for it until its own deadline. */
  token(): string | Promise<string>;
  /**
   * Drops this token, which the server called expired or invalid, if it is still the one that the source remembers: another call may
   * have caused a new one already. A fetch that began before must not bring it back.
   */
  forget?(token: string): void;
}

/** What can be given as the tokens of a client. */
export type TokenInput = string | TokenSource | (() => string | Promise<string>);

/** A token source throws this error if it has no token until its user logs in again. A watch ends with it. */
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

/** Makes the error for a source that threw. What a function of the user threw becomes the cause; its text may quote a token. */
export function sourceError(cause: unknown): BinderyError {
  if (cause instanceof BinderyError && cause.kind === 'token') return cause;
  if (cause instanceof LoggedOutError) {
    return tokenError('LoggedOut', 'there is no token until the user logs in again; the cause of this error says why', { cause });
  }
  const type = cause instanceof Error ? cause.name : typeof cause;
  const message = `cannot get a token: the token source threw a value of type ${type}, which is the cause of this error`;
  return tokenError('TokenSourceFailed', message, { cause });
}

/** Makes the error for a source that gave no token before the deadline of the call. */
export function slowSourceError(waitedMs: number): BinderyError {
  const seconds = (waitedMs / 1000).toFixed(1);
  return tokenError('TokenSourceFailed', `cannot get a token: the token source gave none within ${seconds} s, the time limit of the call`);
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
