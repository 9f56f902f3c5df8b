//! What the binding controller says to the claims of a session, and hears of them.

use std::collections::BTreeMap;

use bindery_api::v1alpha2::{GroupResource, InformerScope, PermissionClaim};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use crate::references::Place;

/// What a binding claims.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// The APIServiceExport, as a plain owner of the APIServiceNamespaces that are made for it.
    pub export: OwnerReference,
    /// Where the provider's side of claimed objects is.
    pub place: Place,
    /// Whether the provider is watched by namespace or as a whole.
    pub informer_scope: InformerScope,
    /// Whether that holds for Secrets too.
    pub cluster_wide_secrets: bool,
    /// The consumer's namespace that holds what cluster-scoped objects refer to.
    pub cluster_scoped_namespace: Option<String>,
    /// Claims in effect.
    pub accepted: Vec<PermissionClaim>,
    /// Resources of which nothing is claimed any more, and copies may be left.
    pub withdrawn: Vec<GroupResource>,
    /// Those of them that the provider claims no more: where it refuses, nothing can be read there, nor withdrawn.
    pub dropped: Vec<GroupResource>,
    /// What other bindings of the contract claim as their status says, by their names. Of one that says nothing here, copies
    /// stay as they are.
    pub kept: BTreeMap<String, Vec<PermissionClaim>>,
    /// Nothing is written or deleted for this binding alone.
    pub paused: bool,
    /// Copies of objects that are no more go to those that have their names now.
    pub relink: bool,
}

/// How the claims of a binding are doing: every accepted and every withdrawn resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// By resource.
    pub claims: BTreeMap<GroupResource, ClaimProgress>,
    /// Those of them that are being withdrawn.
    pub withdrawn: Vec<GroupResource>,
}

/// How a claimed resource is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimProgress {
    /// Both sides were listed, and what refers to the objects is known.
    pub synced: bool,
    /// Copies on the provider.
    pub from_consumer: usize,
    /// Copies on the consumer.
    pub from_provider: usize,
    /// Objects that wait to be worked on.
    pub pending: usize,
    /// Objects whose last attempt failed, or that are left alone because of a conflict.
    pub failing: usize,
    /// What is amiss.
    pub problem: Option<Problem>,
    /// The claim of this binding selects everything.
    pub selects_all: bool,
    /// Copies on both clusters that no accepted claim selects; `None` while that is not known.
    pub remaining: Option<usize>,
    /// The provider claims it no more and refuses: only copies on the consumer are counted, and others may be left.
    pub out_of_reach: bool,
}

/// What is amiss with a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// A stable name.
    pub reason: &'static str,
    /// What is wrong and what mends it.
    pub message: String,
    /// What mends it is a right on the claimed resource of the consumer.
    pub lacks_right: bool,
}
