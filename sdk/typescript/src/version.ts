// Version of the SDK, as servers see it.

/** Version of the package; a test compares it with package.json. */
export const VERSION = '0.1.0';

/** The SDK's part of the user agent. */
export const USER_AGENT = `bindery-sdk-typescript/${VERSION}`;
