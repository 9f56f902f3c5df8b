//! Which objects went back in time with their cluster. So a violation says whether it concerns such an object, or only comes after a
//! restore of something else.

use std::collections::{BTreeMap, BTreeSet};

use bindery_api::names;
use bindery_simulator_apiserver::ObjectKey;
use serde_json::Value;

use super::{Account, Clusters, Written, clones::CloneWrites, marks};
use crate::{faults::ProcessName, topology::Cluster, users::Circumstance};

/// An object of a cluster, by its UID.
type ObjectId = (Cluster, String);

/// After a restore a konnector lists anew within this time, in milliseconds.
const LIST_MILLIS: u64 = 5_000;

/// What restores did to single objects.
#[derive(Debug, Default)]
pub(super) struct Rewinds {
    /// The resource version of each object that was written. That of an object which a cluster lost stays, for a restore that brings an
    /// older state of it back.
    versions: BTreeMap<ObjectId, String>,
    /// Objects that began to end, or ended.
    ended: BTreeSet<ObjectId>,
    rewound: BTreeSet<ObjectId>,
    /// Objects that had ended, and that a restore brought back, with the time of the last write before it.
    revived: BTreeMap<ObjectId, u64>,
    /// What konnectors of second clusters wrote.
    by_clones: CloneWrites,
    /// Number of writes that were seen.
    count: u64,
    /// The process that holds the Lease of a cluster's konnectors, how often it had been started, and since which write.
    leaders: BTreeMap<Cluster, (ProcessName, u32, u64)>,
    /// The time of the last write, or a later one that was noted.
    now: u64,
    /// After which write a cluster was restored or lost objects, and when.
    restored: BTreeMap<Cluster, (u64, u64)>,
}

impl Rewinds {
    /// Notes a write.
    pub(super) fn note(&mut self, written: &Written<'_>) {
        let (on, change) = (written.on, written.change);
        let (before, after) = (change.before.as_deref(), change.after.as_deref());
        let Some(object) = after.or(before) else { return };
        self.count += 1;
        self.now = written.at;
        if change.key.resource == "leases" {
            self.lease_written(written);
        }
        if matches!(change.key.resource.as_str(), "leases" | "events") {
            return;
        }
        let id = (on, marks::uid(object).to_owned());
        if marks::has_ended(before, after) {
            self.ended.insert(id.clone());
        }
        // The newest word about an object is that of its author: a user writes sources, and a konnector writes copies.
        let is_author = match (on, Account::of(&change.by)) {
            (Cluster::Provider(_), Account::Contract(_)) => marks::copy_on_provider(object).is_some(),
            (_, Account::User(_)) => true,
            _ => false,
        };
        if is_author {
            self.rewound.remove(&id);
        }
        match after {
            Some(after) => drop(self.versions.insert(id, version(after))),
            None => drop(self.versions.remove(&id)),
        }
        self.by_clones.note(written);
    }

    fn lease_written(&mut self, written: &Written<'_>) {
        let holder = written
            .change
            .after
            .as_ref()
            .map(|lease| lease["spec"]["holderIdentity"].clone());
        let is_held = holder.is_some_and(|holder| holder.as_str().is_some_and(|holder| !holder.is_empty()));
        let Some(process) = written
            .process
            .filter(|_| written.change.key.name == names::KONNECTOR_LEASE)
        else {
            return;
        };
        let known = self.leaders.get(&written.on);
        let is_known =
            known.is_some_and(|(known, incarnation, _)| *known == process && *incarnation == written.incarnation);
        if !is_held {
            self.leaders.remove(&written.on);
        } else if !is_known {
            let leader = (process, written.incarnation, self.count);
            self.leaders.insert(written.on, leader);
        }
    }

    /// Whether the konnector that leads on a consumer cannot know that the cluster went back in time: it began to lead after that, or
    /// has not yet listed anew.
    pub(super) fn is_unseen(&self, on: Cluster) -> bool {
        let since = self.leaders.get(&on).map(|(_, _, since)| *since);
        self.restored.get(&on).is_some_and(|(count, at)| {
            since.is_none_or(|since| since > *count) || self.now.saturating_sub(*at) < LIST_MILLIS
        })
    }

    /// Notes the time, in milliseconds.
    pub(super) fn pass(&mut self, now: u64) {
        self.now = self.now.max(now);
    }

    /// The time of the last write, or a later one that was noted, in milliseconds.
    pub(super) fn now(&self) -> u64 {
        self.now
    }

    /// Notes that a cluster went back in time: its objects are now those of `clusters`.
    pub(super) fn rewound(&mut self, clusters: &impl Clusters, on: Cluster) {
        self.restored.insert(on, (self.count, self.now));
        let mut now = BTreeMap::new();
        for (_, object) in clusters.objects(on) {
            now.insert((on, marks::uid(&object).to_owned()), object);
        }
        let before: Vec<_> = self.versions.iter().filter(|((of, _), _)| *of == on).collect();
        for (id, known) in before {
            if now.get(id).is_some_and(|object| version(object) != *known) {
                self.rewound.insert(id.clone());
            }
        }
        for (id, object) in &now {
            let was_ended = self.ended.contains(id) && !marks::is_deleting(object);
            if was_ended {
                self.ended.remove(id);
                self.revived.insert(id.clone(), self.now);
            }
        }
        let versions = now.into_iter().map(|(id, object)| (id, version(&object)));
        self.versions.extend(versions);
    }

    /// Whether a restore brought the object of this UID back after a request was sent at a time.
    pub(super) fn is_revived_since(&self, on: Cluster, uid: &str, sent: u64) -> bool {
        let revived = self.revived.get(&(on, uid.to_owned()));
        revived.is_some_and(|revived| sent <= *revived)
    }

    /// What happened to the source of this UID.
    pub(super) fn of_source(&self, on: Cluster, uid: &str) -> Vec<Circumstance> {
        let id = (on, uid.to_owned());
        let mut found = self.of(&id, [Circumstance::SourceRewound, Circumstance::SourceRevived]);
        if self.by_clones.has_copy_of(uid) {
            found.push(Circumstance::CopyOfClone);
        }
        if self.is_unseen(on) {
            found.push(Circumstance::RewindUnseen);
        }
        found
    }

    /// What happened to the copy of this UID and key.
    pub(super) fn of_copy(&self, on: Cluster, key: &ObjectKey, uid: &str) -> Vec<Circumstance> {
        let id = (on, uid.to_owned());
        let mut found = self.of(&id, [Circumstance::CopyRewound, Circumstance::CopyRevived]);
        if self.is_touched(on, key) {
            found.push(Circumstance::CopyOfClone);
        }
        found
    }

    /// Whether the konnector of a second cluster wrote an object of a provider, or the namespace of it.
    pub(super) fn is_touched(&self, on: Cluster, key: &ObjectKey) -> bool {
        self.by_clones.has(on, key)
    }

    /// Whether the konnector of a second cluster made the copy of this UID anew, after another one had ended the former copy.
    pub(super) fn is_made_again(&self, on: Cluster, uid: &str) -> bool {
        self.by_clones.has_made_again(on, uid)
    }

    fn of(&self, id: &ObjectId, [rewound, revived]: [Circumstance; 2]) -> Vec<Circumstance> {
        let is_rewound = self.rewound.contains(id).then_some(rewound);
        let is_revived = self.revived.contains_key(id).then_some(revived);
        is_rewound.into_iter().chain(is_revived).collect()
    }
}

fn version(object: &Value) -> String {
    let version = &object["metadata"]["resourceVersion"];
    version.as_str().unwrap_or_default().to_owned()
}
