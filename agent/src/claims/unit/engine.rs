//! The engine of a claimed resource, and what has it look again.

use std::{collections::BTreeMap, sync::Arc};

use bindery_runtime::{
    cache::Subscription,
    queue::{Lane, Queue},
};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio_util::task::AbortOnDropHandle;

use super::search::forward;
use crate::{
    claims::{
        flavour::{Claimed, Doing},
        registry::Site,
        rules::Rules,
    },
    engine::{Deletions, Frame, Running, Shared},
    index::Index,
    model::{BoundResource, Placement},
    references::{Changed, Listener, Place},
};
use bindery_api::v1alpha2::InformerScope;

/// An engine that runs.
pub(super) struct Engine {
    pub(super) running: Running<Claimed>,
    pub(super) progress: watch::Receiver<Doing>,
    /// What waits for the guard of each binding.
    thaws: BTreeMap<Arc<str>, [AbortOnDropHandle<()>; 2]>,
    news: Arc<Notify>,
    _subscription: Subscription,
    _tasks: [AbortOnDropHandle<()>; 2],
}

pub(super) type Guards = BTreeMap<Arc<str>, Arc<Deletions>>;

// === impl Engine ===

impl Engine {
    /// Starts to sync.
    pub(super) fn start(
        site: &Site,
        rules: &Arc<Rules>,
        resource: BoundResource,
        informer_scope: InformerScope,
        guards: &Guards,
        news: &Arc<Notify>,
    ) -> Self {
        let placement = match rules.claim.place {
            Place::Mapped => Placement::Mapped,
            Place::Shared => Placement::Shared,
        };
        let frame = Frame {
            holder: Arc::clone(&site.contract.namespace),
            contract: Arc::clone(&site.contract.namespace),
            resource,
            placement: placement.clone(),
            informer_scope,
            last_wins: false,
        };
        let claimed = Claimed {
            rules: Arc::clone(rules),
            namespaces: site.around.namespaces.clone(),
            consumer_namespaces: site.around.consumer_namespaces.clone(),
            guards: Mutex::new(guards.clone()),
        };
        let index = Index::with(Arc::clone(&frame.contract), placement, Arc::clone(rules));
        let running = Running::start(frame, site.sides.clone(), site.around.clone(), claimed, index);
        running.shared.pause(rules.terms().paused);
        let shared = Arc::downgrade(&running.shared);
        let listener: Listener = Arc::new(move |changed: &Changed| {
            if let Some(shared) = shared.upgrade() {
                hear(&shared, changed);
            }
        });
        rules.listen(&listener);
        // What was told before anybody listened.
        running.shared.enqueue_all(Lane::Backlog);
        let progress = running.shared.progress();
        let (subscription, task) = on_new_namespace(&running.shared);
        let mut engine = Self {
            _subscription: subscription,
            _tasks: [task, forward(progress.clone(), news)],
            running,
            progress,
            thaws: BTreeMap::new(),
            news: Arc::clone(news),
        };
        engine.guard(guards);
        engine
    }

    /// These bindings may hold deletions back.
    pub(super) fn guard(&mut self, guards: &Guards) {
        let shared = &self.running.shared;
        let before = std::mem::replace(&mut *shared.flavour.guards.lock(), guards.clone());
        for (binding, guard) in before {
            let stays = guards.get(&binding).is_some_and(|now| Arc::ptr_eq(now, &guard));
            if !stays {
                guard.forget(shared.id());
                self.thaws.remove(&binding);
            }
        }
        for (binding, guard) in guards {
            if !self.thaws.contains_key(binding) {
                let thaw = self.running.thaw(Arc::clone(guard));
                let told = forward(guard.frozen(), &self.news);
                self.thaws.insert(Arc::clone(binding), [thaw, told]);
            }
        }
    }

    /// The first of the other bindings, by name, that holds deletions back of them all.
    pub(super) fn frozen_by_another(&self, binding: &str) -> Option<Arc<str>> {
        let guards = self.running.shared.flavour.guards.lock();
        let is_frozen = |guard: &Deletions| guard.frozen().borrow().is_some();
        if guards.get(binding).is_some_and(|own| is_frozen(own)) {
            return None;
        }
        let mut others = guards.iter().filter(|(name, _)| ***name != *binding);
        others
            .find(|(_, guard)| is_frozen(guard))
            .map(|(name, _)| Arc::clone(name))
    }

    /// Other objects are claimed than before.
    pub(super) fn look_again(&self) {
        let shared = &self.running.shared;
        shared.enqueue_all(Lane::Backlog);
        // Told at once: what was counted before says nothing of what is claimed now.
        shared.tell_progress();
    }
}

/// Bound objects refer to other objects than before.
fn hear(shared: &Shared<Claimed>, changed: &Changed) {
    let targets = match changed {
        Changed::All => return shared.enqueue_all(Lane::Backlog),
        Changed::Targets(targets) => targets,
    };
    let index = shared.index.lock();
    let mut keys = Vec::new();
    for target in targets {
        match &target.namespace {
            Some(namespace) => keys.extend(index.key(namespace, &target.name)),
            None => keys.extend(index.keys_named(&target.name)),
        }
    }
    drop(index);
    shared.enqueue(keys, Lane::Live);
}

/// What waits for its namespace on the consumer is looked at when that comes.
fn on_new_namespace(shared: &Arc<Shared<Claimed>>) -> (Subscription, AbortOnDropHandle<()>) {
    // By a queue, for whoever plans reads the same cache with the index in hand.
    let queue: Queue<Arc<str>> = Queue::new();
    let news = queue.clone();
    let subscription = shared.flavour.consumer_namespaces.subscribe(move |change| {
        if change.old.is_none() {
            news.add(Arc::clone(&change.key.name), change.lane);
        }
    });
    let shared = Arc::clone(shared);
    let task = tokio::spawn(async move {
        while let Some(work) = queue.next().await {
            let keys = shared.index.lock().keys_in(work.key());
            shared.enqueue(keys, Lane::Backlog);
        }
    });
    (subscription, AbortOnDropHandle::new(task))
}
