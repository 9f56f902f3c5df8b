//! What differs between the engines of bound resources and those of claimed resources.

use std::{future::Future, sync::Arc};

use bindery_runtime::{cache::ObjectKey, watch::Event};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use tokio::sync::watch;

use crate::{
    connection::{Target, Writer},
    engine::{Deletions, Orders, Progress, report::Issue},
    index::{Index, Known, Place, PlannedUids},
    model::object::{Object, Version},
};

/// How objects of one kind, bound or claimed, are read, compared, planned and written. The engine does the rest.
pub(crate) trait SyncStrategy: Send + Sync + Sized + 'static {
    /// What the engine knows of one object on both clusters.
    type Pair: Known;
    /// One write or read of a plan.
    type Op: Operation;
    /// What the outcome of an operation says about the objects.
    type Learned: Send;
    /// The progress that the engine publishes.
    type Progress: Clone + Default + PartialEq + Send + Sync + 'static;

    /// Whether a shared informer watches whole clusters, and calls the event handlers of this engine.
    const SHARES_WATCHES: bool;

    /// Whether the provider namespace that a backend assigns by default is used while the assigned one cannot be read. That needs
    /// objects that note where their copy is, and sources on the consumer alone.
    const ASSUMES_PLACES: bool;

    /// Plans a pair whose two sides are known. `place` is the provider namespace of its copy.
    fn plan(&self, key: &ObjectKey, pair: &Self::Pair, place: &Place) -> Steps<Self::Op>;

    /// True if a pair certainly needs no operation, as most that a watch shows. It costs less than a plan. Where it is
    /// false, a plan decides.
    fn is_at_rest(&self, key: &ObjectKey, pair: &Self::Pair, place: &Place) -> bool;

    /// Plans a pair whose provider namespace is not assigned or, with `has_place`, not listed yet. `None` if the pair has
    /// to wait for that.
    fn unplaced(&self, key: &ObjectKey, pair: &Self::Pair, has_place: bool) -> Option<Steps<Self::Op>>;

    /// Notes that an operation is about to be sent. Its answer may be lost, so that nobody knows whether it was done.
    fn sent(&self, _index: &mut Index<Self::Pair>, _key: &ObjectKey, _op: &Self::Op) {}

    /// Runs an operation.
    fn apply(
        &self,
        writer: &Writer,
        target: Target<'_>,
        op: &Self::Op,
    ) -> impl Future<Output = Result<Option<Self::Learned>, kube::Error>> + Send;

    /// The version that a write gave its object; `None` if the operation was no such write.
    fn written(learned: &Self::Learned) -> Option<Version>;

    /// Notes the outcome of an operation. It says nothing about objects that took the name since the plan was made.
    fn learn(&self, index: &mut Index<Self::Pair>, key: &ObjectKey, learned: Self::Learned, planned: &PlannedUids);

    /// The APIServiceExports that own the requests for provider namespaces.
    fn exports(&self) -> Vec<OwnerReference>;

    /// The guard that has to know the orphans of this engine; `None` if they do not concern one.
    fn counts_for(&self) -> Option<&Arc<Deletions>>;

    /// What the user ordered for orphans.
    fn orders(&self) -> &Orders;

    /// The guards that all have to allow a guarded deletion.
    fn guards(&self) -> Vec<Arc<Deletions>>;

    /// Takes an event of the watch of the consumer's objects.
    fn consumer_event(&self, event: &Event<Object>);

    /// Takes a copy that a list or watch of the provider shows. The index may be locked.
    fn copy_shown(&self, _key: &ObjectKey, _copy: &Object) {}

    /// Notes that a copy is gone. `has_source` is true if its source is still there. The index may be locked.
    fn copy_gone(&self, _key: &ObjectKey, _has_source: bool) {}

    /// Subscribes to a number that changes whenever the consumer's objects have to be listed again; `None` if never.
    fn relists(&self) -> Option<watch::Receiver<u64>>;

    /// Returns the progress to publish. `is_idle` is true if no object is queued or with a worker.
    fn observe(&self, common: Progress, is_idle: bool, index: &Index<Self::Pair>) -> Self::Progress;
}

/// An operation, as the engine sees it.
pub(crate) trait Operation: Send + Sync {
    /// Its name in metrics.
    fn name(&self) -> &'static str;

    /// The verb of its request, as Kubernetes names it.
    fn verb(&self) -> &'static str;

    /// True for an operation that writes the content of a consumer's object to its copy, with annotations.
    fn writes_copy(&self) -> bool;

    /// The trace context on the copy whose status this operation writes to the consumer's object, as the copy carries it.
    fn continues(&self) -> Option<&str> {
        None
    }

    /// True for operations on the consumer's cluster.
    fn is_on_consumer(&self) -> bool;

    /// True for a deletion that deletion guards may hold back, since the source is there, and only the claim on it ended.
    fn is_guarded(&self) -> bool;

    /// True for an operation that deletes an object, or lets go of one because its counterpart is gone.
    fn is_deletion(&self) -> bool;

    /// True for a deletion of a copy that relies on the end of its source, as a watch of the consumer showed it.
    fn relies_on_an_end(&self) -> bool {
        false
    }

    /// True for an operation that brings a change of one cluster to the other, so that its answer ends the lag of the change. What only
    /// notes something on an object, or carries out an order of the user, does not.
    fn carries_change(&self) -> bool;

    /// True for an operation that may be run although one before it failed.
    fn is_independent(&self) -> bool {
        false
    }

    /// The operation that reads the consumer's object, or else the provider's.
    fn read(on_consumer: bool) -> Self;
}

/// What to do for a pair, and the issue to report.
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
