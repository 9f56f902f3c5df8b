// One object that the consumer applies.

import { inspect } from 'node:util';

import type { Json } from './canonical.js';

/** A Kubernetes object as JSON. */
export interface ManifestJson {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: {
    readonly name: string;
    readonly namespace?: string;
    readonly labels?: Readonly<Record<string, string>>;
    readonly annotations?: Readonly<Record<string, string>>;
  };
  readonly [field: string]: Json;
}

/** A Kubernetes object to apply. Logs show the content of every object but a Secret, which only {@link Manifest.json} returns. */
export class Manifest {
  readonly #object: ManifestJson;

  /** @internal */
  constructor(object: ManifestJson) {
    this.#object = object;
  }

  /** Group and version of the API, such as `kube-bind.io/v1alpha2`. */
  get apiVersion(): string {
    return this.#object.apiVersion;
  }

  /** Kind of the object, such as `Secret`. */
  get kind(): string {
    return this.#object.kind;
  }

  /** Name of the object. */
  get name(): string {
    return this.#object.metadata.name;
  }

  /** Namespace of the object; undefined for objects of the whole cluster. */
  get namespace(): string | undefined {
    return this.#object.metadata.namespace;
  }

  /** Returns the whole object, as a client of Kubernetes sends it. That of a Secret holds a credential. */
  json(): ManifestJson {
    return this.#object;
  }

  /** The object for logs: the values of a Secret are hidden. */
  toJSON(): ManifestJson {
    const { data } = this.#object;
    if (this.kind !== 'Secret' || typeof data !== 'object') return this.#object;
    const hidden = Object.keys(data).map((key) => [key, '[hidden]'] as const);
    return { ...this.#object, data: Object.fromEntries(hidden) };
  }

  /** Kind and name of the object. */
  toString(): string {
    return this.namespace === undefined ? `${this.kind} ${this.name}` : `${this.kind} ${this.namespace}/${this.name}`;
  }

  /** @internal */
  [inspect.custom](): unknown {
    return this.toJSON();
  }
}
