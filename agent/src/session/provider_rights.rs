//! The rights in a contract namespace that the konnector needs, and which of them are missing.

use std::{collections::BTreeMap, sync::Arc};

use bindery_api::names::CLUSTER_BINDING;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, ResourceRule, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};

use super::connect::ContractConnection;
use crate::rights;

/// What is known of a contract's UID, and of the rights on the provider.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verification {
    /// The UID of the contract namespace as it was read last; `None` while the konnector may not read it.
    pub found: Option<Arc<str>>,
    /// The rights that the konnector needs in the contract namespace and lacks, in a fixed order.
    pub missing: Vec<ProviderRight>,
}

/// A right in the contract namespace that the konnector needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProviderRight {
    /// The API group.
    pub group: &'static str,
    /// The resource, with its subresource.
    pub resource: &'static str,
    /// The verb.
    pub verb: &'static str,
}

const KUBE_BIND: &str = "kube-bind.io";
const NAMESPACES: &str = "namespaces";
const CLUSTER_BINDINGS: &str = "clusterbindings";

/// The right to read the UID of the contract namespace.
pub const READ_NAMESPACE: ProviderRight = ProviderRight::new("", NAMESPACES, "get");
/// The right to list the exports.
pub const LIST_EXPORTS: ProviderRight = ProviderRight::new(KUBE_BIND, "apiserviceexports", "list");
/// The right to list the schemas of the exports.
pub const LIST_SCHEMAS: ProviderRight = ProviderRight::new(KUBE_BIND, "boundschemas", "list");
/// The right to list the provider namespaces of the contract.
pub const LIST_NAMESPACES: ProviderRight = ProviderRight::new(KUBE_BIND, "apiservicenamespaces", "list");
/// The right to list the record of the consumer cluster.
pub const LIST_CLUSTER_BINDINGS: ProviderRight = ProviderRight::new(KUBE_BIND, CLUSTER_BINDINGS, "list");
/// The right to watch the record of the consumer cluster.
pub const WATCH_CLUSTER_BINDINGS: ProviderRight = ProviderRight::new(KUBE_BIND, CLUSTER_BINDINGS, "watch");
/// The right to send heartbeats, which record the consumer cluster.
pub const WRITE_HEARTBEAT: ProviderRight = ProviderRight::new(KUBE_BIND, "clusterbindings/status", "patch");

/// The rights that the konnector needs in a contract namespace, beside those on objects. Exports that cannot be watched are listed.
const NEEDED: [ProviderRight; 14] = [
    READ_NAMESPACE,
    LIST_EXPORTS,
    ProviderRight::new(KUBE_BIND, "apiserviceexports/status", "patch"),
    LIST_SCHEMAS,
    ProviderRight::new(KUBE_BIND, "boundschemas", "watch"),
    ProviderRight::new(KUBE_BIND, "boundschemas/status", "patch"),
    LIST_CLUSTER_BINDINGS,
    WATCH_CLUSTER_BINDINGS,
    WRITE_HEARTBEAT,
    LIST_NAMESPACES,
    ProviderRight::new(KUBE_BIND, "apiservicenamespaces", "watch"),
    ProviderRight::new(KUBE_BIND, "apiservicenamespaces", "create"),
    ProviderRight::new(KUBE_BIND, "apiservicenamespaces", "patch"),
    ProviderRight::new(KUBE_BIND, "apiservicenamespaces", "delete"),
];

impl ProviderRight {
    const fn new(group: &'static str, resource: &'static str, verb: &'static str) -> Self {
        Self { group, resource, verb }
    }

    /// The name of the only object that the konnector uses of the resource, if there is only one.
    fn object(self, namespace: &str) -> Option<&str> {
        match self.resource.split('/').next() {
            Some(NAMESPACES) => Some(namespace),
            Some(CLUSTER_BINDINGS) => Some(CLUSTER_BINDING),
            _ => None,
        }
    }

    /// Whether a rule grants the right.
    fn is_granted(self, rule: &ResourceRule, namespace: &str) -> bool {
        let has = |list: Option<&Vec<String>>, wanted: &str| {
            list.is_some_and(|list| list.iter().any(|item| item == "*" || item == wanted))
        };
        // `*/status` grants the subresource of every resource.
        let every = self.resource.split_once('/').map(|(_, part)| format!("*/{part}"));
        let names = rule.resource_names.as_deref().unwrap_or_default();
        let is_named = |name: &str| names.iter().any(|known| known == name);
        has(rule.api_groups.as_ref(), self.group)
            && (has(rule.resources.as_ref(), self.resource)
                || every.is_some_and(|every| has(rule.resources.as_ref(), &every)))
            && has(Some(&rule.verbs), self.verb)
            && (names.is_empty() || self.object(namespace).is_some_and(is_named))
    }
}

/// Returns the needed rights that no rule grants.
pub(super) fn missing(rules: &[ResourceRule], namespace: &str) -> Vec<ProviderRight> {
    let is_granted = |right: ProviderRight| rules.iter().any(|rule| right.is_granted(rule, namespace));
    NEEDED.into_iter().filter(|right| !is_granted(*right)).collect()
}

/// Returns the rules that grant these rights, each in one line of YAML.
pub fn granting(missing: &[ProviderRight]) -> String {
    let mut rules: Vec<(&str, &str, Vec<&str>)> = Vec::new();
    for right in missing {
        let known = rules
            .iter_mut()
            .find(|(group, resource, _)| (*group, *resource) == (right.group, right.resource));
        match known {
            Some((.., verbs)) => verbs.push(right.verb),
            None => rules.push((right.group, right.resource, vec![right.verb])),
        }
    }
    let mut merged: BTreeMap<(&str, Vec<&str>), Vec<&str>> = BTreeMap::new();
    for (group, resource, verbs) in rules {
        merged.entry((group, verbs)).or_default().push(resource);
    }
    let lines = merged.iter();
    let lines: Vec<_> = lines
        .map(|((group, verbs), resources)| rights::rule(group, resources, verbs))
        .collect();
    lines.join(", ")
}

impl Verification {
    /// What a connection showed when its session was opened.
    pub(super) fn of(reached: &ContractConnection) -> Self {
        Self::new(reached.found.clone(), Vec::new())
    }

    pub(super) fn new(found: Option<Arc<str>>, mut missing: Vec<ProviderRight>) -> Self {
        // Whether the namespace could be read counts, whatever the review of the rights says.
        missing.retain(|right| *right != READ_NAMESPACE);
        if found.is_none() {
            missing.insert(0, READ_NAMESPACE);
        }
        Self { found, missing }
    }

    /// The contract namespace does not exist, which no right would mend.
    pub(super) fn gone(mut missing: Vec<ProviderRight>) -> Self {
        missing.retain(|right| *right != READ_NAMESPACE);
        Self { found: None, missing }
    }

    /// Whether the contract namespace did not exist when it was read last.
    pub fn is_gone(&self) -> bool {
        self.found.is_none() && !self.lacks(READ_NAMESPACE)
    }

    /// Whether a right is known to be missing.
    pub fn lacks(&self, right: ProviderRight) -> bool {
        self.missing.contains(&right)
    }
}

/// The question whether a right is granted.
pub(super) fn access_review(right: ProviderRight, namespace: &str) -> SelfSubjectAccessReview {
    let (resource, subresource) = match right.resource.split_once('/') {
        Some((resource, subresource)) => (resource, Some(subresource)),
        None => (right.resource, None),
    };
    SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                namespace: Some(namespace.to_owned()),
                group: Some(right.group.to_owned()),
                resource: Some(resource.to_owned()),
                subresource: subresource.map(str::to_owned),
                verb: Some(right.verb.to_owned()),
                name: right.object(namespace).map(str::to_owned),
                ..ResourceAttributes::default()
            }),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    }
}

#[cfg(test)]
#[path = "tests/provider_rights.rs"]
mod tests;
