//! Manages the provider namespaces of an engine: requests them, uses them once they are assigned, and gives them up.

use std::{
    collections::HashMap,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use bindery_api::v1alpha2::InformerScope;
use bindery_runtime::{
    backoff::Backoff,
    errors,
    guard::{Faults, NameRule},
    queue::Priority,
    watch::{self, Source},
};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use crate::{
    engine::{Shared, events, report::Watched, strategy::SyncStrategy},
    model::object::Lean,
    namespaces::mapped::{self, Observed, PlaceOp},
};

/// A provider namespace that is not needed any more and holds copies is looked at again after this time. That sends no request.
const HELD_RETRY: Duration = Duration::from_secs(5);
/// Pauses between requests for the provider namespace of the same consumer namespace. Where its export is gone, and the konnector has not
/// seen that yet, or waits for objects that are paused, a request would end as soon as it is made, and lose the export as an owner.
const REQUEST_PAUSE: Backoff = Backoff::OBJECT;

/// The provider namespaces that were requested, by name of the APIServiceNamespace.
#[derive(Debug, Default)]
struct Requested(HashMap<Arc<str>, LastRequest>);

/// The last of requests for one provider namespace.
#[derive(Clone, Copy, Debug)]
struct LastRequest {
    /// When the next one may be sent.
    next: Instant,
    /// How many came shortly before it.
    before: u32,
}

// === impl Requested ===

impl Requested {
    /// How long the next request has to wait; `None` if it may be sent now.
    fn pause(&self, name: &str) -> Option<Duration> {
        let pause = self.0.get(name)?.next.saturating_duration_since(Instant::now());
        (!pause.is_zero()).then_some(pause)
    }

    /// Whether a request was sent since the provider namespace is needed.
    fn is_noted(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Notes a request that was sent, or found to be in vain, now.
    fn note(&mut self, name: &Arc<str>) {
        let now = Instant::now();
        let shortly = self.0.get(name).filter(|last| now < last.next + REQUEST_PAUSE.max);
        let before = shortly.map_or(0, |last| last.before.saturating_add(1));
        let next = now + REQUEST_PAUSE.delay(before);
        self.0.insert(Arc::clone(name), LastRequest { next, before });
    }

    /// Forgets a provider namespace that is not needed.
    fn forget(&mut self, name: &str) {
        self.0.remove(name);
    }
}

// === impl Shared ===

impl<F: SyncStrategy> Shared<F> {
    /// Reconciles queued APIServiceNamespaces, one at a time.
    pub(super) async fn keep_places(self: Arc<Self>) {
        tokio::select! {
            () = self.around.namespaces.synced() => {}
            () = self.unreadable_places() => {}
        }
        self.around.consumer_namespaces.synced().await;
        let mut paused = self.paused.subscribe();
        let mut faults = self.around.guard.faults();
        let mut requested = Requested::default();
        self.places_settled();
        while let Some(work) = self.place_queue.next().await {
            // Waiting cannot fail: the sender lives as long as this task.
            let _ = paused.wait_for(|paused| !paused).await;
            let _ = faults.wait_for(Faults::is_within_limits).await;
            self.around.holding.proven().await;
            let namespace = Arc::clone(work.key());
            match self.keep_place(&namespace, &mut requested).await {
                Ok(None) => drop(work),
                Ok(Some(pause)) => work.again_after(pause),
                // Another engine wrote it first, and the cache will show what it wrote.
                Err(error) if errors::is_conflict(&error) => work.retry(Backoff::OBJECT),
                Err(error) => {
                    tracing::warn!(%namespace, failure = errors::explain(&error), "cannot get a provider namespace");
                    self.issues
                        .lock()
                        .set_watch(Watched::Place(Arc::clone(&namespace)), Some(&error));
                    work.retry(Backoff::OBJECT);
                }
            }
            self.places_settled();
        }
    }

    /// Whether the APIServiceNamespaces were never listed, and may not be.
    fn is_place_unreadable(&self) -> bool {
        *self.around.unreadable_namespaces.borrow() && !self.around.namespaces.is_synced()
    }

    /// Waits until the APIServiceNamespaces are known to be unreadable.
    async fn unreadable_places(&self) {
        let mut unreadable = self.around.unreadable_namespaces.clone();
        if unreadable.wait_for(|unreadable| *unreadable).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Notes, once the queue is empty, that all provider namespaces that were assigned before the start are in use.
    fn places_settled(&self) {
        if self.place_queue.is_quiet() {
            self.places_known
                .send_if_modified(|known| !std::mem::replace(known, true));
        }
        self.changed.notify_one();
    }

    /// Requests, uses or gives up a provider namespace. Returns after which time it has to be looked at again, if nothing tells when.
    async fn keep_place(
        self: &Arc<Self>,
        name: &Arc<str>,
        requested: &mut Requested,
    ) -> Result<Option<Duration>, kube::Error> {
        let Some(consumer_namespace) = self.frame.placement.requested_by(name) else {
            return Ok(None);
        };
        let request = self.around.namespaces.get(&self.frame.contract, name);
        let is_assumed = request.is_none() && F::ASSUMES_PLACES && self.is_place_unreadable();
        let assigned = match request.as_deref() {
            Some(request) => mapped::assigned(request, &self.frame.placement).unwrap_or_default(),
            None if is_assumed => mapped::assumed(&self.frame.contract, &consumer_namespace, &self.frame.placement),
            None => None,
        };
        let closing = request
            .as_deref()
            .is_some_and(|request| request.metadata.deletion_timestamp.is_some());
        self.use_place(&consumer_namespace, assigned, closing, is_assumed);
        let refusal = request
            .as_deref()
            .and_then(|request| mapped::refusal(request, &self.frame.placement));
        self.note_refusal(&consumer_namespace, refusal.as_ref());
        let exists = self.around.consumer_namespaces.get("", name).is_some();
        // Objects whose namespace was finalized by force can be written no more, so they need no provider namespace.
        let is_writable = exists || consumer_namespace != *name;
        let seen = Observed {
            wanted: is_writable && self.index.lock().is_wanted(&consumer_namespace),
            exists,
            request: request.as_deref(),
            exports: &self.strategy.exports(),
        };
        if !seen.wanted {
            requested.forget(name);
        }
        match mapped::plan(&seen) {
            Some(PlaceOp::GiveBack { .. })
                if self.withholds_deletions() || !self.index.lock().is_known_empty(&consumer_namespace) => {}
            // Its end would wait for the copies, and until then no copy could be created there.
            Some(PlaceOp::GiveBack { .. }) if self.around.tally.may_hold_copies(&consumer_namespace) => {
                return Ok(Some(HELD_RETRY));
            }
            Some(op @ (PlaceOp::Request { .. } | PlaceOp::Need { .. } | PlaceOp::Share { .. })) => {
                if let Some(pause) = requested.pause(name) {
                    return Ok(Some(pause));
                }
                if requested.is_noted(name) && !self.writer.has_export(seen.exports).await? {
                    requested.note(name);
                    return Ok(requested.pause(name));
                }
                self.writer.place(name, op).await?;
                requested.note(name);
            }
            Some(op @ PlaceOp::GiveBack { .. }) => self.writer.place(name, op).await?,
            None => {}
        }
        self.issues.lock().set_watch(Watched::Place(Arc::clone(name)), None);
        Ok(None)
    }

    /// Notes why the backend refuses a provider namespace, and queues the objects in question, whose issues say the reason.
    fn note_refusal(&self, consumer_namespace: &Arc<str>, refusal: Option<&Arc<str>>) {
        let mut index = self.index.lock();
        if !index.set_refusal(consumer_namespace, refusal) {
            return;
        }
        let keys = index.keys_in(consumer_namespace);
        drop(index);
        self.enqueue(keys, Priority::Live);
    }

    /// Uses the provider namespace that is assigned to a consumer namespace, if any, in place of an earlier one. `assumed` is true of
    /// one that is only assumed to be assigned.
    pub(super) fn use_place(
        self: &Arc<Self>,
        consumer_namespace: &Arc<str>,
        assigned: Option<Arc<str>>,
        closing: bool,
        assumed: bool,
    ) {
        let mut index = self.index.lock();
        index.set_closing(consumer_namespace, closing);
        let is_news = index.set_assumed(consumer_namespace, assumed);
        let before = index
            .place(consumer_namespace)
            .map(|place| Arc::clone(&place.namespace));
        if before == assigned {
            let keys = is_news.then(|| index.keys_in(consumer_namespace));
            drop(index);
            self.enqueue(keys.unwrap_or_default(), Priority::Backlog);
            return;
        }
        index.set_place(consumer_namespace, assigned.clone(), closing);
        index.set_assumed(consumer_namespace, assumed);
        let is_listed = self.lists_places.load(Ordering::Relaxed);
        let keys = index.keys_in(consumer_namespace);
        drop(index);
        self.pumps.lock().remove(consumer_namespace);
        if let Some(before) = before {
            self.issues.lock().set_watch(Watched::Provider(before), None);
        }
        let Some(namespace) = assigned else {
            self.enqueue(keys, Priority::Backlog);
            return;
        };
        if is_listed {
            self.watch_place(consumer_namespace, namespace);
        }
    }

    /// Watches the provider namespace of a consumer namespace, or lists it once if the provider is watched cluster-wide.
    pub(super) fn watch_place(self: &Arc<Self>, consumer_namespace: &Arc<str>, namespace: Arc<str>) {
        let source = Source::path(self.frame.resource.collection(&namespace));
        let source = source.guarded(&self.around.guard, NameRule::Object);
        let handler = events::provider_namespace(Arc::downgrade(self), Arc::clone(consumer_namespace), namespace);
        let client = self.sides.provider.watch.clone();
        let task = if self.frame.informer_scope == InformerScope::Cluster {
            // The cluster-wide watch shows changes. Only what existed before has to be listed.
            tokio::spawn(watch::list(client, source, Lean, handler))
        } else {
            tokio::spawn(watch::run(client, source, Lean, handler))
        };
        self.pumps
            .lock()
            .insert(Arc::clone(consumer_namespace), AbortOnDropHandle::new(task));
    }
}
