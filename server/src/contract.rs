//! Contracts: the namespace of each consumer cluster on the provider, and its owners. All functions decide from namespaces that
//! they are given, without a client.

use std::{collections::BTreeMap, sync::Arc};

use bindery_api::{annotations, labels, meta, names};
use bindery_proto::v1alpha2::ErrorReason;
use bindery_runtime::cache::ObjectKey;
use k8s_openapi::api::core::v1::Namespace;
use kube::{ResourceExt as _, api::ObjectMeta};
use serde_json::json;

use crate::principal::Principal;
use grants::Granter;

pub mod grants;
pub mod served;
pub mod sharing;

/// Longest identity of a cluster, in bytes.
pub const IDENTITY_LENGTH_MAX: usize = 1024;

/// Why a principal cannot bind for a cluster.
#[derive(thiserror::Error, Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Another principal owns the contract of the cluster.
    #[error(
        "the cluster identity is bound by another principal; its owner can share it with a group of yours by `kubectl bind \
         share --contract {contract} --group GROUP`; if that owner is not the cluster's, the provider's admin replaces it by `kubectl \
         bind provider transfer {contract} --to PRINCIPAL`"
    )]
    IdentityTaken {
        /// The contract namespace.
        contract: String,
    },
    /// The contract namespace of that name is of another identity with the same hash.
    #[error("namespace {contract} belongs to another cluster identity of the same hash; choose another identity")]
    IdentityMismatch {
        /// The contract namespace.
        contract: String,
    },
    /// A namespace with the name of the contract exists, and is not a contract.
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
    /// The name of the new contract and that of another one are the same up to a dash.
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
    /// Several contracts have the identity of the cluster.
    #[error("contracts {} and {} have one cluster identity; delete one of them", .0, .1)]
    Several(String, String),
}

/// The contract namespace of a cluster, which may not exist yet.
#[derive(Clone, Debug, PartialEq)]
pub struct Located {
    /// Name of the contract namespace.
    pub name: String,
    /// The namespace, if it exists.
    pub namespace: Option<Arc<Namespace>>,
}

/// The properties of a new contract.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewContract<'a> {
    /// Name of the contract namespace.
    pub name: &'a str,
    /// Identity of the consumer cluster.
    pub identity: &'a str,
    /// Name of the consumer for people.
    pub pretty_name: &'a str,
    /// The owner.
    pub owner: &'a Principal,
    /// The groups of the owner, if they were verified.
    pub owner_groups: &'a [String],
    /// The template that is bound.
    pub template: &'a str,
}

// === impl Refusal ===

impl Refusal {
    /// The reason in conditions, which does not change between versions.
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

    /// The reason in the status of a gRPC call.
    pub const fn error_reason(&self) -> ErrorReason {
        match self {
            Self::IdentityTaken { .. } | Self::IdentityMismatch { .. } => ErrorReason::ClusterIdentityTaken,
            Self::ForeignNamespace { .. }
            | Self::Terminating { .. }
            | Self::NameOverlaps { .. }
            | Self::Several(..) => ErrorReason::PlacementConflict,
        }
    }

    /// Whether it stays until somebody changes something.
    pub const fn is_final(&self) -> bool {
        !matches!(self, Self::Terminating { .. })
    }
}

/// Whether a namespace is a contract.
pub fn is_contract(namespace: &Namespace) -> bool {
    meta::is_contract(&namespace.metadata)
}

/// The contract that the label `kube-bind.io/contract` of an object names.
pub fn of<K: kube::Resource>(object: &K) -> Option<&str> {
    meta::contract(object.meta())
}

/// The identity of the consumer cluster, by the annotation of its contract.
pub fn identity(namespace: &Namespace) -> Option<&str> {
    meta::identity(&namespace.metadata)
}

/// The owners of a contract. It has none if the annotation is missing or cannot be read.
pub fn owners(namespace: &Namespace) -> Vec<Principal> {
    let json = namespace.annotations().get(annotations::OWNERS);
    json.and_then(|json| serde_json::from_str(json).ok())
        .unwrap_or_default()
}

/// Whether a principal is one of the owners of a contract. Its groups do not count.
pub fn is_owned_by(namespace: &Namespace, caller: &Principal) -> bool {
    owners(namespace).iter().any(|owner| owner.is(caller))
}

/// Whether a principal or one of its groups owns a contract.
pub fn may_use(namespace: &Namespace, caller: &Principal, groups: &[String]) -> bool {
    is_owned_by(namespace, caller) || !sharing::matching(namespace, groups).is_empty()
}

/// Key of the APIServiceNamespace that a provider namespace was made for.
pub fn made_for(namespace: &Namespace) -> Option<ObjectKey> {
    let key = namespace.annotations().get(annotations::API_SERVICE_NAMESPACE)?;
    let (contract, name) = key.split_once('/')?;
    (of(namespace) == Some(contract)).then(|| ObjectKey::new(contract, name))
}

/// Whether a namespace is being deleted.
pub fn is_terminating(namespace: &Namespace) -> bool {
    namespace.metadata.deletion_timestamp.is_some()
}

/// Finds the contract of a cluster among the labelled namespaces: the one with its identity, else the one with the name that is
/// made from it. Names of objects on the provider begin with the contract's name and a dash, so a new contract is refused a
/// name that would begin another contract's names, or the other way round.
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

/// Selects the namespaces that [`locate`] needs for a cluster, of the thousands that a provider may have.
pub fn concerning(prefix: &str, cluster: &str) -> impl Fn(&Namespace) -> bool {
    let wanted = names::contract_namespace(prefix, cluster);
    move |namespace| {
        let name = namespace.metadata.name.as_deref().unwrap_or_default();
        is_contract(namespace) && (name == wanted || identity(namespace) == Some(cluster) || overlap(name, &wanted))
    }
}

/// Whether one of two names begins with the other and a dash.
fn overlap(one: &str, other: &str) -> bool {
    let extends = |long: &str, short: &str| long.strip_prefix(short).is_some_and(|rest| rest.starts_with('-'));
    extends(one, other) || extends(other, one)
}

/// Decides whether a caller with these verified groups may bind for a cluster with this contract.
pub fn admit(located: &Located, cluster: &str, caller: &Principal, groups: &[String]) -> Result<(), Refusal> {
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
    if !may_use(namespace, caller, groups) {
        return Err(Refusal::IdentityTaken { contract: contract() });
    }
    if is_terminating(namespace) {
        return Err(Refusal::Terminating { contract: contract() });
    }
    Ok(())
}

/// The namespace of a new contract, ready to be created.
pub fn namespace(new: &NewContract<'_>) -> Namespace {
    let granter = Granter::new(new.owner.clone(), new.owner_groups);
    let annotations = [
        (annotations::IDENTITY, new.identity.to_owned()),
        (annotations::AUTHOR, new.owner.username.clone()),
        (annotations::CLUSTER_PRETTY_NAME, new.pretty_name.to_owned()),
        (annotations::OWNERS, json!([new.owner]).to_string()),
        (annotations::GRANTED_TEMPLATES, json!([new.template]).to_string()),
        (annotations::GRANTED_BY, json!({ new.template: granter }).to_string()),
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

#[cfg(test)]
mod tests;
