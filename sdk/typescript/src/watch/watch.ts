// Watches that reconnect and resume by themselves.

import type { Caller } from '../call.js';
import { BinderyError, cancelledError, deadlineError, protocolError, transportError } from '../errors/error.js';
import { delay, type RetryPolicy } from '../retry.js';
import { TokenMemory } from '../tokens/memory.js';
import { allowSharing } from '../within.js';
import type { WatchEvent, WatchMessage } from './events.js';
import { isFinal } from './final.js';
import { Tracker, WatchFault } from './tracker.js';

/** A stream without a message for this long is closed, in milliseconds; servers send one every 30 s. */
const SILENCE_MAX_MS = 90_000;

/** Time limit on opening a stream, in milliseconds. */
const OPEN_TIMEOUT_MS = 30_000;

/** After a stream that lasted this long, the delay before the next one is the shortest; in milliseconds. */
const GOOD_AFTER_MS = 10_000;

/** Limit on the delay that a server may ask for, in milliseconds. */
const RETRY_AFTER_MAX_MS = 5 * 60_000;

/** Random delays between attempts: when a server ends, all its clients reconnect. */
const RECONNECT: RetryPolicy = { attempts: Infinity, baseMs: 1_000, capMs: 30_000 };

/** Settings of a watch. */
export interface WatchOptions {
  /** Ends the watch when it is aborted: it fails with an error of kind `cancelled`. */
  readonly signal?: AbortSignal | undefined;
}

/** Messages of an open stream, and the id of its call. */
export interface OpenedStream<T> {
  readonly messages: AsyncIterable<WatchMessage<T>>;
  readonly requestId: string;
}

/** Opens the stream of a watch from a resume token, which is empty for a snapshot. */
export type OpenStream<T> = (token: string, tokens: TokenMemory, signal: AbortSignal) => Promise<OpenedStream<T>>;

interface Stream<T> {
  readonly messages: AsyncIterator<WatchMessage<T>>;
  readonly requestId: string;
  readonly since: number;
}

/**
 * Events of a watch, as an async iterator that reconnects with a resume token after random delays. It throws, and ends, only where a
 * retry cannot help: the token is refused, a right is missing, or the contract does not exist.
 *
 * An event counts as processed when the next one is asked for; {@link Watch.resumeToken} and reconnects rely on that.
 */
export class Watch<T> implements AsyncIterableIterator<WatchEvent<T>> {
  readonly #caller: Caller;
  readonly #open: OpenStream<T>;
  readonly #tokens = new TokenMemory();
  readonly #tracker: Tracker;
  readonly #reconnect: RetryPolicy;
  readonly #silenceMs: number;
  readonly #random: () => number;
  /** Undoes what ends the watch from outside. */
  readonly #unlink: () => void;
  /** Aborts the present stream, or the pause before it. */
  #abort = new AbortController();
  #stream: Stream<T> | undefined;
  /** Aborts the stream if it is silent while it is read. */
  #silence: NodeJS.Timeout | undefined;
  #isReading = false;
  #isSilent = false;
  /** Number of streams in a row that failed early. */
  #failures = 0;
  #pauseMs = 0;
  #state: 'running' | 'closed' | 'cancelled' | 'ended' = 'running';
  #queue: Promise<unknown> = Promise.resolve();
  /** Resume token of the last event that was processed. */
  #acted: string;
  /** Resume token of the event that was yielded last. */
  #handed: string | undefined;

  /** @internal */
  constructor(caller: Caller, token: string, open: OpenStream<T>, { signal }: WatchOptions) {
    this.#caller = caller;
    this.#open = open;
    this.#tracker = new Tracker(token);
    this.#acted = token;
    const { reconnect, silenceMs, random } = caller.settings.testing;
    this.#reconnect = { ...RECONNECT, ...reconnect };
    this.#silenceMs = silenceMs ?? SILENCE_MAX_MS;
    this.#random = random ?? Math.random;
    this.#unlink = this.#link(signal);
  }

  /**
   * The token with which another watch with the same filter can resume, also with other credentials. Empty until a snapshot is
   * complete.
   */
  get resumeToken(): string {
    return this.#acted;
  }

  /** Returns the next event. Calls at the same time are answered one after the other. */
  next(): Promise<IteratorResult<WatchEvent<T>, undefined>> {
    const result = this.#queue.then(() => this.#next());
    this.#queue = result.catch(() => undefined);
    return result;
  }

  /** Ends the watch. A pending `next` and all later ones are done. */
  close(): void {
    this.#stop('closed');
  }

  /** Ends the watch, as `break` in a `for await` does. */
  return(): Promise<IteratorResult<WatchEvent<T>, undefined>> {
    this.close();
    return Promise.resolve({ done: true, value: undefined });
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async #next(): Promise<IteratorResult<WatchEvent<T>, undefined>> {
    this.#acted = this.#handed ?? this.#acted;
    this.#handed = undefined;
    try {
      if (this.#state === 'running') {
        const value = await this.#step();
        if (this.#isRunning()) {
          this.#handed = this.#tracker.token;
          return { done: false, value };
        }
      }
    } catch (error) {
      if (this.#isRunning()) {
        this.#stop('ended');
        throw error;
      }
    }
    if (this.#state === 'cancelled') {
      this.#state = 'ended';
      throw cancelledError(this.#caller.isClosed ? 'the client was closed' : 'the watch was cancelled');
    }
    return { done: true, value: undefined };
  }

  async #step(): Promise<WatchEvent<T>> {
    for (;;) {
      if (this.#stream === undefined) {
        if (this.#pauseMs > 0) await this.#caller.pause(this.#pauseMs, this.#abort.signal);
        return this.#connect();
      }
      const event = await this.#read(this.#stream);
      if (event !== undefined) return event;
    }
  }

  async #connect(): Promise<WatchEvent<T>> {
    const resumed = this.#tracker.connect();
    this.#abort = new AbortController();
    let isLate = false;
    const timer = setTimeout(() => {
      isLate = true;
      this.#abort.abort();
    }, OPEN_TIMEOUT_MS);
    try {
      const { messages, requestId } = await this.#open(this.#tracker.token, this.#tokens, this.#abort.signal);
      this.#tokens.accepted();
      this.#stream = { messages: messages[Symbol.asyncIterator](), requestId, since: performance.now() };
      return { type: 'connected', resumed };
    } catch (error) {
      return this.#fail(isLate ? deadlineError(this.#caller.address, OPEN_TIMEOUT_MS, '') : (error as BinderyError));
    } finally {
      clearTimeout(timer);
    }
  }

  /** Reads one message; returns undefined if it is no event. */
  async #read(stream: Stream<T>): Promise<WatchEvent<T> | undefined> {
    let result: IteratorResult<WatchMessage<T>>;
    this.#startSilence();
    try {
      result = await stream.messages.next();
    } catch (thrown) {
      return this.#fail(this.#isSilent ? this.#silent() : this.#caller.streamError(thrown, stream.requestId, this.#abort.signal));
    } finally {
      this.#isReading = false;
    }
    if (result.done === true) return this.#disconnect(undefined);
    try {
      return this.#tracker.step(result.value);
    } catch (fault) {
      if (!(fault instanceof WatchFault)) throw fault;
      return this.#fail(protocolError(this.#caller.address, fault.message));
    }
  }

  /** Decides after a failed stream whether to open another one, or to end the watch by throwing. */
  #fail(error: BinderyError): WatchEvent<T> {
    if (error.reason === 'RESUME_TOKEN_INVALID' && this.#tracker.token !== '') {
      this.#tracker.forget();
      return this.#disconnect(error);
    }
    const verdict = this.#tokens.refresh(this.#caller.settings.tokens, error);
    if (verdict === 'retry') return this.#disconnect(undefined);
    if (verdict === 'give up' || isFinal(error)) throw error;
    return this.#disconnect(error);
  }

  #disconnect(error: BinderyError | undefined): WatchEvent<T> {
    const wasGood = this.#stream !== undefined && performance.now() - this.#stream.since >= GOOD_AFTER_MS;
    this.#failures = wasGood ? 1 : this.#failures + 1;
    this.#closeStream();
    this.#abort = new AbortController();
    const askedMs = error?.details.kind === 'status' ? (error.details.retryAfterMs ?? 0) : 0;
    const leastMs = Math.min(askedMs, RETRY_AFTER_MAX_MS);
    this.#pauseMs = delay(this.#reconnect, this.#failures, leastMs, this.#random());
    return { type: 'disconnected', ...(error && { error }), retryInMs: this.#pauseMs };
  }

  #startSilence(): void {
    this.#isReading = true;
    this.#isSilent = false;
    // One timer for all messages of a stream. It also runs while the event is processed, and says nothing then.
    this.#silence ??= setTimeout(() => {
      if (!this.#isReading) return;
      this.#isSilent = true;
      this.#abort.abort();
    }, this.#silenceMs);
    this.#silence.refresh();
  }

  #silent(): BinderyError {
    return transportError({ address: this.#caller.address, fault: 'silent', detail: '', connecting: false });
  }

  #closeStream(): void {
    clearTimeout(this.#silence);
    this.#silence = undefined;
    this.#stream = undefined;
    this.#abort.abort();
  }

  #isRunning(): boolean {
    return this.#state === 'running';
  }

  #stop(state: 'closed' | 'cancelled' | 'ended'): void {
    if (this.#state !== 'running') return;
    this.#state = state;
    this.#unlink();
    this.#closeStream();
  }

  /** Ends the watch with the client and with the caller's signal. */
  #link(signal: AbortSignal | undefined): () => void {
    const cancel = () => this.#stop('cancelled');
    if (signal?.aborted === true || this.#caller.isClosed) {
      this.#state = 'cancelled';
      return cancel;
    }
    allowSharing(signal);
    signal?.addEventListener('abort', cancel, { once: true });
    const unlinkClient = this.#caller.onClose(cancel);
    return () => {
      signal?.removeEventListener('abort', cancel);
      unlinkClient();
    };
  }
}
