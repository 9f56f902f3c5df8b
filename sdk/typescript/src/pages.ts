// Lists, page by page.

import { protocolError } from './errors/error.js';

/** Limit on the pages of one list: half a million objects at the default page size. */
const PAGES_MAX = 10_000;

/** One page of a list, and the token of the next one, which is empty on the last page. */
export interface Page<T> {
  readonly items: T[];
  readonly nextPageToken: string;
}

/** A list as an async iterable. Pages are fetched as they are needed; each iteration begins anew. */
export class Pages<T> implements AsyncIterable<T> {
  readonly #address: string;
  readonly #first: string;
  readonly #fetch: (pageToken: string) => Promise<Page<T>>;

  /** @internal */
  constructor(address: string, first: string, fetch: (pageToken: string) => Promise<Page<T>>) {
    this.#address = address;
    this.#first = first;
    this.#fetch = fetch;
  }

  /** Iterates over the objects of all pages. */
  async *[Symbol.asyncIterator](): AsyncGenerator<T, void, undefined> {
    for await (const page of this.pages()) yield* page;
  }

  /** Iterates over the pages. A page may be empty although more pages follow. */
  async *pages(): AsyncGenerator<T[], void, undefined> {
    let token = this.#first;
    for (let count = 0; count < PAGES_MAX; count += 1) {
      const { items, nextPageToken } = await this.#fetch(token);
      yield items;
      if (nextPageToken === '') return;
      if (nextPageToken === token) throw protocolError(this.#address, 'a page names itself as the next one');
      token = nextPageToken;
    }
    throw protocolError(this.#address, `a list has more than ${PAGES_MAX} pages`);
  }

  /** Returns the objects of all pages. */
  async all(): Promise<T[]> {
    const items: T[] = [];
    for await (const item of this) items.push(item);
    return items;
  }
}
