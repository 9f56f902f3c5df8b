//! Contracts: which namespace a consumer cluster has, and whose it is. Decided from what is there, without a client.

use std::{collections::BTreeMap, sync::Arc};

use bindery_api::{annotations, labels, meta, names};
use bindery_proto::v1alpha2::ErrorReason;
use k8s_openapi::api::core::v1::Namespace;
use kube::{ResourceExt as _, api::ObjectMeta};
use serde_json::{Value, json};

use crate::principal::Principal;

pub mod served;

/// The longest identity of a cluster.
pub const IDENTITY_LENGTH_MAX: usize = 1024;

/// Why a principal gets no contract for a cluster.
#[derive(thiserror::Error, Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The cluster's contract belongs to somebody else.
    #[error(
        "the cluster identity is bound by another principal; its owner or the provider's admin can add you to \
         annotation backend.kube-bind.io/owners of namespace {contract}"
    )]
    IdentityTaken {
        /// The contract namespace.
        contract: String,
    },
    /// Two identities have one hash.
    #[error("namespace {contract} belongs to another cluster identity of the same hash; choose another identity")]
    IdentityMismatch {
        /// The contract namespace.
        contract: String,
    },
    /// The namespace exists and is not a contract.
    #[error(
        "namespace {name} exists and is not managed by this server; delete it, or label it kube-bind.io/contract={name} \
         and annotate it with identity and owners to have it taken over"
    )]
    ForeignNamespace {
        /// The namespace.
        name: String,
    },
    /// The contract is being deleted.
    #[error("contract {contract} is being deleted; bind again when it has gone")]
    Terminating {
        /// The contract namespace.
        contract: String,
    },
    /// One contract's name would begin like another's whole.
    #[error(
        "namespace {name} of the new contract and contract {other} would share a prefix, and with it names on the provider; \
         give the server back the --namespace-prefix that {other} was made with, or delete {other}"
    )]
    NameOverlaps {
        /// The namespace of the new contract.
        name: String,
        /// The contract that exists.
        other: String,
    },
    /// More than one contract has the identity.
    #[error("contracts {} and {} have one cluster identity; delete one of them", .0, .1)]
    Several(String, String),
}

/// Where a cluster's contract is, or will be.
#[derive(Clone, Debug, PartialEq)]
pub struct Located {
    /// Name of the contract namespace.
    pub name: String,
    /// The namespace, if there is one already.
    pub namespace: Option<Arc<Namespace>>,
}

/// What a new contract is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewContract<'a> {
    /// Name of the contract namespace.
    pub name: &'a str,
    /// Identity of the consumer cluster.
    pub identity: &'a str,
    /// The consumer's name for people.
    pub pretty_name: &'a str,
    /// Who owns it.
    pub owner: &'a Principal,
    /// The template that is bound.
    pub template: &'a str,
}

// === impl Refusal ===

impl Refusal {
    /// Stable reason, for conditions.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::IdentityTaken { .. } => "ClusterIdentityTaken",
            Self::IdentityMismatch { .. } => "ClusterIdentityMismatch",
            Self::ForeignNamespace { .. } => "ForeignNamespace",
            Self::Terminating { .. } => "ContractTerminating",
            Self::NameOverlaps { .. } => "ContractNameOverlaps",
            Self::Several(..) => "ClusterIdentityAmbiguous",
        }
    }

    /// The reason of a call that fails for this.
    pub const fn error_reason(&self) -> ErrorReason {
        match self {
            Self::IdentityTaken { .. } | Self::IdentityMismatch { .. } => ErrorReason::ClusterIdentityTaken,
            Self::ForeignNamespace { .. }
            | Self::Terminating { .. }
            | Self::NameOverlaps { .. }
            | Self::Several(..) => ErrorReason::PlacementConflict,
        }
    }

    /// Whether it passes by itself.
    pub const fn is_final(&self) -> bool {
        !matches!(self, Self::Terminating { .. })
    }
}

/// Whether a namespace is a contract's own, not one made for it: it carries its own name as the contract's.
pub fn is_contract(namespace: &Namespace) -> bool {
    of(namespace).is_some_and(|contract| namespace.metadata.name.as_deref() == Some(contract))
}

/// The contract an object is marked with.
pub fn of<K: kube::Resource>(object: &K) -> Option<&str> {
    meta::contract(object.meta())
}

/// The identity of a contract's cluster, whole.
pub fn identity(namespace: &Namespace) -> Option<&str> {
    let annotations = namespace.annotations();
    let identity = annotations
        .get(annotations::IDENTITY)
        .or_else(|| annotations.get(annotations::IDENTITY_LEGACY));
    identity.map(String::as_str)
}

/// Who owns a contract. Nobody, where the annotation is missing or cannot be read.
pub fn owners(namespace: &Namespace) -> Vec<Principal> {
    let json = namespace.annotations().get(annotations::OWNERS);
    json.and_then(|json| serde_json::from_str(json).ok())
        .unwrap_or_default()
}

/// Whether a caller owns a contract.
pub fn is_owned_by(namespace: &Namespace, caller: &Principal) -> bool {
    owners(namespace).iter().any(|owner| owner.is(caller))
}

/// The templates granted to a contract, by name.
pub fn granted_templates(namespace: &Namespace) -> Vec<String> {
    let json = namespace.annotations().get(annotations::GRANTED_TEMPLATES);
    json.and_then(|json| serde_json::from_str(json).ok())
        .unwrap_or_default()
}

/// Whether a namespace is on its way out.
pub fn is_terminating(namespace: &Namespace) -> bool {
    namespace.metadata.deletion_timestamp.is_some()
}

/// Finds the contract of a cluster among the labelled namespaces: the one that has the identity, else the one that has,
/// or will have, the name made from it. A new one is refused a name by which it would reach into another, or another into
/// it: what belongs to a contract on the provider is told by names that begin with the contract's and a dash.
pub fn locate(namespaces: &[Arc<Namespace>], prefix: &str, cluster: &str) -> Result<Located, Refusal> {
    let contracts = namespaces.iter().filter(|namespace| is_contract(namespace));
    let mut matching = contracts
        .clone()
        .filter(|namespace| identity(namespace) == Some(cluster));
    if let Some(found) = matching.next() {
        if let Some(second) = matching.next() {
            return Err(Refusal::Several(found.name_any(), second.name_any()));
        }
        return Ok(Located {
            name: found.name_any(),
            namespace: Some(Arc::clone(found)),
        });
    }
    let name = names::contract_namespace(prefix, cluster);
    let namespace = namespaces
        .iter()
        .find(|namespace| namespace.metadata.name.as_deref() == Some(&*name));
    if namespace.is_none()
        && let Some(other) = contracts.clone().find(|other| {
            other
                .metadata
                .name
                .as_deref()
                .is_some_and(|other| overlap(&name, other))
        })
    {
        return Err(Refusal::NameOverlaps {
            name,
            other: other.name_any(),
        });
    }
    Ok(Located {
        namespace: namespace.cloned(),
        name,
    })
}

/// Tells the contracts that [`locate`] has to be shown for a cluster: to it no other makes a difference, and a provider has
/// thousands.
pub fn concerning(prefix: &str, cluster: &str) -> impl Fn(&Namespace) -> bool {
    let wanted = names::contract_namespace(prefix, cluster);
    move |namespace| {
        let name = namespace.metadata.name.as_deref().unwrap_or_default();
        is_contract(namespace) && (name == wanted || identity(namespace) == Some(cluster) || overlap(name, &wanted))
    }
}

/// Whether one of two names is the other and a dash and more.
fn overlap(one: &str, other: &str) -> bool {
    let extends = |long: &str, short: &str| long.strip_prefix(short).is_some_and(|rest| rest.starts_with('-'));
    extends(one, other) || extends(other, one)
}

/// Decides whether a caller may bind for a cluster, given where its contract is.
pub fn admit(located: &Located, cluster: &str, caller: &Principal) -> Result<(), Refusal> {
    let contract = || located.name.clone();
    let Some(namespace) = &located.namespace else {
        return Ok(());
    };
    if !is_contract(namespace) {
        return Err(Refusal::ForeignNamespace { name: contract() });
    }
    if identity(namespace) != Some(cluster) {
        return Err(Refusal::IdentityMismatch { contract: contract() });
    }
    if !is_owned_by(namespace, caller) {
        return Err(Refusal::IdentityTaken { contract: contract() });
    }
    if is_terminating(namespace) {
        return Err(Refusal::Terminating { contract: contract() });
    }
    Ok(())
}

/// The namespace of a new contract.
pub fn namespace(new: &NewContract<'_>) -> Namespace {
    let annotations = [
        (annotations::IDENTITY, new.identity.to_owned()),
        (annotations::AUTHOR, new.owner.username.clone()),
        (annotations::CLUSTER_PRETTY_NAME, new.pretty_name.to_owned()),
        (annotations::OWNERS, json!([new.owner]).to_string()),
        (annotations::GRANTED_TEMPLATES, json!([new.template]).to_string()),
    ];
    Namespace {
        metadata: ObjectMeta {
            name: Some(new.name.to_owned()),
            labels: Some(BTreeMap::from([(labels::CONTRACT.to_owned(), new.name.to_owned())])),
            annotations: Some(annotations.map(|(key, value)| (key.to_owned(), value)).into()),
            ..ObjectMeta::default()
        },
        ..Namespace::default()
    }
}

/// The patch that grants a contract one more template, if it has not got it.
pub fn grant(namespace: &Namespace, template: &str) -> Option<Value> {
    let mut granted = granted_templates(namespace);
    if granted.iter().any(|name| name == template) {
        return None;
    }
    granted.push(template.to_owned());
    granted.sort_unstable();
    Some(json!({
        "metadata": {
            "uid": namespace.metadata.uid,
            "resourceVersion": namespace.metadata.resource_version,
            "annotations": { annotations::GRANTED_TEMPLATES: json!(granted).to_string() },
        }
    }))
}

#[cfg(test)]
mod tests;
