// Fetches of tokens that many callers share.

/** Fetches tokens one at a time for all callers, and returns none that a server refused while it was fetched. */
export class SharedTokenFetch {
  readonly #fetch: (isRefused: (token: string) => boolean) => Promise<string>;
  #running: { readonly token: Promise<string>; readonly refused: Set<string> } | undefined;

  /** @param fetch - Fetches a token, and remembers it unless `isRefused` says that a server refused it meanwhile. */
  constructor(fetch: (isRefused: (token: string) => boolean) => Promise<string>) {
    this.#fetch = fetch;
  }

  /** Returns the token of the fetch in progress, which goes on if its callers give up, or of a new one. */
  async token(): Promise<string> {
    for (;;) {
      const { token, refused } = (this.#running ??= this.#begin());
      const fetched = await token;
      // A fetch that began before a refusal may bring the refused token; one that begins now brings what there is.
      if (!refused.has(fetched)) return fetched;
    }
  }

  /** Notes that a server refused a token: the fetch in progress must not bring it back. */
  refuse(token: string): void {
    this.#running?.refused.add(token);
  }

  #begin() {
    const refused = new Set<string>();
    const token = this.#fetch((fetched) => refused.has(fetched)).finally(() => {
      this.#running = undefined;
    });
    return { token, refused };
  }
}
