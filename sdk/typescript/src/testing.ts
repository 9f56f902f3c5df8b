// Settings that only tests of the SDK change. The package does not export this file.

/** Key of the settings for tests in the options of a client. */
export const testing: unique symbol = Symbol('bindery.testing');

/** Settings that only tests of the SDK change. */
export interface TestSettings {
  /** Random delays between the streams of a watch. */
  readonly reconnect?: { readonly baseMs: number; readonly capMs: number };
  /** A stream without a message for this long is closed, in milliseconds. */
  readonly silenceMs?: number;
  /** Returns a number in 0..1 for random delays. */
  readonly random?: () => number;
}
