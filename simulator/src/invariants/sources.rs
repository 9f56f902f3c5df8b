//! How sources on consumers ended: by a user, by the product, with something else, or without a write.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bindery_simulator_apiserver::ObjectKey;
use serde_json::Value;

use super::{Account, Clusters, Seen, marks};
use crate::{
    topology::{Cluster, provider_of_group},
    users::Circumstance,
};

/// The controller that deletes the objects of a CRD that is being deleted.
const DEFINITION_CONTROLLER: &str = "crd finalizer";

/// How a source ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SourceEnd {
    /// A user deleted it, or the namespace that it was in.
    ByUser,
    /// The konnector deleted it.
    ByKonnector,
    /// It went with its CRD.
    WithDefinition,
    /// A restore or a loss took it.
    Lost,
    /// It ended in another way that no user asked for.
    Otherwise,
}

/// All sources that a seed has seen.
#[derive(Debug, Default)]
pub(super) struct Sources {
    live: BTreeMap<(Cluster, String), ObjectKey>,
    ends: BTreeMap<(Cluster, String), SourceEnd>,
    /// When a restore took back that a user had ended a source.
    taken_back: BTreeMap<(Cluster, String), u64>,
    /// Namespaces that a user deleted.
    namespaces: BTreeSet<(Cluster, String)>,
}

// === impl SourceEnd ===

impl SourceEnd {
    /// The circumstance of a violation about the copy.
    pub(super) fn circumstance(self) -> Circumstance {
        match self {
            Self::ByUser | Self::Otherwise => Circumstance::SourceEndedOtherwise,
            Self::ByKonnector => Circumstance::SourceEndedByKonnector,
            Self::WithDefinition => Circumstance::SourceEndedWithDefinition,
            Self::Lost => Circumstance::SourceLost,
        }
    }
}

// === impl Sources ===

impl Sources {
    /// Notes a write on a consumer. Returns how the object ended, if this write ended it.
    pub(super) fn note<C: Clusters>(&mut self, seen: &Seen<'_, C>) -> Option<SourceEnd> {
        let (on, change) = (seen.written.on, seen.written.change);
        let (before, after) = (change.before.as_deref(), change.after.as_deref());
        if let Some(object) = after {
            self.live
                .insert((on, marks::uid(object).to_owned()), change.key.clone());
        } else if let Some(object) = before {
            self.live.remove(&(on, marks::uid(object).to_owned()));
        }
        let object = before.filter(|_| marks::has_ended(before, after))?;
        let end = self.end_of(seen, &change.key);
        if change.key.resource == "namespaces" && end == SourceEnd::ByUser {
            self.namespaces.insert((on, change.key.name.clone()));
        }
        self.ends.insert((on, marks::uid(object).to_owned()), end);
        Some(end)
    }

    fn end_of<C: Clusters>(&self, seen: &Seen<'_, C>, key: &ObjectKey) -> SourceEnd {
        let on = seen.written.on;
        match seen.account {
            Account::User(_) => SourceEnd::ByUser,
            Account::Konnector | Account::Contract(_) | Account::Server => SourceEnd::ByKonnector,
            // The CRD may be there again when this is checked.
            Account::Controller(DEFINITION_CONTROLLER) => SourceEnd::WithDefinition,
            Account::Controller(_) => {
                let definition = ObjectKey::new(
                    "apiextensions.k8s.io",
                    "customresourcedefinitions",
                    "",
                    &format!("{}.{}", key.resource, key.group),
                );
                let deleted = |object: Option<_>| object.is_none_or(|object: Arc<_>| marks::is_deleting(&object));
                let namespace = ObjectKey::new("", "namespaces", "", &key.namespace);
                let with_namespace = !key.namespace.is_empty() && deleted(seen.clusters.object(on, &namespace));
                if with_namespace && self.namespaces.contains(&(on, key.namespace.clone())) {
                    return SourceEnd::ByUser;
                }
                if provider_of_group(&key.group).is_some() && deleted(seen.clusters.object(on, &definition)) {
                    return SourceEnd::WithDefinition;
                }
                SourceEnd::Otherwise
            }
        }
    }

    /// Notes that a cluster went back in time: sources that it has not any more are lost, unless they had ended before.
    /// `now` is the time of that.
    pub(super) fn rewound(&mut self, clusters: &impl Clusters, on: Cluster, now: u64) {
        let objects = clusters.objects(on);
        if let Cluster::Clone(consumer) = on {
            self.inherit(&objects, consumer);
        }
        // A deletion that the restore took back is no evidence any more.
        for (_, object) in objects.iter().filter(|(_, object)| !marks::is_deleting(object)) {
            let source = (on, marks::uid(object).to_owned());
            if self.ends.remove(&source) == Some(SourceEnd::ByUser) {
                self.taken_back.insert(source, now);
            }
        }
        let now: BTreeMap<_, _> = objects
            .into_iter()
            .map(|(key, object)| ((on, marks::uid(&object).to_owned()), key))
            .collect();
        let gone: Vec<_> = self
            .live
            .keys()
            .filter(|(of, _)| *of == on)
            .filter(|key| !now.contains_key(*key))
            .cloned()
            .collect();
        for key in gone {
            self.live.remove(&key);
            self.ends.entry(key).or_insert(SourceEnd::Lost);
        }
        self.live.extend(now);
    }

    /// Notes what users of a consumer had deleted when the backup was taken of which its clone has these objects: on the clone it goes on
    /// ending.
    fn inherit(&mut self, objects: &[(ObjectKey, Arc<Value>)], consumer: u8) {
        let clone = Cluster::Clone(consumer);
        for (key, object) in objects.iter().filter(|(_, object)| marks::is_deleting(object)) {
            let uid = marks::uid(object);
            if self.was_ended_by_user(consumer, uid) {
                self.ends.insert((clone, uid.to_owned()), SourceEnd::ByUser);
            }
            if key.resource == "namespaces" && self.has_user_deleted_namespace(consumer, &key.name) {
                self.namespaces.insert((clone, key.name.clone()));
            }
        }
    }

    /// Whether a user ended the source on the consumer. A deletion on its clone says nothing about the source on the consumer.
    pub(super) fn was_ended_by_user(&self, consumer: u8, uid: &str) -> bool {
        self.end(consumer, uid) == Some(SourceEnd::ByUser)
    }

    /// Whether a user had ended the source on the consumer, and a restore took that back after a request was sent at a time.
    pub(super) fn was_taken_back_since(&self, consumer: u8, uid: &str, sent: u64) -> bool {
        let source = (Cluster::Consumer(consumer), uid.to_owned());
        self.taken_back.get(&source).is_some_and(|at| sent <= *at)
    }

    /// Whether a user ended the source on the clone of the consumer.
    pub(super) fn was_ended_on_clone(&self, consumer: u8, uid: &str) -> bool {
        let source = (Cluster::Clone(consumer), uid.to_owned());
        self.ends.get(&source) == Some(&SourceEnd::ByUser)
    }

    /// Whether a user deleted a namespace of this name on the consumer.
    pub(super) fn has_user_deleted_namespace(&self, consumer: u8, name: &str) -> bool {
        let namespace = (Cluster::Consumer(consumer), name.to_owned());
        self.namespaces.contains(&namespace)
    }

    /// How the source ended on the consumer; `None` if it exists there, or was never seen.
    pub(super) fn end(&self, consumer: u8, uid: &str) -> Option<SourceEnd> {
        self.ends.get(&(Cluster::Consumer(consumer), uid.to_owned())).copied()
    }

    /// The key of a source that exists on the consumer.
    pub(super) fn live(&self, consumer: u8, uid: &str) -> Option<&ObjectKey> {
        self.live.get(&(Cluster::Consumer(consumer), uid.to_owned()))
    }
}
