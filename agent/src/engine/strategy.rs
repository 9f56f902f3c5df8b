//! What the engine of bound objects and that of claimed ones do each in their own way.

use std::{future::Future, sync::Arc};

use bindery_runtime::{cache::ObjectKey, watch::Event};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use tokio::sync::watch;

use crate::{
    connection::{Target, Writer},
    engine::{Deletions, Progress, report::Issue},
    index::{Index, Known, Place, PlannedUids},
    model::object::{Object, Version},
};

/// How objects of one kind, bound or claimed, are read, compared, planned and written. The engine does the rest.
pub(crate) trait SyncStrategy: Send + Sync + Sized + 'static {
    /// What is known of one object.
    type Pair: Known;
    /// One write or read.
    type Op: Operation;
    /// What an operation taught.
    type Learned: Send;
    /// What is told of the whole.
    type Progress: Clone + Default + PartialEq + Send + Sync + 'static;

    /// Some sources are the provider's, so that what is missing there counts too.
    const HAS_PROVIDERS_SOURCES: bool;

    /// Whole clusters are watched by others, who tell the sinks of this engine.
    const SHARES_WATCHES: bool;

    /// What to do for a pair whose two sides are known, with the place of the provider's.
    fn plan(&self, key: &ObjectKey, pair: &Self::Pair, place: &Place) -> Steps<Self::Op>;

    /// True if it takes no plan to tell that there is nothing to do for such a pair, as for most that a watch shows. Where it
    /// is false, a plan decides.
    fn is_at_rest(&self, key: &ObjectKey, pair: &Self::Pair, place: &Place) -> bool;

    /// What can be done for a pair whose place is not known well enough: there is none, or, with `has_place`, it is still to
    /// be listed.
    fn unplaced(&self, key: &ObjectKey, pair: &Self::Pair, has_place: bool) -> Option<Steps<Self::Op>>;

    /// Does an operation.
    fn apply(
        &self,
        writer: &Writer,
        target: Target<'_>,
        op: &Self::Op,
    ) -> impl Future<Output = Result<Option<Self::Learned>, kube::Error>> + Send;

    /// The version that a write gave its object, if that is what it taught.
    fn written(learned: &Self::Learned) -> Option<Version>;

    /// Notes what an operation taught, of those that were there when it was planned.
    fn learn(&self, index: &mut Index<Self::Pair>, key: &ObjectKey, learned: Self::Learned, planned: &PlannedUids);

    /// The exports that provider namespaces are kept for.
    fn exports(&self) -> Vec<OwnerReference>;

    /// What holds deletions back.
    fn guards(&self) -> Vec<Arc<Deletions>>;

    /// The watch of the consumer's objects brought something.
    fn consumer_event(&self, event: &Event<Object>);

    /// Changes whenever the consumer's objects are all to be shown again.
    fn relists(&self) -> Option<watch::Receiver<u64>>;

    /// How it is going; `is_idle` if no object is being worked on or waits to be.
    fn observe(&self, common: Progress, is_idle: bool, index: &Index<Self::Pair>) -> Self::Progress;
}

/// An operation, as far as an engine is concerned.
pub(crate) trait Operation: Send + Sync {
    /// Its name in metrics.
    fn name(&self) -> &'static str;

    /// True for operations on the consumer's cluster.
    fn is_on_consumer(&self) -> bool;

    /// True for the deletion of a copy that nobody asked for, which is held back while too much is missing.
    fn is_guarded(&self) -> bool;

    /// Reads the consumer's object, or the provider's.
    fn read(on_consumer: bool) -> Self;
}

/// What to do for a pair, and what is amiss.
#[derive(Clone, Debug)]
pub(crate) struct Steps<O> {
    pub ops: Vec<O>,
    pub issue: Option<Issue>,
}

impl<O> From<O> for Steps<O> {
    fn from(op: O) -> Self {
        Self {
            ops: vec![op],
            issue: None,
        }
    }
}
