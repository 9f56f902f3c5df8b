// The tokens of one call, or of one watch.

import type { BinderyError } from '../errors/error.js';
import type { TokenSource } from './source.js';

/** Remembers the token that was last sent, and the server's error that called it expired or invalid. */
export class TokenMemory {
  #last: string | undefined;
  #rejected: BinderyError | undefined;
  #isRefreshed = false;

  /** Notes the token to send. Throws the server's error if it is the token that the server just refused. */
  send(token: string): void {
    const [last, rejected] = [this.#last, this.#rejected];
    this.#last = token;
    this.#rejected = undefined;
    if (rejected !== undefined && last === token) throw rejected;
  }

  /** Notes that the server accepted the token, so that its expiry causes another refresh. */
  accepted(): void {
    this.#isRefreshed = false;
  }

  /**
   * Makes the source forget a token that the server called expired or invalid, once per token, and tells whether to try again at
   * once. A token also becomes invalid before its time when its issuer changes its keys.
   */
  refresh(source: TokenSource | undefined, error: BinderyError): 'retry' | 'give up' | 'not a token' {
    const { details } = error;
    const isRejected =
      details.kind === 'status' &&
      details.code === 'UNAUTHENTICATED' &&
      (details.reason === 'TOKEN_EXPIRED' || details.reason === 'TOKEN_INVALID');
    if (source === undefined || !isRejected) return 'not a token';
    if (this.#isRefreshed) return 'give up';
    this.#isRefreshed = true;
    this.#rejected = error;
    source.expired?.();
    return 'retry';
  }
}
