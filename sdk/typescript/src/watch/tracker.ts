// Tracks one watch across its streams: the resume token, and whether a snapshot is complete.

import { printable } from '../errors/text.js';
import type { RawEvent, WatchEvent, WatchMessage } from './events.js';

/** Where a stream stands: before its snapshot, in a snapshot that has brought so many objects, or after it. */
type Stage = 'expecting' | 'changes' | { objects: number };

/** How the server broke the protocol of a watch. */
export class WatchFault extends Error {}

/** The resume token and the stage of a watch. */
export class Tracker {
  #token: string;
  #stage: Stage = 'expecting';

  constructor(token: string) {
    this.#token = token;
  }

  /** Resume token; empty if a snapshot is needed. */
  get token(): string {
    return this.#token;
  }

  /** Prepares for a new stream, and discards an unfinished snapshot. Returns whether the stream resumes. */
  connect(): boolean {
    const resumes = this.#token !== '';
    this.#stage = resumes ? 'changes' : 'expecting';
    return resumes;
  }

  /** Drops the token that the server refused. */
  forget(): void {
    this.#token = '';
  }

  /**
   * Takes the next message; returns undefined for a heartbeat or an event that this version does not know.
   *
   * @throws WatchFault if the server broke the protocol; the stream must then be closed.
   */
  step<T>({ event, resumeToken }: WatchMessage<T>): WatchEvent<T> | undefined {
    let taken: WatchEvent<T> | undefined;
    try {
      taken = this.#take(event);
    } catch (fault) {
      this.#token = '';
      this.#stage = 'expecting';
      throw fault;
    }
    if (this.#stage === 'changes' && resumeToken !== '') this.#token = resumeToken;
    return taken;
  }

  #take<T>(event: RawEvent<T>): WatchEvent<T> | undefined {
    switch (event.case) {
      case 'snapshotBegin':
        this.#token = '';
        this.#stage = { objects: 0 };
        return { type: 'snapshotBegin', ...(event.value.resumeRefused && { refused: printable(event.value.reason) }) };
      case 'applied':
        if (this.#stage === 'expecting') throw new WatchFault('changes came before a snapshot');
        if (this.#stage === 'changes') return { type: 'applied', object: event.value, inSnapshot: false };
        this.#stage.objects += 1;
        return { type: 'applied', object: event.value, inSnapshot: true };
      case 'removed':
        if (this.#stage === 'expecting') throw new WatchFault('changes came before a snapshot');
        if (this.#stage !== 'changes') throw new WatchFault('a snapshot holds a removal');
        return { type: 'removed', removed: event.value };
      case 'snapshotComplete':
        return this.#complete(event.value.objectCount);
      case 'heartbeat':
      case undefined:
        return undefined;
    }
  }

  #complete(count: number): { type: 'snapshotComplete' } {
    if (typeof this.#stage === 'string') throw new WatchFault('a snapshot ended that had not begun');
    const { objects } = this.#stage;
    if (objects !== count) throw new WatchFault(`a snapshot counts ${count} objects and brought ${objects}`);
    this.#stage = 'changes';
    return { type: 'snapshotComplete' };
  }
}
