// The manifests of a binding or a bundle, made from the response to a bind alone.

import { inspect } from 'node:util';

import { Bound } from '../bind.js';
import type { BindingResourceResponse } from '../gen/kubebind/v1alpha2/binding_pb.js';
import { canonicalJson } from './canonical.js';
import { decide } from './decide.js';
import { documents, type Manifest } from './documents.js';
import { judge, refuse } from './judge.js';
import { isLabel } from './resource.js';

export type { Manifest } from './documents.js';
export { RefusedError, type RefusalReason } from './refusal.js';

/** What to make of a response. A resource is written `secrets` (core group) or `certificates.example.com`. */
export interface ManifestOptions {
  /** The name that was asked for; a response for another binding is refused. Unset, it is that of the response. */
  readonly name?: string | undefined;
  /** Makes an APIServiceBindingBundle of this name in place of an APIServiceBinding. */
  readonly bundle?: string | undefined;
  /** The template, which an APIServiceBinding records. */
  readonly template?: string | undefined;
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

/**
 * Makes the objects that the consumer applies: the roles of the konnector, the Secret with the kubeconfig, and the binding or the
 * bundle. They follow from what is exported and claimed; rules of the response never become rules of a role.
 *
 * @throws RefusedError if the provider asks for more than a konnector needs, or if the options do not fit.
 */
export function manifests(answer: BindingResourceResponse | Bound, options: ManifestOptions = {}): Manifests {
  const response = answer instanceof Bound ? answer.response : answer;
  const name = options.name ?? response.bindingName;
  for (const [what, text] of [['binding', name], ['bundle', options.bundle]] as const) {
    if (text !== undefined && !isLabel(text)) {
      refuse('Name', `${JSON.stringify(text)} cannot be the name of a ${what}: it is no DNS label of at most 63 characters`);
    }
  }
  const offer = judge(response, name);
  const decision = decide(offer, options.accept, options.reject ?? []);
  const kubeconfig = response.kubeconfig?.kubeconfig;
  if (kubeconfig === undefined || kubeconfig.byteLength === 0) return refuse('NoKubeconfig', 'it has no kubeconfig');
  return new Manifests(
    documents({
      name,
      bundle: options.bundle,
      template: options.template,
      namespace: options.namespace ?? 'kube-bind',
      serviceAccount: options.serviceAccount ?? 'konnector',
      withNamespace: options.withNamespace ?? false,
      kubeconfig,
      offer,
      decision,
    }),
  );
}

/** The objects that the consumer applies, in that order. They hold a secret. */
export class Manifests implements Iterable<Manifest> {
  /** The objects as JSON, in the order in which they are applied. */
  readonly documents: readonly Manifest[];

  /** @internal */
  constructor(made: readonly Manifest[]) {
    this.documents = made;
  }

  /** Writes the objects in the canonical form: one JSON document per line, which `kubectl apply -f -` reads. It holds a secret. */
  canonical(): string {
    return this.documents.map((document) => `${canonicalJson(document)}\n`).join('');
  }

  [Symbol.iterator](): Iterator<Manifest> {
    return this.documents[Symbol.iterator]();
  }

  /** What can be logged: kinds and names. */
  toJSON(): string[] {
    return this.documents.map(({ kind, metadata: { namespace, name } }) =>
      namespace === undefined ? `${kind} ${name}` : `${kind} ${namespace}/${name}`,
    );
  }

  /** @internal */
  [inspect.custom](): string {
    return `Manifests ${inspect(this.toJSON())}`;
  }
}
