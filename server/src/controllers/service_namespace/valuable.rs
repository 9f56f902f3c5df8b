//! Valuable objects: those in a provider namespace that neither a contract nor Kubernetes put there. While there is one, the
//! namespace is not deleted.
//!
//! The server looks at what ClusterRole `view` and its own roles show, and at resources that the provider's admin names. The API
//! server is asked and not a cache, since the namespace is deleted on the strength of the answer.

use std::{collections::BTreeSet, fmt};

use bindery_api::{annotations, labels, retention, v1alpha2::GroupResource};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ObjectMeta;

use super::claimed;

mod kinds;
mod look;
mod rules;

pub(super) use look::look;

/// What the server saw in a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Valuables {
    /// The valuable objects, in the order of resource and name.
    pub(super) objects: Vec<ValuableObject>,
    /// What the server may not see, and the rights that mend it.
    pub(super) unseen: Vec<Unseen>,
}

/// A valuable object of the namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ValuableObject {
    pub(super) resource: GroupResource,
    pub(super) name: String,
}

/// What the server may not see in a namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Unseen {
    /// The cluster has no ClusterRole `view`.
    NoViewRole,
    /// The server may not list a resource that `view` shows, or one of its own roles.
    Resource(GroupResource),
    /// The server may not list a resource that its admin named.
    Named(GroupResource),
}

/// The objects of one resource in a namespace.
#[derive(Clone, Debug)]
struct Listed {
    resource: GroupResource,
    kind: String,
    objects: Vec<ObjectMeta>,
}

/// The valuable objects among those that were listed. `contract` is the contract that the namespace was made for; `None` if
/// contracts share it.
fn among(listed: &[Listed], contract: Option<&str>) -> Vec<ValuableObject> {
    let kinds = listed.iter().map(|listed| (&*listed.resource.group, &*listed.kind));
    let kinds: BTreeSet<_> = kinds.collect();
    let mut found = Vec::new();
    for Listed { resource, objects, .. } in listed {
        let valuable = objects
            .iter()
            .filter(|object| is_valuable(resource, object, contract, &kinds));
        found.extend(valuable.map(|object| ValuableObject {
            resource: resource.clone(),
            name: object.name.clone().unwrap_or_default(),
        }));
    }
    found.sort();
    found
}

/// Whether an object is valuable. `kinds` are the kinds, with their groups, that the server looks at.
fn is_valuable(
    resource: &GroupResource,
    object: &ObjectMeta,
    contract: Option<&str>,
    kinds: &BTreeSet<(&str, &str)>,
) -> bool {
    // Objects without a UID are computed for each request, as metrics are.
    let is_stored = object.uid.is_some();
    let is_deleting = object.deletion_timestamp.is_some();
    // The server's roles and bindings.
    let is_servers = [labels::CONTRACT, labels::COMPONENT].iter().any(|label| {
        let labels = object.labels.as_ref();
        labels.is_some_and(|labels| labels.contains_key(*label))
    });
    let is_placed = claimed::is_in_every_namespace(resource, object);
    is_stored && !is_deleting && !is_servers && !is_placed && !is_copy(object, contract) && !is_owned(object, kinds)
}

/// Whether an object is the contract's copy, which ends with its source. A released copy is the provider's, and a retained one can be
/// restored.
fn is_copy(object: &ObjectMeta, contract: Option<&str>) -> bool {
    let value = |key: &str| object.annotations.as_ref()?.get(key).map(String::as_str);
    let Some(contract) = contract.filter(|contract| value(annotations::CLUSTER_NAMESPACE) == Some(*contract)) else {
        return false;
    };
    !value(annotations::RELEASED).is_some_and(|value| annotations::is_released(value, contract))
        && !retention::is_retained(value, contract)
}

/// Whether an object ends with its owners, and the server looks at all of these: the owners that are there are judged in its place,
/// and the garbage collector deletes an object whose owners have all gone.
fn is_owned(object: &ObjectMeta, kinds: &BTreeSet<(&str, &str)>) -> bool {
    let owners = object.owner_references.as_deref().unwrap_or_default();
    let is_seen = |owner: &OwnerReference| {
        let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
        kinds.contains(&(group, &*owner.kind))
    };
    !owners.is_empty() && owners.iter().all(is_seen)
}

/// Says what keeps a namespace, as `2 objects keep it: persistentvolumeclaims data, pods db-0`; `None` if nothing does.
pub(super) fn explain(objects: &BTreeSet<ValuableObject>) -> Option<String> {
    const NAMED: usize = 3;
    let keep = match objects.len() {
        0 => return None,
        1 => "object keeps",
        _ => "objects keep",
    };
    let named: Vec<_> = objects.iter().take(NAMED).map(ToString::to_string).collect();
    let more = if objects.len() > NAMED { ", ..." } else { "" };
    Some(format!("{} {keep} it: {}{more}", objects.len(), named.join(", ")))
}

// === impl Valuables ===

impl Valuables {
    /// What the server may not see in a namespace, and what mends it; `None` if it sees all.
    pub(super) fn explain_unseen(&self, namespace: &str) -> Option<String> {
        if self.unseen.is_empty() {
            return None;
        }
        let mends: Vec<_> = self.unseen.iter().map(ToString::to_string).collect();
        Some(format!(
            "namespace {namespace} of the provider is kept, for the server may not see all that is in it: {}",
            mends.join("; ")
        ))
    }
}

impl fmt::Display for ValuableObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.resource, self.name)
    }
}

impl fmt::Display for Unseen {
    /// What is missing, and the rule or role that mends it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoViewRole => f.write_str("ClusterRole view does not exist; restore it"),
            Self::Resource(resource) => write!(
                f,
                "{resource} cannot be listed, although a ClusterRole of the server has {}; bind the role again",
                Rule(resource)
            ),
            Self::Named(resource) => write!(
                f,
                "{resource}, which --valuable-resources names, cannot be listed; apply a ClusterRole with label {}=true and the \
                 rule {}",
                labels::AGGREGATE_TO_SERVER,
                Rule(resource)
            ),
        }
    }
}

/// The rule of a role by which a resource can be listed.
struct Rule<'a>(&'a GroupResource);

impl fmt::Display for Rule<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let GroupResource { group, resource } = self.0;
        write!(f, "{{apiGroups: [{group:?}], resources: [{resource}], verbs: [list]}}")
    }
}

#[cfg(test)]
mod tests;
