// Resources by group and plural name.

/** A resource by group and plural name; the group of the core resources is empty. */
export interface GroupResource {
  readonly group: string;
  readonly resource: string;
}

/** The resources of the core group that can be claimed. */
const CLAIMABLE_CORE: ReadonlySet<string> = new Set(['configmaps', 'secrets', 'serviceaccounts']);

/** Reads `secrets`, or `certificates.example.com`: up to the first dot the plural, then the group. */
export function parseResource(text: string): GroupResource {
  const dot = text.indexOf('.');
  return dot < 0 ? { group: '', resource: text } : { group: text.slice(dot + 1), resource: text.slice(0, dot) };
}

/** Writes `RESOURCE.GROUP`, and the resource alone in the core group. */
export function showResource({ group, resource }: GroupResource): string {
  return group === '' ? resource : `${resource}.${group}`;
}

/** Orders resources by group, then by plural name. */
export function compareResources(one: GroupResource, other: GroupResource): number {
  return compareText(one.group, other.group) || compareText(one.resource, other.resource);
}

/** Orders texts by their bytes in UTF-8. JavaScript itself compares UTF-16, in which U+10000 comes before U+E000. */
export function compareText(one: string, other: string): number {
  return Buffer.compare(Buffer.from(one), Buffer.from(other));
}

/** Whether a list has the resource. */
export function includes(list: readonly GroupResource[], wanted: GroupResource): boolean {
  return list.some(({ group, resource }) => group === wanted.group && resource === wanted.resource);
}

/** Sorts resources, each once. */
export function sortedSet(list: readonly GroupResource[]): GroupResource[] {
  const sorted = list.map(({ group, resource }) => ({ group, resource })).sort(compareResources);
  return sorted.filter((item, index) => index === 0 || compareResources(item, sorted[index - 1] ?? item) !== 0);
}

/** Whether a resource is one of the core group that can be claimed. */
export function isClaimableCore({ group, resource }: GroupResource): boolean {
  return group === '' && CLAIMABLE_CORE.has(resource);
}

/** Whether a text has only what the names of groups and resources have. */
export function isApiName(text: string): boolean {
  return /^[a-z0-9.-]+$/.test(text);
}

/** Whether a name is a DNS label (RFC 1123). */
export function isLabel(name: string): boolean {
  return /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/.test(name);
}

/** Returns the owner of an API group that no provider may offer; undefined for other groups. */
export function ownerOfGroup(group: string): string | undefined {
  const isUnder = (domain: string) => group === domain || group.endsWith(`.${domain}`);
  // Groups without a dot are Kubernetes' own, such as apps, and the core group is empty.
  if (!group.includes('.') || isUnder('k8s.io') || isUnder('kubernetes.io')) return 'Kubernetes itself';
  return isUnder('kube-bind.io') || isUnder('kubebind.io') ? 'kube-bind itself' : undefined;
}
