use crate::v1alpha2::GroupResource;

/// The resources of the core group that can be claimed, with their kinds. Every cluster serves them in version v1, and all are
/// namespaced.
const CORE: [(&str, &str); 3] = [
    ("configmaps", "ConfigMap"),
    (SECRETS, "Secret"),
    ("serviceaccounts", "ServiceAccount"),
];

/// The plural of Secrets.
pub const SECRETS: &str = "secrets";

/// The plurals of the resources of the core group that can be claimed, in alphabetical order.
pub const CORE_PLURALS: [&str; 3] = [CORE[0].0, CORE[1].0, CORE[2].0];

/// Returns the kind of a core resource that can be claimed; `None` for every other resource.
pub fn core_kind(resource: &GroupResource) -> Option<&'static str> {
    let mut known = CORE.iter().filter(|(plural, _)| *plural == resource.resource);
    known.next().filter(|_| resource.is_core()).map(|(_, kind)| *kind)
}

/// True for a resource of the core group that can be claimed.
pub fn is_claimable_core(resource: &GroupResource) -> bool {
    core_kind(resource).is_some()
}
