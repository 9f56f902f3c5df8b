// Judges what a provider wants installed. Refused is anything beyond the resources of the export and its claims.

import { printable } from '../errors/text.js';
import type { BindingResourceResponse, ConsumerRule } from '../gen/kubebind/v1alpha2/binding_pb.js';
import type { PermissionClaim } from '../gen/kubebind/v1alpha2/types_pb.js';
import { RefusedError, type RefusalReason } from './refusal.js';
import {
  compareResources,
  includes,
  isApiName,
  isClaimableCore,
  ownerOfGroup,
  showResource,
  sortedSet,
  type GroupResource,
} from './resource.js';

/** The verbs that a konnector needs on exported and claimed objects. */
export const OBJECT_VERBS = ['get', 'list', 'watch', 'create', 'update', 'patch', 'delete'] as const;

/** What a provider wants installed, after it was judged. */
export interface Offer {
  /** The resources of the export, sorted. */
  readonly resources: readonly GroupResource[];
  /** The provider's claims on other resources of the consumer, sorted, at most one for each resource. */
  readonly claims: readonly PermissionClaim[];
}

/** Judges the answer to a bind under this name; throws a RefusedError for the first fault. */
export function judge(answer: BindingResourceResponse, binding: string): Offer {
  for (const got of [answer.bindingName, ...answer.requests.map(({ name }) => name)]) {
    if (got !== binding) {
      refuse('OtherBinding', `it answers for ${JSON.stringify(got)} instead of ${JSON.stringify(binding)}`);
    }
  }
  if (answer.providerNamespace === '') refuse('NoContract', 'it names no contract namespace');
  const resources = sortedSet(answer.requests.flatMap((request) => request.resources));
  if (resources.length === 0) refuse('Empty', 'it exports no API');
  resources.forEach(judgeResource);
  const claims = answer.requests.flatMap((request) => request.permissionClaims).sort(compareResources);
  judgeClaims(claims, resources);
  for (const rule of answer.consumerRules) judgeRule(rule, resources, claims);
  return { resources, claims };
}

/** Refuses resources of Kubernetes and of kube-bind, because an export becomes a role on the consumer. */
function judgeResource(resource: GroupResource): void {
  const isNamed = isApiName(resource.group) && isApiName(resource.resource);
  const owner = ownerOfGroup(resource.group) ?? (isNamed ? undefined : 'nobody: no API can have this name');
  if (owner !== undefined) refuse('ForeignApi', `it exports ${showResource(resource)}, which belongs to ${owner}`);
}

function judgeClaims(claims: readonly GroupResource[], resources: readonly GroupResource[]): void {
  const refused = (claim: GroupResource, why: string) =>
    refuse('Unclaimable', `it claims ${showResource(claim)}, which ${why}`);
  claims.forEach((claim, index) => {
    const before = claims[index - 1];
    const why = whyUnclaimable(claim, resources);
    if (why !== undefined) refused(claim, why);
    if (before !== undefined && compareResources(before, claim) === 0) refused(claim, 'it claims twice');
  });
}

/** Says why a resource cannot be claimed: it could rule the cluster. Claims on other groups are decided by the user. */
function whyUnclaimable(claim: GroupResource, resources: readonly GroupResource[]): string | undefined {
  if (includes(resources, claim)) return 'it exports itself';
  if (claim.group === '') {
    if (isClaimableCore(claim)) return undefined;
    return 'nobody can claim: of the core group, only configmaps, secrets and serviceaccounts can be';
  }
  if (!isApiName(claim.group) || !isApiName(claim.resource)) return 'no API can be named';
  if (ownerOfGroup(claim.group) === undefined) return undefined;
  return 'belongs to Kubernetes or kube-bind, of which only configmaps, secrets and serviceaccounts can be claimed';
}

function judgeRule(rule: ConsumerRule, resources: readonly GroupResource[], claims: readonly GroupResource[]): void {
  const parts = [rule.apiGroups, rule.resources, rule.verbs, rule.resourceNames];
  const shown = () =>
    `${rule.verbs.join(',')} of ${rule.resources.join(',')} in ${JSON.stringify(rule.apiGroups.join(','))}`;
  if (parts.flat().some((item) => item.includes('*'))) refuse('Wildcard', `it asks for a right on "*" (${shown()})`);
  for (const group of rule.apiGroups) {
    for (const resource of rule.resources) {
      const base = { group, resource: resource.replace(/\/status$/, '') };
      if (includes(resources, base) || includes(claims, { group, resource })) continue;
      const name = showResource({ group, resource });
      refuse('Beyond', `it asks for rights on ${name}, which is neither exported nor claimed (${shown()})`);
    }
  }
  const verbs: readonly string[] = OBJECT_VERBS;
  const verb = rule.verbs.find((item) => !verbs.includes(item));
  if (verb !== undefined) refuse('Verb', `it asks for the right to ${JSON.stringify(verb)} (${shown()})`);
}

/** Refuses an answer, with the texts of the server made printable. */
export function refuse(reason: RefusalReason, message: string): never {
  throw new RefusedError(reason, printable(`the answer of the provider is refused: ${message}`));
}
