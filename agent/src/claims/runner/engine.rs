//! The engine of a claimed resource, and what makes it look at objects again.

use std::{collections::BTreeMap, sync::Arc};

use bindery_api::{placement::ClaimedPlacement, v1alpha2::InformerScope};
use bindery_runtime::{
    cache::Subscription,
    queue::{Priority, Queue},
};
use k8s_openapi::api::core::v1::Namespace;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio_util::task::AbortOnDropHandle;

use super::{Site, search::forward};
use crate::{
    claims::{
        rules::ClaimRules,
        strategy::{Claimed, ClaimedProgress},
    },
    engine::{Deletions, Frame, Orders, Running, Shared},
    index::Index,
    model::{BoundResource, Placement},
    references::{ReferenceChange, ReferenceListener},
};

/// An engine with the tasks that serve it alone.
pub(super) struct Engine {
    pub(super) running: Running<Claimed>,
    pub(super) progress: watch::Receiver<ClaimedProgress>,
    /// The tasks that wait for the guard of each binding to allow deletions again.
    resumes: BTreeMap<Arc<str>, [AbortOnDropHandle<()>; 2]>,
    news: Arc<Notify>,
    _subscription: Subscription,
    _tasks: [AbortOnDropHandle<()>; 2],
}

pub(super) type Guards = BTreeMap<Arc<str>, Arc<Deletions>>;

// === impl Engine ===

impl Engine {
    /// Starts the engine.
    pub(super) fn start(
        site: &Site,
        rules: &Arc<ClaimRules>,
        resource: BoundResource,
        informer_scope: InformerScope,
        guards: &Guards,
        news: &Arc<Notify>,
    ) -> Self {
        let placement = match rules.claim.placement {
            ClaimedPlacement::Mapped => Placement::Mapped,
            ClaimedPlacement::Shared => Placement::Shared,
        };
        let frame = Frame {
            holder: Arc::clone(&site.contract.namespace),
            contract: Arc::clone(&site.contract.namespace),
            resource,
            placement: placement.clone(),
            informer_scope,
            last_wins: false,
            suspend: None,
        };
        let claimed = Claimed {
            rules: Arc::clone(rules),
            namespaces: site.around.namespaces.clone(),
            consumer_namespaces: site.around.consumer_namespaces.clone(),
            guards: Mutex::new(guards.clone()),
            orders: Orders::default(),
        };
        let index = Index::with(Arc::clone(&frame.contract), placement, Arc::clone(rules));
        let running = Running::start(frame, site.sides.clone(), site.around.clone(), claimed, index);
        running.shared.pause(rules.terms().paused);
        let shared = Arc::downgrade(&running.shared);
        let listener: ReferenceListener = Arc::new(move |change: &ReferenceChange| {
            if let Some(shared) = shared.upgrade() {
                references_changed(&shared, change);
            }
        });
        rules.listen(&listener);
        // References may have changed before the listener was there.
        running.shared.enqueue_all(Priority::Backlog);
        let progress = running.shared.progress();
        let (subscription, task) = on_new_namespace(&running.shared);
        let mut engine = Self {
            _subscription: subscription,
            _tasks: [task, forward(progress.clone(), news)],
            running,
            progress,
            resumes: BTreeMap::new(),
            news: Arc::clone(news),
        };
        engine.guard(guards);
        engine
    }

    /// Replaces the guards of the bindings that claim the resource. Each of them may hold back deletions.
    pub(super) fn guard(&mut self, guards: &Guards) {
        let shared = &self.running.shared;
        let before = std::mem::replace(&mut *shared.strategy.guards.lock(), guards.clone());
        for (binding, guard) in before {
            let stays = guards.get(&binding).is_some_and(|now| Arc::ptr_eq(now, &guard));
            if !stays {
                guard.forget(shared.id());
                self.resumes.remove(&binding);
            }
        }
        for (binding, guard) in guards {
            if !self.resumes.contains_key(binding) {
                let resume = self.running.resume_by(Arc::clone(guard));
                let told = forward(guard.orphaned(), &self.news);
                self.resumes.insert(Arc::clone(binding), [resume, told]);
            }
        }
    }

    /// The binding whose orphans hold back the deletion of copies that no claim selects any more: this one, or else the first by name.
    pub(super) fn held_back_by(&self, binding: &str) -> Option<Arc<str>> {
        let guards = self.running.shared.strategy.guards.lock();
        let holds_back = |guard: &Deletions| *guard.orphaned().borrow() && !guard.consents();
        let own = guards.get_key_value(binding).into_iter();
        own.chain(guards.iter())
            .find(|(_, guard)| holds_back(guard))
            .map(|(name, _)| Arc::clone(name))
    }

    /// Looks at all objects again, because other objects are claimed than before.
    pub(super) fn look_again(&self) {
        let shared = &self.running.shared;
        shared.enqueue_all(Priority::Backlog);
        // Published at once: the counts of before are of other claims.
        shared.tell_progress();
    }
}

/// Looks at the objects again whose references changed.
fn references_changed(shared: &Shared<Claimed>, change: &ReferenceChange) {
    let objects = match change {
        ReferenceChange::All => return shared.enqueue_all(Priority::Backlog),
        ReferenceChange::Namespace(namespace) => {
            let keys = shared.index.lock().keys_in(namespace);
            return shared.enqueue(keys, Priority::Live);
        }
        ReferenceChange::Objects(objects) => objects,
    };
    let index = shared.index.lock();
    let mut keys = Vec::new();
    for object in objects {
        match &object.namespace {
            Some(namespace) => keys.extend(index.key(namespace, &object.name)),
            None => keys.extend(index.keys_named(&object.name)),
        }
    }
    drop(index);
    shared.enqueue(keys, Priority::Live);
}

/// Looks at the objects of a consumer namespace again when the namespace is created, or when a restore takes its deletion back.
fn on_new_namespace(shared: &Arc<Shared<Claimed>>) -> (Subscription, AbortOnDropHandle<()>) {
    // The callback runs inside the cache, which plans read while they hold the lock of the index: so it only queues.
    let queue: Queue<Arc<str>> = Queue::new();
    let news = queue.clone();
    let subscription = shared.strategy.consumer_namespaces.subscribe(move |change| {
        let is_open = |namespace: Option<&Arc<Namespace>>| {
            namespace.is_some_and(|namespace| namespace.metadata.deletion_timestamp.is_none())
        };
        if change.old.is_none() || (is_open(change.new) && !is_open(change.old)) {
            news.add(Arc::clone(&change.key.name), change.priority);
        }
    });
    let shared = Arc::clone(shared);
    let task = tokio::spawn(async move {
        while let Some(work) = queue.next().await {
            let keys = shared.index.lock().keys_in(work.key());
            shared.enqueue(keys, Priority::Backlog);
        }
    });
    (subscription, AbortOnDropHandle::new(task))
}
