// Claims as the CRDs of the consumer have them: an empty field is left out.

import type {
  LabelSelector,
  PermissionClaim,
  Selector,
  SelectorReference,
} from '../gen/kubebind/v1alpha2/types_pb.js';
import type { Json } from './canonical.js';
import type { GroupResource } from './resource.js';

type JsonObject = { readonly [key: string]: Json };

/** Writes a claim as the CRDs have it. */
export function claimJson(claim: PermissionClaim): JsonObject {
  return { ...resourceJson(claim), selector: claim.selector === undefined ? {} : selectorJson(claim.selector) };
}

/** Writes a resource as the CRDs have it. */
export function resourceJson({ group, resource }: GroupResource): JsonObject {
  return { ...text('group', group), resource };
}

function selectorJson({ labelSelector, namedResources, references }: Selector): JsonObject {
  return {
    ...(labelSelector && { labelSelector: labelSelectorJson(labelSelector) }),
    ...list(
      'namedResources',
      namedResources.map(({ name, namespace }) => ({ name, ...text('namespace', namespace) })),
    ),
    ...list('references', references.map(referenceJson)),
  };
}

function labelSelectorJson({ matchLabels, matchExpressions }: LabelSelector): JsonObject {
  return {
    ...(Object.keys(matchLabels).length > 0 && { matchLabels: { ...matchLabels } }),
    ...list(
      'matchExpressions',
      matchExpressions.map(({ key, operator, values }) => ({ key, operator, ...list('values', values) })),
    ),
  };
}

function referenceJson(reference: SelectorReference): JsonObject {
  const { name = '', namespace = '' } = reference.jsonPath ?? {};
  return {
    ...resourceJson(reference),
    ...list('versions', reference.versions),
    jsonPath: { ...text('name', name), ...text('namespace', namespace) },
  };
}

function text(key: string, value: string): JsonObject {
  return value === '' ? {} : { [key]: value };
}

function list(key: string, items: readonly Json[]): JsonObject {
  return items.length === 0 ? {} : { [key]: items };
}
