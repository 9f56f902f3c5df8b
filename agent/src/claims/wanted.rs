//! What the binding controller wants of the claims of a session, and the progress that it is told.

use std::collections::{BTreeMap, BTreeSet};

use bindery_api::{
    placement::ClaimedPlacement,
    v1alpha2::{GroupResource, InformerScope, PermissionClaim},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use crate::{engine::Problem, index::Orphans};

/// What one binding wants of the claims of its session.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// The APIServiceExport, as an owner reference for the APIServiceNamespaces that are requested for it.
    pub export: OwnerReference,
    /// The provider namespaces of claimed objects.
    pub placement: ClaimedPlacement,
    /// Whether the provider is watched by namespace or cluster-wide.
    pub informer_scope: InformerScope,
    /// Whether Secrets too may be watched cluster-wide.
    pub cluster_wide_secrets: bool,
    /// The consumer namespace that cluster-scoped objects mean by references without a namespace.
    pub cluster_scoped_namespace: Option<String>,
    /// The consumer namespaces that the claims concern, in both directions: those of `spec.claimNamespaces` that the status lists. `None`
    /// for all.
    pub claim_namespaces: Option<BTreeSet<String>>,
    /// The consumer namespaces that may hold objects of the claims and copies: those that the status lists. `None` for all.
    pub watched_namespaces: Option<BTreeSet<String>>,
    /// `spec.claimSecretTypes` of the binding: further types of Secrets that come down.
    pub claim_secret_types: Vec<String>,
    /// The resources of the export.
    pub bound: Vec<GroupResource>,
    /// The claims in effect.
    pub accepted: Vec<PermissionClaim>,
    /// Resources that the binding does not claim any more, and whose copies have to go.
    pub withdrawn: Vec<GroupResource>,
    /// The withdrawn resources that the provider does not claim any more. If it refuses access to them, its copies can
    /// neither be read nor deleted.
    pub dropped: Vec<GroupResource>,
    /// The claims in the status of other bindings of the contract, by binding. While such a binding is not served, copies that it
    /// claims are kept as they are.
    pub kept: BTreeMap<String, Vec<PermissionClaim>>,
    /// The binding is paused: nothing is written or deleted that only it claims.
    pub paused: bool,
    /// A copy whose source is gone becomes the copy of the object that has its name now.
    pub relink: bool,
}

/// The progress of the claims of a binding.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Every accepted and every withdrawn resource.
    pub claims: BTreeMap<GroupResource, ClaimProgress>,
    /// The withdrawn resources.
    pub withdrawn: Vec<GroupResource>,
}

/// The progress of one claimed resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimProgress {
    /// Both clusters were listed, and all references to the objects are known.
    pub synced: bool,
    /// The number of copies on the provider.
    pub from_consumer: usize,
    /// The number of copies on the consumer.
    pub from_provider: usize,
    /// The number of objects that wait for a worker.
    pub pending: usize,
    /// The number of objects whose last write failed, or that a conflict blocks.
    pub failing: usize,
    /// The copies whose source is missing since its cluster went back in time.
    pub orphans: Orphans,
    /// What keeps the claim from being in sync.
    pub problem: Option<Problem>,
    /// An object of the provider of which labels or annotations did not come down, with the first of them.
    pub left_out: Option<String>,
    /// The claim of this binding selects every object.
    pub selects_all: bool,
    /// The number of leftovers: copies on both clusters that no accepted claim selects. `None` while that is not known.
    pub remaining: Option<usize>,
    /// The provider claims the resource no more and refuses access to it, so that only copies on the consumer are counted.
    pub out_of_reach: bool,
}
