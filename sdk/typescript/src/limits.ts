// Sizes that client and server agree on.

/** Size limit of a response, in bytes. */
export const MESSAGE_RECEIVE_MAX = 4 * 1024 * 1024;

/** Size limit of a request, in bytes; servers refuse larger ones. */
export const MESSAGE_SEND_MAX = 256 * 1024;
