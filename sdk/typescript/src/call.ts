// The steps of one call: token, deadline, request id, size, retries.

import { randomUUID } from 'node:crypto';

import { create, toBinary } from '@bufbuild/protobuf';
import type {
  DescMessage,
  DescMethodServerStreaming,
  DescMethodUnary,
  MessageInitShape,
  MessageShape,
} from '@bufbuild/protobuf';

import { cancelledError, deadlineError, tooLargeError, BinderyError } from './errors/error.js';
import { MESSAGE_SEND_MAX } from './limits.js';
import { isIdempotent, isOpen, serverWaitMs, times } from './method.js';
import { redact } from './redact.js';
import { nextAttempt } from './retry.js';
import { checkTimeout, type Settings } from './settings.js';
import { TokenMemory } from './tokens/memory.js';
import { checkToken, sourceError, type TokenSource } from './tokens/source.js';
import { Channel } from './transport/channel.js';
import { errorOf } from './transport/faults.js';
import { allowSharing, within } from './within.js';

/** Settings of one call. */
export interface CallOptions {
  /** Gives up the call when it is aborted: the call fails with an error of kind `cancelled`. */
  readonly signal?: AbortSignal | undefined;
  /** Time limit of the call with all its attempts, in milliseconds, instead of that of the client. */
  readonly timeoutMs?: number | undefined;
}

/** A method without a stream. */
export type UnaryMethod<I extends DescMessage, O extends DescMessage> = DescMethodUnary<I, O>;

type Header = Record<string, string>;

/** One attempt of a call. */
interface Attempt {
  readonly requestId: string;
  readonly startedAt: number;
  /** When the attempt ends, by the clock of `performance.now()`. */
  readonly until: number;
  readonly signal: AbortSignal | undefined;
  readonly tokens: TokenMemory;
}

/** What clients with different tokens share. */
class Shared {
  readonly channel: Channel;
  /** Called when the connection is closed. */
  readonly closing = new Set<() => void>();
  isClosed = false;

  constructor(settings: Settings) {
    this.channel = new Channel(settings);
  }
}

/** Makes calls for a client. */
export class Caller {
  readonly settings: Settings;
  readonly #shared: Shared;
  readonly #random: () => number;

  constructor(settings: Settings, shared = new Shared(settings)) {
    this.settings = settings;
    this.#shared = shared;
    this.#random = settings.testing.random ?? Math.random;
  }

  /** Makes a caller with other tokens on the same connection. */
  withTokens(tokens: TokenSource): Caller {
    return new Caller({ ...this.settings, tokens }, this.#shared);
  }

  /** Address of the server, for errors. */
  get address(): string {
    return this.settings.address.text;
  }

  /** The protocol that the next call uses. */
  get protocol(): 'grpc' | 'grpc-web' {
    return this.#shared.channel.protocol;
  }

  /** Whether the client was closed. */
  get isClosed(): boolean {
    return this.#shared.isClosed;
  }

  /** Ends all connections; calls in progress fail with an error of kind `cancelled`. */
  close(): void {
    this.#shared.isClosed = true;
    this.#shared.channel.close();
    for (const callback of [...this.#shared.closing]) callback();
  }

  /** Makes a call without a stream, with retries. */
  async unary<I extends DescMessage, O extends DescMessage>(
    method: UnaryMethod<I, O>,
    request: MessageInitShape<I>,
    options: CallOptions = {},
  ): Promise<MessageShape<O>> {
    const { settings } = this;
    const { signal } = options;
    allowSharing(signal);
    const total = options.timeoutMs === undefined ? settings.timeoutMs : checkTimeout('timeoutMs', options.timeoutMs);
    const message = create(method.input, request);
    const { totalMs, attemptMs } = times(total, settings.attemptTimeoutMs, serverWaitMs(method.input, message));
    const requestId = newRequestId();
    const startedAt = performance.now();
    const deadline = startedAt + totalMs;
    const tokens = new TokenMemory();
    for (let attempts = 1; ; attempts += 1) {
      const until = Math.min(deadline, performance.now() + attemptMs);
      try {
        return await this.#attempt(method, message, { requestId, startedAt, until, signal, tokens });
      } catch (thrown) {
        const error = this.#failure(thrown, requestId, startedAt, signal);
        const verdict = tokens.refresh(settings.tokens, error);
        if (verdict === 'retry' && performance.now() < deadline) continue;
        if (verdict !== 'not a token') throw error;
        const left = deadline - performance.now();
        const ms = nextAttempt(settings.retry, error, isIdempotent(method), attempts, left, this.#random());
        if (ms === undefined) throw error;
        await this.pause(ms, signal);
      }
    }
  }

  /** Opens a stream without retries and without a deadline, and returns when the server has answered with headers. */
  async open<I extends DescMessage, O extends DescMessage>(
    method: DescMethodServerStreaming<I, O>,
    message: MessageShape<I>,
    tokens: TokenMemory,
    signal: AbortSignal,
  ): Promise<{ messages: AsyncIterable<MessageShape<O>>; requestId: string }> {
    const requestId = newRequestId();
    const startedAt = performance.now();
    try {
      if (this.isClosed) throw closedError();
      this.#checkSize(method.input, message, requestId);
      const pending = this.#header(method, requestId, tokens);
      const header = pending instanceof Promise ? await within(pending, Infinity, signal) : pending;
      const answer = await this.#shared.channel.call((transport) =>
        transport.stream(method, signal, undefined, header, once(message as MessageInitShape<I>)),
      );
      return { messages: answer.message, requestId };
    } catch (thrown) {
      throw this.#failure(thrown, requestId, startedAt, signal);
    }
  }

  /** Makes the error of a stream of what reading it threw. */
  streamError(thrown: unknown, requestId: string, signal: AbortSignal): BinderyError {
    return this.#failure(thrown, requestId, performance.now(), signal);
  }

  /** Waits before the next attempt; fails when the signal is aborted or the client is closed. */
  pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
    return new Promise((resolve, reject) => {
      const cancel = () => end(() => reject(this.isClosed ? closedError() : cancelledError()));
      const timer = setTimeout(() => end(resolve), ms);
      const unlink = this.onClose(cancel);
      const end = (settle: () => void) => {
        clearTimeout(timer);
        unlink();
        signal?.removeEventListener('abort', cancel);
        settle();
      };
      signal?.addEventListener('abort', cancel);
      if (signal?.aborted === true || this.isClosed) cancel();
    });
  }

  /** Has a function called when the client is closed; returns a function that undoes this. */
  onClose(callback: () => void): () => void {
    this.#shared.closing.add(callback);
    return () => this.#shared.closing.delete(callback);
  }

  async #attempt<I extends DescMessage, O extends DescMessage>(
    method: UnaryMethod<I, O>,
    message: MessageShape<I>,
    { requestId, startedAt, until, signal, tokens }: Attempt,
  ): Promise<MessageShape<O>> {
    if (this.isClosed) throw closedError();
    this.#checkSize(method.input, message, requestId);
    const pending = this.#header(method, requestId, tokens);
    const header = pending instanceof Promise ? await within(pending, until - performance.now(), signal) : pending;
    if (header === undefined) throw deadlineError(this.address, performance.now() - startedAt, requestId);
    const answer = await this.#shared.channel.call((transport) => {
      const leftMs = Math.max(1, Math.ceil(until - performance.now()));
      return transport.unary(method, signal, leftMs, header, message as MessageInitShape<I>);
    });
    redact(answer.message);
    return answer.message;
  }

  /** Checked here, because a request that is too large would end the connection. */
  #checkSize<I extends DescMessage>(schema: I, message: MessageShape<I>, requestId: string): void {
    const bytes = toBinary(schema, message).byteLength;
    if (bytes > MESSAGE_SEND_MAX) throw tooLargeError(bytes, MESSAGE_SEND_MAX, requestId);
  }

  /** Makes the header of an attempt; a promise only if the token source has to wait. */
  #header(method: object, requestId: string, tokens: TokenMemory): Header | Promise<Header> {
    const header: Header = { 'user-agent': this.settings.userAgent, 'x-request-id': requestId };
    const source = this.settings.tokens;
    if (source === undefined || isOpen(method)) return header;
    const send = (token: unknown) => {
      const checked = checkToken(token);
      tokens.send(checked);
      header['authorization'] = `Bearer ${checked}`;
      return header;
    };
    let token: string | Promise<string>;
    try {
      token = source.token();
    } catch (error) {
      throw sourceError(error);
    }
    if (typeof token === 'string') return send(token);
    return Promise.resolve(token).then(send, (error: unknown) => {
      throw sourceError(error);
    });
  }

  #failure(thrown: unknown, requestId: string, startedAt: number, signal: AbortSignal | undefined): BinderyError {
    if (signal?.aborted === true) return cancelledError();
    if (this.isClosed) return closedError();
    if (thrown instanceof BinderyError) return thrown;
    return errorOf(thrown, { address: this.address, requestId, elapsedMs: performance.now() - startedAt });
  }
}

function closedError(): BinderyError {
  return cancelledError('the client was closed');
}

/** Makes the id under which the server logs a call. */
export function newRequestId(): string {
  return randomUUID().replaceAll('-', '');
}

async function* once<T>(message: T): AsyncGenerator<T> {
  yield message;
}
