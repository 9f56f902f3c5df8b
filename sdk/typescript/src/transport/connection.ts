// The seam between the client and the protocols that it speaks.

import type { Transport } from '@connectrpc/connect';

/** A transport, and the end of its connections. */
export interface Connection {
  readonly transport: Transport;
  close(): void;
}
