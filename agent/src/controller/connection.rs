//! What runs for one binding or bundle between the konnector and its provider.

use std::{hash::Hash, sync::Arc};

use bindery_runtime::{
    cache::Subscription,
    errors,
    queue::{Priority, Queue},
};
use tokio::sync::watch;

use crate::{
    attempt::Link,
    debounce::{PROGRESS_PAUSE, StatusDebounce},
    session::{Session, connect::ConnectAttempts},
};

/// The attempts to reach a provider and the session with it, for one binding or bundle. Its key is queued whenever one of
/// them changes. Dropping it ends the attempts and leaves the session.
#[derive(Debug)]
pub struct ProviderConnection<K> {
    /// UID of the binding or bundle.
    uid: Option<String>,
    queue: Queue<K>,
    key: K,
    attached: Option<AttachedSession>,
    /// The attempts to reach providers.
    pub attempts: ConnectAttempts<K>,
    debounce: StatusDebounce,
}

/// A session and the links that queue the key when it changes.
#[derive(Debug)]
struct AttachedSession {
    session: Arc<Session>,
    _links: [Link; 6],
    _subscription: Subscription,
}

impl<K: Eq + Hash + Clone + Send + Sync + 'static> ProviderConnection<K> {
    /// A connection without attempts or session, for the binding or bundle of that UID.
    pub fn new(uid: Option<String>, queue: &Queue<K>, key: &K) -> Self {
        Self {
            uid,
            attempts: ConnectAttempts::new(queue.clone(), key.clone()),
            queue: queue.clone(),
            key: key.clone(),
            attached: None,
            debounce: StatusDebounce::default(),
        }
    }

    /// Whether the connection serves the object of that UID, and not an earlier one of the same name.
    pub fn is_for(&self, uid: Option<&String>) -> bool {
        self.uid.as_ref() == uid
    }

    /// UID of the binding or bundle.
    pub fn uid(&self) -> Option<&str> {
        self.uid.as_deref()
    }

    /// The session with the provider, once the contract was reached.
    pub fn session(&self) -> Option<&Arc<Session>> {
        self.attached.as_ref().map(|attached| &attached.session)
    }

    /// Attaches a session in place of the one before. Returns false if it is attached already.
    pub fn attach(&mut self, session: &Arc<Session>) -> bool {
        if self.session().is_some_and(|current| current.id() == session.id()) {
            return false;
        }
        self.attached = Some(AttachedSession {
            _links: [
                self.link(session.exports().changes()),
                self.link(session.credential().changes()),
                self.link(session.heartbeat()),
                self.link(session.verification()),
                self.link(session.standing()),
                self.link(session.faults()),
            ],
            _subscription: {
                let enqueue = self.enqueue();
                session
                    .cluster_binding()
                    .subscribe(move |change| enqueue(change.priority))
            },
            session: Arc::clone(session),
        });
        true
    }

    /// Writes a status by `write`, which returns whether it wrote anything. Mere progress is written later if a status was
    /// written shortly before. Returns false if the write failed.
    pub async fn report(&mut self, is_progress: bool, write: impl Future<Output = Result<bool, kube::Error>>) -> bool {
        if let Some(pause) = self.debounce.pause().filter(|_| is_progress) {
            self.queue.add_after(self.key.clone(), pause);
            return true;
        }
        match write.await {
            Ok(true) => self.debounce.begin(),
            Ok(false) => {}
            Err(error) => {
                tracing::debug!(uid = self.uid, error = %errors::explain(&error), "status not written");
                return false;
            }
        }
        true
    }

    /// Returns a function that queues the key.
    pub fn enqueue(&self) -> impl Fn(Priority) + Send + Sync + use<K> {
        let (queue, key) = (self.queue.clone(), self.key.clone());
        move |priority| queue.add(key.clone(), priority)
    }

    /// Queues the key at every change, until the link is dropped.
    pub fn link<T: Send + Sync + 'static>(&self, changes: watch::Receiver<T>) -> Link {
        Link::new(changes, self.queue.clone(), self.key.clone())
    }

    /// Queues the key at every urgent change, and at other changes at most once in [`PROGRESS_PAUSE`].
    pub fn link_throttled<T: Send + Sync + 'static>(
        &self,
        changes: watch::Receiver<T>,
        urgent: impl Fn(&T) -> bool + Send + Sync + 'static,
    ) -> Link {
        Link::throttled(changes, self.queue.clone(), self.key.clone(), PROGRESS_PAUSE, urgent)
    }

    /// Queues the key at every change of the milestones, and at other changes at most once in [`PROGRESS_PAUSE`].
    pub fn link_milestones<T: Send + Sync + 'static, M: PartialEq + Default + Send + 'static>(
        &self,
        changes: watch::Receiver<T>,
        milestones: impl Fn(&T) -> M + Send + Sync + 'static,
    ) -> Link {
        let before = parking_lot::Mutex::new(M::default());
        self.link_throttled(changes, move |value| {
            let now = milestones(value);
            let mut before = before.lock();
            let is_reached = *before != now;
            *before = now;
            is_reached
        })
    }
}
