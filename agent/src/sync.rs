//! Keeps the objects of one bound resource in sync: spec up, status down.
//!
//! One engine serves one resource of one binding. Its parts, in the way of one change:
//!
//! 1. `engine` runs a watch on each side and puts what they show into the `index`, which holds a `pair` of what is
//!    known of each object here and there.
//! 2. Each change queues the object's key; a worker takes it and asks `plan`, a pure function, what is to be done.
//! 3. `write` does it, one request an operation, and what it learns goes into the index for the next plan.
//!
//! Copies live in provider namespaces: `places` decides when to ask for one, `keep` takes them into use. `projection` says
//! which content goes up.

mod engine;
mod index;
mod keep;
mod metrics;
mod object;
mod pair;
mod places;
mod plan;
mod projection;
mod report;
mod sinks;
mod write;

use std::sync::Arc;

use bindery_api::v1alpha2::{InformerScope, Scope};
use bindery_runtime::client::Clients;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

pub use engine::Engine;
pub use metrics::Metrics;

/// What an engine syncs, and for whom.
#[derive(Clone, Debug)]
pub struct Target {
    /// Name of the APIServiceBinding.
    pub binding: Arc<str>,
    /// The contract namespace on the provider.
    pub contract: Arc<str>,
    /// The APIServiceExport, as a plain owner of the APIServiceNamespaces that are made for it.
    pub export: OwnerReference,
    /// The resource.
    pub resource: BoundResource,
    /// Whether the provider is watched by namespace or as a whole.
    pub informer_scope: InformerScope,
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
