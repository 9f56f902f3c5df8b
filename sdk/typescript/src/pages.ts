// Lists, page by page.

import { protocolError } from './errors/error.js';

/** Limit on the pages of one list: half a million objects at the default page size. */
const PAGES_MAX = 10_000;

/** Number of recent page tokens that the next one is compared with: a list that goes round would never end. */
const TOKENS_REMEMBERED = 16;

/** One page of a list, and the token of the next one, which is empty on the last page. */
export interface ListPage<T> {
  readonly items: T[];
  readonly nextPageToken: string;
}

/** A list as an async iterable. Pages are fetched as they are needed; each iteration begins anew. */
export class Pages<T> implements AsyncIterable<T> {
  readonly #address: string;
  readonly #first: string;
  readonly #fetch: (pageToken: string) => Promise<ListPage<T>>;

  /** @internal */
  constructor(address: string, first: string, fetch: (pageToken: string) => Promise<ListPage<T>>) {
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
    const recent: string[] = [];
    for (let count = 0; count < PAGES_MAX; count += 1) {
      const { items, nextPageToken } = await this.#fetch(token);
      yield items;
      if (nextPageToken === '') return;
      recent.push(token);
      if (recent.length > TOKENS_REMEMBERED) recent.shift();
      if (recent.includes(nextPageToken)) {
        throw protocolError(this.#address, 'a page of a list names itself or an earlier page as the next one');
      }
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
