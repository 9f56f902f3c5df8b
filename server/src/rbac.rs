//! The roles and role bindings that give a contract its rights: per contract, per export and per namespace, and never with a
//! wildcard.

use std::collections::{BTreeMap, BTreeSet};

use bindery_api::{
    annotations, labels, meta, names,
    v1alpha2::{APIServiceExport, GroupResource},
};
use k8s_openapi::api::{
    core::v1::Namespace,
    rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject},
};
use kube::{ResourceExt as _, api::ObjectMeta};

use crate::writes::Object;

pub mod claims;
mod needs;
pub mod view;

use claims::{ClaimedPlacement, Right};

pub use needs::{
    OVERWRITE, Scopes, cluster_resources, cluster_rules, contract_resources, granted_rights, namespaced_resources,
};

/// The verbs of a consumer on its objects. No rule names their status, which is the provider's.
pub const WRITE_VERBS: [&str; 7] = ["create", "delete", "get", "list", "patch", "update", "watch"];
/// The verbs of a consumer where it only reads.
pub const READ_VERBS: [&str; 3] = ["get", "list", "watch"];

/// The shipped ClusterRole with the server's own rights inside a contract namespace.
pub const SERVER_CONTRACT_ROLE: &str = "bindery-server-contract";
/// The RoleBinding of that role.
pub const SERVER_BINDING: &str = "bindery-server";

const RBAC_GROUP: &str = "rbac.authorization.k8s.io";

/// The export whose rights are granted.
#[derive(Clone, Copy, Debug)]
pub struct Grant<'a> {
    /// The contract namespace.
    pub contract: &'a str,
    /// Name of the export.
    pub export: &'a str,
    /// The resources that the rights are on.
    pub resources: &'a [GroupResource],
}

/// The labels of an object that was made for an export of a contract.
pub fn export_labels(contract: &str, export: &str) -> BTreeMap<String, String> {
    BTreeMap::from([
        (labels::CONTRACT.to_owned(), contract.to_owned()),
        (labels::EXPORT.to_owned(), export_label(export)),
    ])
}

/// The value of label `kube-bind.io/export`: the name, or, where that is too long for a label, a hash of it.
pub fn export_label(export: &str) -> String {
    names::fit(export.to_owned(), names::NAMESPACE_LENGTH_MAX)
}

/// RoleBinding `kube-binder` of a contract.
pub fn kube_binder(contract: &str) -> RoleBinding {
    RoleBinding {
        metadata: contract_meta(contract, names::KUBE_BINDER),
        role_ref: role_ref("ClusterRole", names::KUBE_BINDER),
        subjects: Some(vec![account(contract)]),
    }
}

/// RoleBinding `bindery-server` of a contract.
pub fn server(contract: &str, subject: Subject) -> RoleBinding {
    RoleBinding {
        metadata: contract_meta(contract, SERVER_BINDING),
        role_ref: role_ref("ClusterRole", SERVER_CONTRACT_ROLE),
        subjects: Some(vec![subject]),
    }
}

/// The Role of an export in a provider namespace, or in the contract namespace where cluster-scoped objects live there.
pub fn namespace_role(grant: Grant<'_>, namespace: &str) -> Role {
    Role {
        metadata: export_meta(grant, names::resources_role(grant.export), Some(namespace)),
        rules: Some(rules(grant.resources, &WRITE_VERBS)),
    }
}

/// The RoleBinding of the Role that [`namespace_role`] returns.
pub fn namespace_role_binding(grant: Grant<'_>, namespace: &str) -> RoleBinding {
    let name = names::resources_role(grant.export);
    RoleBinding {
        role_ref: role_ref("Role", &name),
        subjects: Some(vec![account(grant.contract)]),
        metadata: export_meta(grant, name, Some(namespace)),
    }
}

/// All rights of an export in the provider namespace that is mapped for the consumer's namespace `mapped`: on its own objects,
/// and on those that it claims. Resources without a schema are left out, since it is unknown where their objects live.
pub fn mapped_rights(
    contract: &str,
    export: &APIServiceExport,
    scopes: &Scopes,
    mapped: &str,
    namespace: &str,
) -> Vec<Right> {
    let mut rights = Vec::new();
    let resources = namespaced_resources(&export.spec, scopes, mapped);
    if !resources.is_empty() {
        let grant = Grant {
            contract,
            export: &export.name_any(),
            resources: &resources,
        };
        rights.push(Right {
            role: Some(namespace_role(grant, namespace)),
            binding: namespace_role_binding(grant, namespace),
        });
    }
    if claims::placement(&export.spec, scopes) == Some(ClaimedPlacement::Mapped) {
        rights.extend(claims::rights(contract, export, namespace, ClaimedPlacement::Mapped));
    }
    rights
}

/// The ClusterRole of an export, with the rules of [`cluster_rules`].
pub fn cluster_role(grant: Grant<'_>, contract: &Namespace, rules: Vec<PolicyRule>) -> ClusterRole {
    let name = names::resources_cluster_role(grant.contract, grant.export);
    ClusterRole {
        metadata: ObjectMeta {
            owner_references: Some(vec![meta::owner_reference(contract)]),
            ..export_meta(grant, name, None)
        },
        rules: Some(rules),
        aggregation_rule: None,
    }
}

/// The ClusterRoleBinding of the ClusterRole that [`cluster_role`] returns.
pub fn cluster_role_binding(grant: Grant<'_>, contract: &Namespace) -> ClusterRoleBinding {
    let name = names::resources_cluster_role(grant.contract, grant.export);
    ClusterRoleBinding {
        role_ref: role_ref("ClusterRole", &name),
        subjects: Some(vec![account(grant.contract)]),
        metadata: ObjectMeta {
            owner_references: Some(vec![meta::owner_reference(contract)]),
            ..export_meta(grant, name, None)
        },
    }
}

/// A Role or a ClusterRole.
pub trait AnyRole: Object {
    /// The rules of the role.
    fn rules(&self) -> Option<&[PolicyRule]>;
}

/// A RoleBinding or a ClusterRoleBinding.
pub trait AnyBinding: Object {
    /// The role that is bound, and the subjects that get it.
    fn bound(&self) -> (&RoleRef, Option<&[Subject]>);
}

/// Whether two bindings give the same role to the same subjects.
pub fn binds_the_same<B: AnyBinding>(one: &B, other: &B) -> bool {
    let ((role, subjects), (other_role, other_subjects)) = (one.bound(), other.bound());
    role == other_role && are_the_same(subjects, other_subjects)
}

/// Compares subjects without their API groups, which the API server fills in.
fn are_the_same(some: Option<&[Subject]>, others: Option<&[Subject]>) -> bool {
    fn parts(subject: &Subject) -> (&str, &str, Option<&str>) {
        (&subject.kind, &subject.name, subject.namespace.as_deref())
    }
    let (some, others) = (some.unwrap_or_default(), others.unwrap_or_default());
    some.iter().map(parts).eq(others.iter().map(parts))
}

/// Whether every right of some rules is among those of others. Both must be rules as [`rules`] returns them, without names of
/// objects.
pub fn are_within(some: Option<&[PolicyRule]>, others: Option<&[PolicyRule]>) -> bool {
    fn rights(rules: Option<&[PolicyRule]>) -> BTreeSet<(&str, &str, &str)> {
        let mut rights = BTreeSet::new();
        for rule in rules.unwrap_or_default() {
            for group in rule.api_groups.iter().flatten() {
                for resource in rule.resources.iter().flatten() {
                    rights.extend(rule.verbs.iter().map(|verb| (&**group, &**resource, &**verb)));
                }
            }
        }
        rights
    }
    rights(some).is_subset(&rights(others))
}

/// Rules that allow the verbs on the resources: one rule per API group, in the order of the groups.
pub fn rules(resources: &[GroupResource], verbs: &[&str]) -> Vec<PolicyRule> {
    let mut groups: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for GroupResource { group, resource } in resources {
        groups.entry(group).or_default().push(resource.clone());
    }
    let rule = |(group, mut resources): (&str, Vec<String>)| {
        resources.sort_unstable();
        resources.dedup();
        PolicyRule {
            api_groups: Some(vec![group.to_owned()]),
            resources: Some(resources),
            verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
            ..PolicyRule::default()
        }
    };
    groups.into_iter().map(rule).collect()
}

/// ServiceAccount `kube-binder` of a contract, as a subject.
fn account(contract: &str) -> Subject {
    Subject {
        kind: "ServiceAccount".to_owned(),
        name: names::KUBE_BINDER.to_owned(),
        namespace: Some(contract.to_owned()),
        api_group: None,
    }
}

fn role_ref(kind: &str, name: &str) -> RoleRef {
    RoleRef {
        api_group: RBAC_GROUP.to_owned(),
        kind: kind.to_owned(),
        name: name.to_owned(),
    }
}

fn contract_meta(contract: &str, name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some(contract.to_owned()),
        labels: Some(BTreeMap::from([(labels::CONTRACT.to_owned(), contract.to_owned())])),
        ..ObjectMeta::default()
    }
}

fn export_meta(grant: Grant<'_>, name: String, namespace: Option<&str>) -> ObjectMeta {
    ObjectMeta {
        name: Some(name),
        namespace: namespace.map(ToOwned::to_owned),
        labels: Some(export_labels(grant.contract, grant.export)),
        annotations: Some(BTreeMap::from([(
            annotations::EXPORT.to_owned(),
            grant.export.to_owned(),
        )])),
        ..ObjectMeta::default()
    }
}

macro_rules! any {
    ($($role:ty, $binding:ty);*) => {$(
        impl AnyRole for $role {
            fn rules(&self) -> Option<&[PolicyRule]> {
                self.rules.as_deref()
            }
        }

        impl AnyBinding for $binding {
            fn bound(&self) -> (&RoleRef, Option<&[Subject]>) {
                (&self.role_ref, self.subjects.as_deref())
            }
        }
    )*};
}

any!(Role, RoleBinding; ClusterRole, ClusterRoleBinding);

#[cfg(test)]
mod tests;
