//! Which rights an export needs, and where: the one table that roles, checks and printed manifests are made from.

use std::collections::BTreeMap;

use bindery_api::{
    placement::Placement,
    v1alpha2::{APIServiceExportSpec, BoundSchema, ConflictPolicy, GroupResource, InformerScope, Isolation, Scope},
};
use k8s_openapi::api::rbac::v1::PolicyRule;

use super::{READ_VERBS, WRITE_VERBS, claims, rules};

/// The verb by which the admission policy lets a contract write objects of others, under `LastWins` alone. No API knows
/// it: it is asked for by the policy.
pub const OVERWRITE: &str = "overwrite";

/// The scope in which a contract's consumer sees each of its resources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scopes(BTreeMap<GroupResource, Scope>);

/// The resources of an export that its consumer writes in the namespace mapped for `namespace`, one of the consumer's.
/// One whose schema is not there yet is none of them.
pub fn namespaced_resources(export: &APIServiceExportSpec, scopes: &Scopes, namespace: &str) -> Vec<GroupResource> {
    placed(export, scopes, |placement| match placement {
        Placement::Mapped => true,
        Placement::Beside(only) => **only == *namespace,
        Placement::Shared | Placement::None | Placement::Prefixed | Placement::Contract => false,
    })
}

/// The resources of an export that its consumer writes in the contract namespace.
pub fn contract_resources(export: &APIServiceExportSpec, scopes: &Scopes) -> Vec<GroupResource> {
    placed(export, scopes, |placement| *placement == Placement::Contract)
}

/// The resources of an export that its consumer writes in the whole cluster, within the bounds of the admission policy.
pub fn cluster_resources(export: &APIServiceExportSpec, scopes: &Scopes) -> Vec<GroupResource> {
    placed(export, scopes, |placement| {
        matches!(placement, Placement::None | Placement::Prefixed)
    })
}

/// The rules of an export's ClusterRole; none where it needs no such role. A consumer that watches mapped namespaces
/// through one watch reads in the whole cluster, and writes by the Roles of its own namespaces.
pub fn cluster_rules(export: &APIServiceExportSpec, scopes: &Scopes) -> Vec<PolicyRule> {
    let mut all = rules(&cluster_resources(export, scopes), &write_verbs(export));
    if export.informer_scope == InformerScope::Cluster {
        let read = placed(export, scopes, |placement| *placement == Placement::Mapped);
        all.extend(rules(&read, &READ_VERBS));
    }
    all
}

/// What the server itself must hold to give an export its rights: no more can it hand out. Core resources are claimed by
/// way of shipped roles, which it need not hold, unless they are read cluster-wide; `secrets` says that Secrets are.
pub fn handed_out(export: &APIServiceExportSpec, secrets: bool) -> BTreeMap<GroupResource, Vec<&'static str>> {
    let claimed = claims::held(export, secrets).into_iter();
    let mut all: BTreeMap<_, _> = claimed.map(|(resource, verbs)| (resource, verbs.to_vec())).collect();
    let resources = export.resources.iter().map(|resource| &resource.group_resource);
    all.extend(resources.map(|resource| (resource.clone(), write_verbs(export))));
    all
}

/// What a consumer may do with its objects, and, where the last one wins, with those of others.
fn write_verbs(export: &APIServiceExportSpec) -> Vec<&'static str> {
    let mut verbs = WRITE_VERBS.to_vec();
    if export.isolation == Isolation::None && export.conflict_policy == Some(ConflictPolicy::LastWins) {
        verbs.push(OVERWRITE);
    }
    verbs
}

fn placed(export: &APIServiceExportSpec, scopes: &Scopes, admit: impl Fn(&Placement) -> bool) -> Vec<GroupResource> {
    let resources = export.resources.iter().map(|resource| &resource.group_resource);
    let is_there = |resource: &&GroupResource| {
        scopes
            .of(resource)
            .is_some_and(|scope| admit(&Placement::of(export, scope)))
    };
    resources.filter(is_there).cloned().collect()
}

// === impl Scopes ===

impl Scopes {
    /// The scope of a resource, as far as its schema is there.
    pub fn of(&self, resource: &GroupResource) -> Option<Scope> {
        self.0.get(resource).copied()
    }

    /// Whether the schemas of all resources of an export are there.
    pub fn know(&self, export: &APIServiceExportSpec) -> bool {
        let mut resources = export.resources.iter();
        resources.all(|resource| self.0.contains_key(&resource.group_resource))
    }
}

impl<'a> FromIterator<&'a BoundSchema> for Scopes {
    fn from_iter<I: IntoIterator<Item = &'a BoundSchema>>(schemas: I) -> Self {
        let scope = |schema: &BoundSchema| {
            let resource = GroupResource::new(&schema.spec.group, &schema.spec.names.plural);
            (resource, schema.spec.scope)
        };
        Self(schemas.into_iter().map(scope).collect())
    }
}

#[cfg(test)]
mod tests;
