//! What a drain has seen, and the progress that follows from it.

use std::{collections::BTreeMap, fmt};

use bindery_api::{annotations::PAUSED, v1alpha2::GroupResource};
use bindery_runtime::{cache::ObjectKey, errors, watch::Event};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;

use super::{
    DrainMode, DrainProgress,
    plan::{self, DrainOp},
};

/// An object of any kind, of which a drain reads the metadata alone.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct DrainedObject {
    pub(super) metadata: ObjectMeta,
}

/// The objects of one resource, in one namespace or, with `None`, in all.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Collection {
    pub(super) resource: GroupResource,
    pub(super) namespace: Option<String>,
}

/// What is known of the objects of all collections of a drain.
#[derive(Debug)]
pub(super) struct DrainState {
    mode: DrainMode,
    collections: BTreeMap<Collection, CollectionState>,
}

type Objects = BTreeMap<ObjectKey, Option<ObjectMeta>>;

#[derive(Debug, Default)]
struct CollectionState {
    /// The objects that are there, `None` for one that cannot be read. The whole is `None` until the collection is listed.
    objects: Option<Objects>,
    /// The objects of a list that is not complete yet.
    listing: Objects,
    /// Why the collection cannot be found or watched.
    failure: Option<String>,
    /// Why the last write to an object failed.
    write_failures: BTreeMap<ObjectKey, String>,
}

// === impl DrainState ===

impl DrainState {
    pub(super) fn new(mode: DrainMode, collections: impl IntoIterator<Item = Collection>) -> Self {
        let collections = collections
            .into_iter()
            .map(|collection| (collection, CollectionState::default()));
        Self {
            mode,
            collections: collections.collect(),
        }
    }

    /// Takes an event of the watch of a collection. Returns the objects to look at.
    pub(super) fn watched(&mut self, collection: &Collection, event: Event<DrainedObject>) -> Vec<ObjectKey> {
        let state = self.collections.entry(collection.clone()).or_default();
        match event {
            Event::Rewound | Event::Ended => {}
            Event::Reset => state.listing.clear(),
            Event::Listed(object) => state.listing.extend([entry(object)]),
            Event::Unreadable(named) => {
                let key = ObjectKey::new(named.namespace, named.name);
                state.listing.insert(key, None);
            }
            Event::Complete(_) => {
                let listed = std::mem::take(&mut state.listing);
                state.write_failures.retain(|key, _| listed.contains_key(key));
                let keys = listed.keys().cloned().collect();
                state.objects = Some(listed);
                return keys;
            }
            Event::Applied(object) => {
                let (key, meta) = entry(object);
                state.objects.get_or_insert_default().insert(key.clone(), meta);
                return vec![key];
            }
            Event::Deleted(object) => {
                let (key, _) = entry(object);
                state.objects.get_or_insert_default().remove(&key);
                state.write_failures.remove(&key);
            }
            Event::Following => state.failure = None,
            Event::Failed(error) => state.failure = Some(errors::explain(&error)),
        }
        Vec::new()
    }

    /// Notes whether the version of a resource was found that the consumer serves.
    pub(super) fn searched(&mut self, collection: &Collection, failure: Option<String>) {
        self.collections.entry(collection.clone()).or_default().failure = failure;
    }

    /// Notes that the consumer does not serve a resource, or has no such namespace, so that there are no objects of it.
    pub(super) fn is_nowhere(&mut self, collection: &Collection) {
        self.collections.entry(collection.clone()).or_default().objects = Some(Objects::new());
    }

    /// Plans the next write to an object.
    pub(super) fn plan(&self, collection: &Collection, key: &ObjectKey) -> Option<DrainOp> {
        let objects = self.collections.get(collection)?.objects.as_ref()?;
        plan::plan(objects.get(key)?.as_ref()?, self.mode)
    }

    /// Notes the outcome of the last attempt at an object, also that there was nothing to write.
    pub(super) fn attempted(&mut self, collection: &Collection, key: &ObjectKey, failure: Option<String>) {
        let state = self.collections.entry(collection.clone()).or_default();
        match failure {
            Some(failure) => drop(state.write_failures.insert(key.clone(), failure)),
            None => drop(state.write_failures.remove(key)),
        }
    }

    pub(super) fn progress(&self) -> DrainProgress {
        let counts = self.collections.values().map(|state| state.remaining(self.mode));
        let mut states = self.collections.iter();
        let failure = states.find_map(|(collection, state)| Some(self.name(collection, &state.first_failure()?)));
        let held = || {
            let mut states = self.collections.iter();
            states.find_map(|(collection, state)| Some(self.name(collection, &state.first_held(self.mode)?)))
        };
        DrainProgress {
            remaining: counts.sum(),
            problem: failure.or_else(held),
        }
    }

    /// Puts the collection in front of a problem where a drain has more than one.
    fn name(&self, collection: &Collection, problem: &str) -> String {
        match self.mode {
            DrainMode::Deleted | DrainMode::All | DrainMode::LetGo => problem.to_owned(),
            DrainMode::Copies => format!("{collection}: {problem}"),
        }
    }
}

// === impl Collection ===

/// The collection as messages name it, such as `secrets` or `secrets of namespace west`.
impl fmt::Display for Collection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} of namespace {namespace}", self.resource),
            None => write!(f, "{}", self.resource),
        }
    }
}

// === impl CollectionState ===

impl CollectionState {
    /// The number of objects that the drain is not done with; `None` until the collection is listed.
    fn remaining(&self, mode: DrainMode) -> Option<usize> {
        let objects = self.objects.as_ref()?.values();
        let left = objects.filter(|meta| match meta {
            Some(meta) if mode == DrainMode::LetGo => plan::is_held(meta),
            _ => true,
        });
        Some(left.count())
    }

    fn first_failure(&self) -> Option<String> {
        let write = self.write_failures.first_key_value();
        let failure = self.failure.clone();
        failure.or_else(|| write.map(|(key, problem)| format!("{key}: {problem}")))
    }

    /// Says of the first object that is not written to why that is.
    fn first_held(&self, mode: DrainMode) -> Option<String> {
        let goes = match mode {
            DrainMode::Deleted | DrainMode::All | DrainMode::Copies => "goes",
            DrainMode::LetGo => "is let go",
        };
        self.objects.iter().flatten().find_map(|(key, meta)| match meta {
            Some(meta) => plan::is_held_by_pause(meta, mode)
                .then(|| format!("{key} is paused: it {goes} when its annotation {PAUSED} is removed")),
            None if mode == DrainMode::Deleted => None,
            None => Some(format!(
                "{key} cannot be read, so that nobody knows what it is; it is left: delete it by hand"
            )),
        })
    }
}

/// The entry of an object. One without a UID counts as unreadable: nothing that is written to it could name it.
fn entry(object: DrainedObject) -> (ObjectKey, Option<ObjectMeta>) {
    let mut meta = object.metadata;
    let key = ObjectKey::new(
        meta.namespace.as_deref().unwrap_or_default(),
        meta.name.as_deref().unwrap_or_default(),
    );
    meta.managed_fields = None;
    (key, Some(meta).filter(|meta| meta.uid.is_some()))
}
