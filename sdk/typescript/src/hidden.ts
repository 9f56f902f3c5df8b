// Secrets that no log shows.

import { inspect } from 'node:util';

import type { Kubeconfig } from './gen/kubebind/v1alpha2/types_pb.js';

/** Returns the bytes of a secret. */
export let bytesOf: (hidden: Hidden) => Uint8Array;

/**
 * A secret, such as a kubeconfig file, that no log shows: neither `console.log`, `console.dir` and `util.inspect`, nor `String`, nor
 * `JSON.stringify`.
 */
export class Hidden {
  readonly #bytes: Uint8Array;

  static {
    bytesOf = (hidden) => hidden.#bytes;
  }

  /** @internal */
  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
  }

  /** Returns the secret as text. */
  reveal(): string {
    return Buffer.from(this.#bytes).toString('utf8');
  }

  toString(): string {
    return shown(this.#bytes);
  }

  toJSON(): string {
    return shown(this.#bytes);
  }

  /** @internal */
  [inspect.custom](): string {
    return shown(this.#bytes);
  }
}

/** What is shown of a secret. */
export function shown(bytes: Uint8Array): string {
  return `[${bytes.byteLength} bytes hidden]`;
}

/** Takes the kubeconfig file out of a message; undefined if it has none. */
export function takeKubeconfig(message: Kubeconfig | undefined): Hidden | undefined {
  if (message === undefined || message.kubeconfig.byteLength === 0) return undefined;
  const hidden = new Hidden(message.kubeconfig);
  message.kubeconfig = new Uint8Array();
  return hidden;
}
