//! Keeps the places of an engine: asks for them, takes them into use when they are assigned, gives them back.

use std::sync::{Arc, atomic::Ordering};

use bindery_api::v1alpha2::InformerScope;
use bindery_runtime::{
    backoff::Backoff,
    errors,
    queue::Lane,
    watch::{self, Source},
};
use tokio_util::task::AbortOnDropHandle;

use super::{
    engine::Shared,
    object::Lean,
    places::{self, Observed},
    report::Watched,
    sinks,
};

impl Shared {
    /// Works on consumer namespaces, one at a time.
    pub(super) async fn keep_places(self: Arc<Self>) {
        self.namespaces.synced().await;
        self.consumer_namespaces.synced().await;
        let mut paused = self.paused.subscribe();
        self.places_settled();
        while let Some(work) = self.place_queue.next().await {
            // The sender lives as long as this task.
            let _ = paused.wait_for(|paused| !paused).await;
            let namespace = Arc::clone(work.key());
            match self.keep_place(&namespace).await {
                Ok(()) => drop(work),
                Err(error) => {
                    let failure = errors::explain(&error);
                    tracing::warn!(%namespace, failure, "cannot get a provider namespace");
                    self.issues
                        .lock()
                        .set_watch(Watched::Place(Arc::clone(&namespace)), Some(failure));
                    work.retry(Backoff::OBJECT);
                }
            }
            self.places_settled();
        }
    }

    /// Notes that all places of the beginning are known, when they are.
    fn places_settled(&self) {
        if self.place_queue.is_quiet() {
            self.places_known.store(true, Ordering::Relaxed);
        }
        self.changed.notify_one();
    }

    async fn keep_place(self: &Arc<Self>, namespace: &Arc<str>) -> Result<(), kube::Error> {
        let request = self.namespaces.get(&self.target.contract, namespace);
        let assigned = request.as_deref().and_then(places::assigned);
        let closing = request
            .as_deref()
            .is_some_and(|request| request.metadata.deletion_timestamp.is_some());
        self.use_place(namespace, assigned, closing);
        self.note_refusal(namespace, request.as_deref().and_then(places::refusal).as_ref());
        let seen = Observed {
            wanted: self.index.lock().is_wanted(namespace),
            exists: self.consumer_namespaces.get("", namespace).is_some(),
            request: request.as_deref(),
            export: &self.target.export,
        };
        if let Some(op) = places::plan(&seen) {
            self.writer.place(namespace, &self.target.export, op).await?;
        }
        self.issues
            .lock()
            .set_watch(Watched::Place(Arc::clone(namespace)), None);
        Ok(())
    }

    /// Has the objects of a consumer namespace say why they get no place, or no longer say it.
    fn note_refusal(&self, consumer_namespace: &Arc<str>, refusal: Option<&Arc<str>>) {
        let mut index = self.index.lock();
        if !index.set_refusal(consumer_namespace, refusal) {
            return;
        }
        let keys = index.keys_in(consumer_namespace);
        drop(index);
        self.enqueue(keys, Lane::Live);
    }

    /// Watches the provider namespace that a consumer namespace has been given, and stops to watch one before it.
    pub(super) fn use_place(
        self: &Arc<Self>,
        consumer_namespace: &Arc<str>,
        assigned: Option<Arc<str>>,
        closing: bool,
    ) {
        let mut index = self.index.lock();
        index.set_closing(consumer_namespace, closing);
        let before = index
            .place(consumer_namespace)
            .map(|place| Arc::clone(&place.namespace));
        if before == assigned {
            return;
        }
        index.set_place(consumer_namespace, assigned.clone(), closing);
        let keys = index.keys_in(consumer_namespace);
        drop(index);
        self.pumps.lock().remove(consumer_namespace);
        if let Some(before) = before {
            self.issues.lock().set_watch(Watched::Provider(before), None);
        }
        let Some(namespace) = assigned else {
            self.enqueue(keys, Lane::Backlog);
            return;
        };
        let source = Source::path(self.target.resource.collection(&namespace));
        let sink = sinks::provider_namespace(Arc::downgrade(self), Arc::clone(consumer_namespace), namespace);
        let client = self.sides.provider.watch.clone();
        let pump = if self.target.informer_scope == InformerScope::Cluster {
            // The one watch brings what changes; what was there before is listed once.
            tokio::spawn(watch::list(client, source, Lean, sink))
        } else {
            tokio::spawn(watch::run(client, source, Lean, sink))
        };
        self.pumps
            .lock()
            .insert(Arc::clone(consumer_namespace), AbortOnDropHandle::new(pump));
    }
}
