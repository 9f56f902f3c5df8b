// Sizes that client and server agree on, and the longest time limit.

/** Size limit of a response, in bytes. */
export const MESSAGE_RECEIVE_MAX = 4 * 1024 * 1024;

/** Size limit of a request, in bytes; servers refuse larger ones. */
export const MESSAGE_SEND_MAX = 256 * 1024;

/** Longest time limit, in milliseconds: a day. Longer ones are cut to it, because timers wait for a few weeks at most. */
export const TIMEOUT_MAX_MS = 24 * 60 * 60 * 1000;
