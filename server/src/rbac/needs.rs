//! The resources and verbs that an export needs rights on, by placement. Roles, checks and printed manifests are all made from
//! these functions.

use std::collections::BTreeMap;

use bindery_api::{
    placement::Placement,
    v1alpha2::{APIServiceExportSpec, BoundSchema, ConflictPolicy, GroupResource, InformerScope, Isolation, Scope},
};
use k8s_openapi::api::rbac::v1::PolicyRule;

use super::{READ_VERBS, WRITE_VERBS, claims, rules};

/// The verb that lets a contract write objects of other contracts, which only `LastWins` allows. No API has this verb: the
/// admission policy asks whether the user holds it.
pub const OVERWRITE: &str = "overwrite";

/// The scope in which the consumer of a contract sees each resource, from the contract's schemas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scopes(BTreeMap<GroupResource, Scope>);

/// The resources of an export that its consumer writes in the provider namespace that is mapped for `namespace`. A resource
/// without a schema is left out.
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

/// The resources of an export that its consumer writes in the whole cluster, where the admission policy limits it.
pub fn cluster_resources(export: &APIServiceExportSpec, scopes: &Scopes) -> Vec<GroupResource> {
    placed(export, scopes, |placement| {
        matches!(placement, Placement::None | Placement::Prefixed)
    })
}

/// The rules of an export's ClusterRole; none if it needs no such role. With informer scope Cluster the consumer also reads
/// namespaced resources in the whole cluster; it writes them by the Roles in its mapped namespaces.
pub fn cluster_rules(export: &APIServiceExportSpec, scopes: &Scopes) -> Vec<PolicyRule> {
    let mut all = rules(&cluster_resources(export, scopes), &write_verbs(export));
    if export.informer_scope == InformerScope::Cluster {
        let read = placed(export, scopes, |placement| *placement == Placement::Mapped);
        all.extend(rules(&read, &READ_VERBS));
    }
    all
}

/// The rights that the server itself must hold, since it can grant no others. Claims on core resources are granted by shipped
/// roles, which the server may bind without holding their rights, unless they are read cluster-wide. `secrets` says that
/// Secrets are.
pub fn granted_rights(export: &APIServiceExportSpec, secrets: bool) -> BTreeMap<GroupResource, Vec<&'static str>> {
    let claimed = claims::held(export, secrets).into_iter();
    let mut all: BTreeMap<_, _> = claimed.map(|(resource, verbs)| (resource, verbs.to_vec())).collect();
    let resources = export.resources.iter().map(|resource| &resource.group_resource);
    all.extend(resources.map(|resource| (resource.clone(), write_verbs(export))));
    all
}

/// The verbs of a consumer on objects of an export. They include [`OVERWRITE`] where the last consumer wins.
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
    /// The scope of a resource; `None` if it has no schema.
    pub fn of(&self, resource: &GroupResource) -> Option<Scope> {
        self.0.get(resource).copied()
    }

    /// Whether all resources of an export have a schema.
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
