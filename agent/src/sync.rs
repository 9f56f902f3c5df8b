//! Keeps the objects of one bound resource in sync: spec up, status down.
//!
//! One engine serves one resource of one binding. Its parts, in the way of one change:
//!
//! 1. `engine` runs a watch on each side and puts what they show into the `index`, which holds a `pair` of what is
//!    known of each object here and there.
//! 2. Each change queues the object's key; a worker takes it and asks `plan`, a pure function, what is to be done.
//! 3. `write` does it, one request an operation, and what it learns goes into the index for the next plan.
//!
//! `placement` maps objects to their copies. Where those live in provider namespaces, `places` decides when to ask for one,
//! and `keep` takes them into use. `projection` says which content goes up, `deletions` when too much is missing to believe
//! it. `ownership` hands the fields of an adopted object over. `flavour` is what engines do each in their own way: `bound` is that of this module, and `claims` has another.

mod bound;
mod budget;
pub(crate) mod deletions;
pub(crate) mod engine;
pub(crate) mod flavour;
pub(crate) mod index;
mod keep;
mod lag;
pub(crate) mod marks;
mod metrics;
pub(crate) mod object;
mod ownership;
mod pair;
mod placement;
mod places;
mod plan;
pub(crate) mod projection;
pub(crate) mod report;
pub(crate) mod sinks;
pub(crate) mod uid;
pub(crate) mod write;

use std::sync::Arc;

use bindery_api::{
    adoption::Adoption,
    v1alpha2::{APIServiceNamespace, InformerScope, Scope},
};
use bindery_runtime::{cache::Cache, client::Clients};
use jiff::Timestamp;
use k8s_openapi::{api::core::v1::Namespace, apimachinery::pkg::apis::meta::v1::OwnerReference};

use crate::events::Recorder;

pub use bound::Engine;
pub use budget::Budget;
pub use deletions::{Deletions, Frozen, Kind};
pub use metrics::Metrics;
pub use placement::Placement;

/// What an engine syncs, and for whom.
#[derive(Clone, Debug)]
pub struct Target {
    /// Name of the APIServiceBinding.
    pub binding: Arc<str>,
    /// The contract namespace on the provider.
    pub contract: Arc<str>,
    /// The APIServiceExport, as a plain owner of the APIServiceNamespaces that are made for it.
    pub export: OwnerReference,
    /// When that was made: what was let go before may be in use again.
    pub since: Option<Timestamp>,
    /// The resource.
    pub resource: BoundResource,
    /// Where copies go.
    pub placement: Placement,
    /// Whether the provider is watched by namespace or as a whole.
    pub informer_scope: InformerScope,
    /// Several consumers share names, and each write replaces the one before it.
    pub last_wins: bool,
    /// Which objects of the provider are created on the consumer.
    pub adoption: Adoption,
    /// The konnector's own namespace, where nothing is created.
    pub home: Arc<str>,
}

/// What engines share with others.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// Those of the contract.
    pub namespaces: Cache<APIServiceNamespace>,
    /// All of the consumer.
    pub consumer_namespaces: Cache<Namespace>,
    /// Where events go.
    pub recorder: Recorder,
    /// Where work is counted.
    pub metrics: Arc<Metrics>,
    /// How much of it there is at a time, for all engines of a provider.
    pub budget: Budget,
}

/// A resource that both clusters serve, in the version to sync.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundResource {
    /// API group; empty for core.
    pub group: Arc<str>,
    /// Version, such as `v1alpha1`.
    pub version: Arc<str>,
    /// Plural name.
    pub plural: Arc<str>,
    /// Kind.
    pub kind: Arc<str>,
    /// Scope on the consumer.
    pub scope: Scope,
    /// Status is written apart.
    pub status_subresource: bool,
}

/// Clients of the two clusters.
#[derive(Clone, Debug)]
pub struct Sides {
    /// Where the user's objects are.
    pub consumer: Clients,
    /// Where the copies go.
    pub provider: Clients,
}

/// How an engine is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The consumer's objects were listed.
    pub consumer_synced: bool,
    /// The copies were listed, in every provider namespace in use.
    pub provider_synced: bool,
    /// Consumer objects.
    pub objects: usize,
    /// Objects that wait to be worked on.
    pub pending: usize,
    /// Objects whose last attempt failed, or that are left alone because of a conflict.
    pub failing: usize,
    /// What is amiss, in one sentence: a cluster that cannot be reached, or the first failing object.
    pub problem: Option<String>,
    /// While draining, once both sides are known: objects left on either side.
    pub remaining: Option<usize>,
}

impl BoundResource {
    /// `group/version`, as objects carry it.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Path of the collection in a namespace; of all namespaces, or of a cluster-scoped resource, if it is empty.
    pub(crate) fn collection(&self, namespace: &str) -> String {
        let root = if self.group.is_empty() { "api" } else { "apis" };
        let api = self.api_version();
        if namespace.is_empty() {
            format!("/{root}/{api}/{}", self.plural)
        } else {
            format!("/{root}/{api}/namespaces/{namespace}/{}", self.plural)
        }
    }
}

impl std::fmt::Display for BoundResource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.plural, self.group)
    }
}
