//! One cluster: its state, and the ways in and out.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use http::{Request, Response};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::{
    Actor, Change, Chore, ClusterSettings, ObjectKey, Revisions, Snapshot,
    auth::TokenIssuer,
    control::Control,
    definition,
    endpoint::{Endpoint, Endpoints},
    ids::IdSource,
    store::{Store, Stored},
    watch::Watches,
};

mod boot;

/// An API server with its store and the controllers of its control plane.
#[derive(Debug)]
pub struct ApiServer {
    pub(crate) settings: ClusterSettings,
    pub(crate) store: Store,
    pub(crate) endpoints: Endpoints,
    pub(crate) watches: Watches,
    pub(crate) control: Control,
    pub(crate) tokens: TokenIssuer,
    pub(crate) ids: IdSource,
    pub(crate) policy_delay: SignedDuration,
    /// Number of the latest schema of a CRD.
    stamp: u64,
    changes: Vec<Change>,
}

/// What the API server answers to a request.
#[derive(Debug)]
pub enum Answer {
    /// A whole answer.
    Whole(Response<Bytes>),
    /// The head of an answer whose body is the events of a watch.
    Watch {
        /// Status and headers.
        head: Response<()>,
        /// The watch, for [`ApiServer::watch_events`].
        id: WatchId,
    },
}

/// A watch of one [`ApiServer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatchId(pub u64);

/// Who writes, for the journal.
#[derive(Clone, Debug)]
pub(crate) struct Author {
    pub(crate) actor: Actor,
    pub(crate) request: Option<u64>,
}

impl Author {
    pub(crate) fn controller(name: &'static str) -> Self {
        Self {
            actor: Actor::Controller(name),
            request: None,
        }
    }
}

impl ApiServer {
    /// Starts a cluster with the namespaces, kinds and ClusterRoles that Kubernetes brings. Its controllers have their work
    /// still to do, as [`Self::background`] lists it.
    pub fn new(settings: ClusterSettings) -> Self {
        let mut server = Self {
            store: Store::new(settings.start_revision),
            endpoints: Endpoints::built_in(),
            watches: Watches::default(),
            control: Control::default(),
            tokens: TokenIssuer::new(&settings.name),
            ids: IdSource::new(&settings.name),
            policy_delay: SignedDuration::ZERO,
            stamp: 0,
            changes: Vec::new(),
            settings,
        };
        server.boot();
        server
    }

    /// Answers a request. The header `authorization` says who asks.
    pub fn handle(&mut self, now: Timestamp, request: &Request<Bytes>) -> Answer {
        crate::handle::answer(self, now, request)
    }

    /// Takes the events of a watch that were not taken yet, each as one line of JSON.
    pub fn watch_events(&mut self, id: WatchId) -> Vec<Bytes> {
        self.watches.take(id)
    }

    /// The number of events that [`Self::watch_events`] would take.
    pub fn pending_events(&self, id: WatchId) -> usize {
        self.watches.pending(id)
    }

    /// If the watch has ended. Its pending events can still be taken.
    pub fn watch_ended(&self, id: WatchId) -> bool {
        self.watches.is_ended(id)
    }

    /// When the client wants the watch to end. The API server has no clock: the caller calls [`Self::end_watch`] then.
    pub fn watch_deadline(&self, id: WatchId) -> Option<Timestamp> {
        self.watches.deadline(id)
    }

    /// Ends a watch early. The client sees the end of the stream.
    pub fn end_watch(&mut self, id: WatchId) {
        self.watches.end(id);
    }

    /// Queues a bookmark at the current revision, if the watch asked for bookmarks.
    pub fn bookmark(&mut self, id: WatchId) {
        self.watches.bookmark(id, self.store.revision());
    }

    /// What the controllers of the control plane would do next, in a deterministic order.
    pub fn background(&self) -> Vec<Chore> {
        self.control.chores().cloned().collect()
    }

    /// Does one step of a controller. Returns whether it wrote something. A chore that has become needless writes nothing, and neither
    /// does one whose request is refused: it stays in [`Self::background`], so that the caller tries it again, after a backoff.
    pub fn perform(&mut self, now: Timestamp, chore: &Chore) -> bool {
        let before = self.store.revision();
        crate::control::perform(self, now, chore);
        self.store.revision() != before
    }

    /// Performs chores until none is left that writes something, or until this many did. Returns how many did. Chores whose requests are
    /// refused are left.
    pub fn settle(&mut self, now: Timestamp, most: usize) -> usize {
        for count in 0..most {
            let Some(first) = self.control.chores().next().cloned() else {
                return count;
            };
            let has_written =
                self.perform(now, &first) || self.background().iter().any(|chore| self.perform(now, chore));
            if !has_written {
                return count;
            }
        }
        most
    }

    /// Takes a backup of the store.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            objects: Arc::new(self.store.objects()),
            revision: self.store.revision(),
            settings: self.settings.clone(),
            endpoints: self.endpoints.clone(),
            stamp: self.stamp,
        }
    }

    /// Replaces the store by a backup, in place. All watches end. The journal gets a change of [`Actor::Controller`] `restore`
    /// for each object that differs.
    pub fn restore(&mut self, snapshot: &Snapshot, revisions: Revisions) {
        self.watches.end_all();
        let before = self.store.objects();
        self.store = Store::restored(snapshot, revisions);
        self.endpoints = snapshot.endpoints.clone();
        self.stamp = self.stamp.max(snapshot.stamp);
        self.control = Control::rebuild(&self.store, &self.endpoints);
        self.note_restored(&before);
    }

    fn note_restored(&mut self, before: &BTreeMap<ObjectKey, Arc<Stored>>) {
        let revision = self.store.revision();
        let after = self.store.objects();
        for key in before
            .keys()
            .chain(after.keys().filter(|key| !before.contains_key(key)))
        {
            let value = |objects: &BTreeMap<ObjectKey, Arc<Stored>>| objects.get(key).map(|it| Arc::clone(&it.value));
            let (before, after) = (value(before), value(&after));
            if before != after {
                self.changes.push(Change {
                    revision,
                    key: key.clone(),
                    before,
                    after,
                    by: Actor::Controller("restore"),
                    request: None,
                });
            }
        }
    }

    /// Starts a second cluster from a backup, with the same UIDs and keys.
    pub fn beside(snapshot: &Snapshot, revisions: Revisions) -> Self {
        let store = Store::restored(snapshot, revisions);
        let seed = format!("{}/beside/{}", snapshot.settings.name, snapshot.revision);
        Self {
            control: Control::rebuild(&store, &snapshot.endpoints),
            store,
            endpoints: snapshot.endpoints.clone(),
            watches: Watches::default(),
            tokens: TokenIssuer::new(&snapshot.settings.name),
            ids: IdSource::new(&seed),
            policy_delay: SignedDuration::ZERO,
            stamp: snapshot.stamp,
            changes: Vec::new(),
            settings: snapshot.settings.clone(),
        }
    }

    /// Forgets the history. Watches and pages from older revisions are answered with 410.
    pub fn compact(&mut self) {
        self.store.compact();
    }

    /// The revision of the store.
    pub fn revision(&self) -> u64 {
        self.store.revision()
    }

    /// All objects, in the order of their keys.
    pub fn objects(&self) -> impl Iterator<Item = (&ObjectKey, &Arc<Value>)> {
        self.store.iter().map(|(key, stored)| (key, &stored.value))
    }

    /// The objects of a resource, or those in one namespace, in the order of their keys.
    pub fn objects_of(
        &self,
        group: &str,
        resource: &str,
        namespace: Option<&str>,
    ) -> impl Iterator<Item = (&ObjectKey, &Arc<Value>)> {
        let of = self.store.of(group, resource, namespace);
        of.map(|(key, stored)| (key, &stored.value))
    }

    /// One object.
    pub fn get(&self, key: &ObjectKey) -> Option<&Arc<Value>> {
        self.store.get(key).map(|stored| &stored.value)
    }

    /// Takes the journal of writes since the last call.
    pub fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    /// Compiles all expressions of ValidatingAdmissionPolicies now instead of when they are first used.
    pub fn compile_policies(&self) {
        let policies = self.objects_of("admissionregistration.k8s.io", "validatingadmissionpolicies", None);
        for (_, policy) in policies {
            crate::admission::compile(policy);
        }
    }

    /// Sets how long after its creation a ValidatingAdmissionPolicy, or a binding of one, takes effect, as on an API server whose
    /// informers lag. It is 0 at first. It holds for all policies, those of a restored backup included; each counts from its own
    /// `creationTimestamp`, so that one that is deleted and created anew takes effect late again.
    pub fn set_policy_delay(&mut self, delay: SignedDuration) {
        self.policy_delay = delay;
    }

    /// Writes one object, or removes it, and tells watches and controllers.
    pub(crate) fn commit(
        &mut self,
        author: &Author,
        key: &ObjectKey,
        after: Option<(Value, u64)>,
    ) -> Option<Arc<Stored>> {
        let write = self.store.write(key, after).clone();
        let value = |stored: &Option<Arc<Stored>>| stored.as_ref().map(|stored| Arc::clone(&stored.value));
        self.changes.push(Change {
            revision: write.revision,
            key: key.clone(),
            before: value(&write.before),
            after: value(&write.after),
            by: author.actor.clone(),
            request: author.request,
        });
        self.watches.tell(&write);
        if key.is_of(definition::GROUP, definition::RESOURCE) {
            let is_other = self.redefine(&key.name, value(&write.before).as_ref(), value(&write.after).as_ref());
            if is_other {
                self.control.redefined(&self.store, &self.endpoints);
            }
        }
        self.control.observe(&self.store, &self.endpoints, &write);
        write.after
    }

    /// Brings the endpoints up to date after a write of a CRD. Watches end unless their storage goes on. Returns if other
    /// endpoints are served than before.
    fn redefine(&mut self, name: &str, before: Option<&Arc<Value>>, after: Option<&Arc<Value>>) -> bool {
        let earlier: Vec<Arc<Endpoint>> = self.endpoints.of_definition(name).cloned().collect();
        self.endpoints.remove_definition(name);
        if let Some(after) = after {
            for endpoint in definition::endpoints(after, &mut self.stamp, &earlier) {
                self.endpoints.add(Arc::new(endpoint));
            }
        }
        let goes_on = match (before, after) {
            (Some(before), Some(after)) => definition::is_same_storage(before, after),
            _ => false,
        };
        if !goes_on {
            for endpoint in &earlier {
                self.watches.end_of(endpoint.group(), &endpoint.resource);
            }
        }
        let names = |endpoint: &Arc<Endpoint>| (endpoint.info.version.clone(), endpoint.resource.clone());
        let now: Vec<_> = self.endpoints.of_definition(name).map(names).collect();
        now != earlier.iter().map(names).collect::<Vec<_>>()
    }
}
