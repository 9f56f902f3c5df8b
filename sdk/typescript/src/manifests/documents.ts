// The objects that a bind installs on the consumer cluster.

import { inspect } from 'node:util';

import { canonicalJson, type Json } from './canonical.js';
import { claimJson, resourceJson } from './claims.js';
import type { Decision } from './decide.js';
import { OBJECT_VERBS, type Offer } from './judge.js';
import { showResource, type GroupResource } from './resource.js';

/** A Kubernetes object as JSON. */
export interface Manifest {
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

/** What is installed, and for whom. */
export interface Install {
  readonly name: string;
  readonly bundle: string | undefined;
  readonly template: string | undefined;
  readonly namespace: string;
  readonly serviceAccount: string;
  readonly withNamespace: boolean;
  readonly kubeconfig: Uint8Array;
  readonly offer: Offer;
  readonly decision: Decision;
}

/** The verbs that a konnector needs on the status of exported objects. */
const STATUS_VERBS = ['get', 'patch', 'update'];

const API_VERSION = 'kube-bind.io/v1alpha2';
const RBAC = 'rbac.authorization.k8s.io';
const COMPONENT = 'kube-bind.io/component';
const KUBECONFIG_KEY = 'kubeconfig';

/** Returns all objects in the order in which they are applied. */
export function documents(install: Install): Manifest[] {
  const namespace = install.withNamespace ? [namespaceOf(install.namespace)] : [];
  const owner = install.bundle ?? install.name;
  const secretRef = {
    name: install.bundle === undefined ? `kubeconfig-${owner}` : `kubeconfig-bundle-${owner}`,
    namespace: install.namespace,
    key: KUBECONFIG_KEY,
  };
  const secret = secretOf(secretRef, install.kubeconfig);
  if (install.bundle !== undefined) return [...namespace, secret, bundleOf(install.bundle, secretRef, install.decision)];
  return [...namespace, ...rightsOf(install), secret, bindingOf(install, secretRef)];
}

interface SecretRef {
  readonly [field: string]: string;
  readonly name: string;
  readonly namespace: string;
  readonly key: string;
}

/** Metadata with the label of the tool that manages the object. It is that of the command line, which renews what SDKs install. */
function managed(name: string, component?: string) {
  const labels = { 'app.kubernetes.io/managed-by': 'kubectl-bind', ...(component && { [COMPONENT]: component }) };
  return { name, labels };
}

function namespaceOf(name: string): Manifest {
  return { apiVersion: 'v1', kind: 'Namespace', metadata: { name } };
}

function secretOf({ name, namespace, key }: SecretRef, kubeconfig: Uint8Array): Manifest {
  const secret: Manifest = {
    apiVersion: 'v1',
    kind: 'Secret',
    metadata: { ...managed(name, 'provider-kubeconfig'), namespace },
    data: { [key]: Buffer.from(kubeconfig).toString('base64') },
  };
  const shown = { ...secret, data: { [key]: `[${kubeconfig.byteLength} bytes redacted]` } };
  // For `console.log` alone: what is applied needs the content.
  return Object.defineProperty(secret, inspect.custom, { value: () => shown, enumerable: false });
}

function rightsOf({ name, namespace, serviceAccount, offer, decision }: Install): Manifest[] {
  const role = `kube-bind-konnector-${name}`;
  const metadata = managed(role, 'binding-role');
  const end = rule(RBAC, ['clusterroles', 'clusterrolebindings'], ['delete']);
  const clusterRole: Manifest = {
    apiVersion: `${RBAC}/v1`,
    kind: 'ClusterRole',
    metadata,
    rules: [
      ...exportRules(offer.resources),
      ...decision.accepted.map(({ group, resource }) => rule(group, [resource], OBJECT_VERBS)),
      // The konnector deletes its own rights as the last step of an unbind.
      { ...end, resourceNames: [role] },
    ],
  };
  const clusterRoleBinding: Manifest = {
    apiVersion: `${RBAC}/v1`,
    kind: 'ClusterRoleBinding',
    metadata,
    roleRef: { apiGroup: RBAC, kind: 'ClusterRole', name: role },
    subjects: [{ kind: 'ServiceAccount', name: serviceAccount, namespace }],
  };
  return [clusterRole, clusterRoleBinding];
}

function exportRules(resources: readonly GroupResource[]) {
  const groups = new Map<string, string[]>();
  for (const { group, resource } of resources) groups.set(group, [...(groups.get(group) ?? []), resource]);
  return [...groups].flatMap(([group, plurals]) => [
    rule(group, plurals, OBJECT_VERBS),
    rule(group, plurals.map((plural) => `${plural}/status`), STATUS_VERBS),
  ]);
}

function rule(group: string, resources: readonly string[], verbs: readonly string[]) {
  return { apiGroups: [group], resources, verbs };
}

function bindingOf({ name, template, offer, decision }: Install, kubeconfigSecretRef: SecretRef): Manifest {
  const rejected = decision.rejected.map(resourceJson);
  const annotations = {
    ...(template !== undefined && { 'kube-bind.io/template': template }),
    'kube-bind.io/resources': offer.resources.map(showResource).join(','),
    // What the user has seen and not rejected; what the provider claims later on needs another yes.
    'kube-bind.io/accepted-claims': canonicalJson(decision.accepted.map(claimJson)),
  };
  return {
    apiVersion: API_VERSION,
    kind: 'APIServiceBinding',
    metadata: { ...managed(name), annotations },
    spec: { kubeconfigSecretRef, ...(rejected.length > 0 && { rejectedPermissionClaims: rejected }) },
  };
}

function bundleOf(name: string, kubeconfigSecretRef: SecretRef, { accepted }: Decision): Manifest {
  return {
    apiVersion: API_VERSION,
    kind: 'APIServiceBindingBundle',
    metadata: managed(name),
    spec: { kubeconfigSecretRef, ...(accepted.length > 0 && { acceptedClaims: accepted.map(claimJson) }) },
  };
}
