//! What the controllers of the control plane would do next.

use std::fmt;

use crate::ObjectKey;

/// One step of a controller of the control plane, such as one deletion by the garbage collector.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Chore {
    /// The garbage collector deletes a dependent whose owners are all gone.
    CollectGarbage(ObjectKey),
    /// The garbage collector removes the owner reference of a deleting owner from its dependent.
    Orphan {
        /// Owner that is deleted with propagation policy `Orphan`.
        owner: ObjectKey,
    },
    /// The garbage collector goes on with an owner that is deleted with propagation policy `Foreground`.
    Foreground {
        /// Owner that waits for its dependents.
        owner: ObjectKey,
    },
    /// The namespace controller goes on with the deletion of a namespace.
    FinalizeNamespace(String),
    /// The CRD finalizer goes on with the deletion of a CRD.
    FinalizeDefinition(String),
    /// The CRD controllers bring the status of a CRD up to date.
    Establish(String),
    /// The ServiceAccount controller makes the ServiceAccount `default` of a namespace.
    DefaultServiceAccount(String),
    /// The root CA publisher makes the ConfigMap `kube-root-ca.crt` of a namespace.
    RootCa(String),
    /// The aggregation controller writes the rules of an aggregated ClusterRole.
    Aggregate(String),
    /// The token controller fills or deletes a Secret of type `kubernetes.io/service-account-token`.
    TokenSecret(ObjectKey),
}

impl fmt::Display for Chore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CollectGarbage(key) => write!(f, "collect garbage {key}"),
            Self::Orphan { owner } => write!(f, "orphan dependents of {owner}"),
            Self::Foreground { owner } => write!(f, "delete dependents of {owner}"),
            Self::FinalizeNamespace(name) => write!(f, "finalize namespace {name}"),
            Self::FinalizeDefinition(name) => write!(f, "finalize CRD {name}"),
            Self::Establish(name) => write!(f, "establish CRD {name}"),
            Self::DefaultServiceAccount(name) => write!(f, "make default ServiceAccount of {name}"),
            Self::RootCa(name) => write!(f, "publish root CA in {name}"),
            Self::Aggregate(name) => write!(f, "aggregate ClusterRole {name}"),
            Self::TokenSecret(key) => write!(f, "fill token {key}"),
        }
    }
}
