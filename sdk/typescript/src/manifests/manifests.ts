// The manifests of a binding or a bundle, made from the response to a bind alone.

import { inspect } from 'node:util';

import { Bound } from '../bind.js';
import type { BindingResourceResponse } from '../gen/kubebind/v1alpha2/binding_pb.js';
import { bytesOf } from '../hidden.js';
import { canonicalJson } from './canonical.js';
import { decide } from './decide.js';
import { documents } from './documents.js';
import { judge, refuse } from './judge.js';
import { Manifest } from './manifest.js';
import { isLabel } from './resource.js';

export type { ManifestJson } from './manifest.js';
export type { Manifest };
export { RefusedError, type RefusalReason } from './refusal.js';

/** What to make of a response. A resource is written `secrets` (core group) or `certificates.example.com`. */
export interface BoundManifestOptions {
  /** Makes an APIServiceBindingBundle of this name in place of an APIServiceBinding. */
  readonly bundle?: string | undefined;
  /** Namespace of the konnector, and so of the Secret: `kube-bind` unless set. */
  readonly namespace?: string | undefined;
  /** ServiceAccount of the konnector: `konnector` unless set. */
  readonly serviceAccount?: string | undefined;
  /** Makes the Namespace, too. */
  readonly withNamespace?: boolean | undefined;
  /** Resources whose claims are accepted; all others are rejected. Unset, all are accepted, except a claim on every Secret. */
  readonly accept?: readonly string[] | undefined;
  /** Resources whose claims are rejected, also those that `accept` names. */
  readonly reject?: readonly string[] | undefined;
}

/** What to make of a response without the request that it is for. */
export interface ManifestOptions extends BoundManifestOptions {
  /** The name that was asked for; a response for another binding is refused. Unset, it is that of the response. */
  readonly name?: string | undefined;
  /** The template, which an APIServiceBinding records unless it is empty. */
  readonly template?: string | undefined;
}

/**
 * Makes the objects that the consumer applies: the roles of the konnector, the Secret with the kubeconfig, and the binding or the
 * bundle. They follow from what is exported and claimed; rules of the response never become rules of a role. The names of binding and
 * template are those of the request: a response for another binding is refused.
 *
 * @throws RefusedError if the provider asks for more than a konnector needs, or if the options do not fit.
 */
export function manifests(bound: Bound, options?: BoundManifestOptions): Manifests;
/**
 * Makes the objects from a response alone.
 *
 * @throws RefusedError if the provider asks for more than a konnector needs, or if the options do not fit.
 */
export function manifests(response: BindingResourceResponse, options?: ManifestOptions): Manifests;
export function manifests(made: BindingResourceResponse | Bound, options: ManifestOptions = {}): Manifests {
  if (made instanceof Bound) {
    const { name, template } = made.requested;
    const kubeconfig = made.kubeconfig && bytesOf(made.kubeconfig);
    return render(made.response, kubeconfig, { ...options, name: name || undefined, template });
  }
  return render(made, made.kubeconfig?.kubeconfig, options);
}

function render(response: BindingResourceResponse, kubeconfig: Uint8Array | undefined, options: ManifestOptions): Manifests {
  const name = options.name ?? response.bindingName;
  for (const [what, text] of [['binding', name], ['bundle', options.bundle]] as const) {
    if (text !== undefined && !isLabel(text)) {
      refuse('Name', `${JSON.stringify(text)} cannot be the name of a ${what}: it is no DNS label of at most 63 characters`);
    }
  }
  const offer = judge(response, name);
  const decision = decide(offer, options.accept, options.reject ?? []);
  if (kubeconfig === undefined || kubeconfig.byteLength === 0) return refuse('NoKubeconfig', 'it has no kubeconfig');
  return new Manifests(
    documents({
      name,
      bundle: options.bundle,
      template: options.template || undefined,
      namespace: options.namespace ?? 'kube-bind',
      serviceAccount: options.serviceAccount ?? 'konnector',
      withNamespace: options.withNamespace ?? false,
      kubeconfig,
      offer,
      decision,
    }).map((object) => new Manifest(object)),
  );
}

/** The objects that the consumer applies, in that order. They hold a secret. */
export class Manifests implements Iterable<Manifest> {
  /** The objects in the order in which they are applied. */
  readonly documents: readonly Manifest[];

  /** @internal */
  constructor(made: readonly Manifest[]) {
    this.documents = made;
  }

  /** Writes the objects in the canonical form: one JSON document per line, which `kubectl apply --server-side -f -` reads. It holds a secret. */
  canonical(): string {
    return this.documents.map((document) => `${canonicalJson(document.json())}\n`).join('');
  }

  [Symbol.iterator](): Iterator<Manifest> {
    return this.documents[Symbol.iterator]();
  }

  /** What can be logged: kinds and names. */
  toJSON(): string[] {
    return this.documents.map(String);
  }

  /** @internal */
  [inspect.custom](): string {
    return `Manifests ${inspect(this.toJSON())}`;
  }
}
