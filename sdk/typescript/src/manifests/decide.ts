// Decides which claims of an offer are accepted and rejected.

import type { PermissionClaim } from '../gen/kubebind/v1alpha2/types_pb.js';
import { refuse, type Offer } from './judge.js';
import { includes, isClaimableCore, parseResource, showResource, sortedSet, type GroupResource } from './resource.js';

/** Which claims of an offer are accepted and rejected. */
export interface Decision {
  /** The claims that are accepted, sorted. */
  readonly accepted: readonly PermissionClaim[];
  /** The resources whose claims are rejected, sorted. */
  readonly rejected: readonly GroupResource[];
}

/**
 * Decides about the claims of an offer. Accepted are those that `accept` names, or all if it is undefined, less those that `reject`
 * names. `reject` may name core resources that are not claimed, so that a rule such as "never Secrets" holds for every template.
 */
export function decide({ claims }: Offer, accept: readonly string[] | undefined, reject: readonly string[]): Decision {
  const accepting = accept?.map(parseResource);
  const rejecting = reject.map(parseResource);
  const claimed = claims.map(showResource).join(', ') || 'nothing';
  const unclaimed = (resource: GroupResource | undefined, verb: string) => {
    if (resource === undefined) return;
    const name = showResource(resource);
    refuse('NotClaimed', `${name} is not claimed, so there is nothing to ${verb}; claimed: ${claimed}`);
  };
  unclaimed(accepting?.find((resource) => !includes(claims, resource)), 'accept');
  unclaimed(rejecting.find((resource) => !includes(claims, resource) && !isClaimableCore(resource)), 'reject');
  const isAccepted = (claim: GroupResource) =>
    (accepting === undefined || includes(accepting, claim)) && !includes(rejecting, claim);
  const accepted = claims.filter(isAccepted);
  if (accepting === undefined && accepted.some(claimsEverySecret)) {
    refuse('EverySecret', 'it claims EVERY Secret of the cluster; accept secrets by name, or reject them');
  }
  return { accepted, rejected: sortedSet([...claims.filter((claim) => !isAccepted(claim)), ...rejecting]) };
}

function claimsEverySecret({ group, resource, selector }: PermissionClaim): boolean {
  const labels = selector?.labelSelector;
  return (
    group === '' &&
    resource === 'secrets' &&
    labels !== undefined &&
    Object.keys(labels.matchLabels).length === 0 &&
    labels.matchExpressions.length === 0
  );
}
