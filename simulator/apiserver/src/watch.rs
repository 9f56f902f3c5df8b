//! Watches: which events they have still to send.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    WatchId,
    endpoint::Endpoint,
    meta, present,
    selector::Selector,
    store::{PastWrite, Stored},
};

/// What a watch is about.
#[derive(Debug)]
pub(crate) struct Scope {
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) namespace: Option<String>,
    pub(crate) selector: Selector,
    pub(crate) metadata_only: bool,
    pub(crate) bookmarks: bool,
    pub(crate) deadline: Option<Timestamp>,
    /// Writes up to this revision are not shown, also if the store has not got there yet.
    pub(crate) from: u64,
}

#[derive(Debug)]
struct Watch {
    scope: Scope,
    events: Vec<Bytes>,
    ended: bool,
}

/// All watches of a cluster.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    watches: BTreeMap<WatchId, Watch>,
    last: u64,
}

/// Type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EventType {
    Added,
    Modified,
    Deleted,
}

impl EventType {
    fn name(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

impl Watches {
    pub(crate) fn open(&mut self, scope: Scope) -> WatchId {
        self.last += 1;
        let id = WatchId(self.last);
        let watch = Watch {
            scope,
            events: Vec::new(),
            ended: false,
        };
        self.watches.insert(id, watch);
        id
    }

    /// Shows a watch an object that was there before the watch began.
    pub(crate) fn show(&mut self, id: WatchId, stored: &Stored) {
        if let Some(watch) = self.watches.get_mut(&id) {
            let object = present::text(stored, &watch.scope.endpoint, watch.scope.metadata_only);
            watch.events.push(line(EventType::Added, &object));
        }
    }

    /// Shows a watch a write of the past.
    pub(crate) fn show_past(&mut self, id: WatchId, write: &PastWrite) {
        if let Some(watch) = self.watches.get_mut(&id) {
            watch.tell(write, &mut Vec::new());
        }
    }

    /// Ends a watch with an error.
    pub(crate) fn fail(&mut self, id: WatchId, status: &Value) {
        if let Some(watch) = self.watches.get_mut(&id) {
            let event = json!({"type": "ERROR", "object": status});
            watch.events.push(format!("{event}\n").into());
            watch.ended = true;
        }
    }

    /// Shows a write to all watches that it is of interest for.
    pub(crate) fn tell(&mut self, write: &PastWrite) {
        let mut lines = Vec::new();
        for watch in self.watches.values_mut() {
            if !watch.ended && watch.scope.endpoint.stores(&write.key.group, &write.key.resource) {
                watch.tell(write, &mut lines);
            }
        }
    }

    pub(crate) fn take(&mut self, id: WatchId) -> Vec<Bytes> {
        let Some(watch) = self.watches.get_mut(&id) else {
            return Vec::new();
        };
        let events = std::mem::take(&mut watch.events);
        if watch.ended {
            self.watches.remove(&id);
        }
        events
    }

    pub(crate) fn pending(&self, id: WatchId) -> usize {
        self.watches.get(&id).map_or(0, |watch| watch.events.len())
    }

    pub(crate) fn is_ended(&self, id: WatchId) -> bool {
        self.watches.get(&id).is_none_or(|watch| watch.ended)
    }

    pub(crate) fn deadline(&self, id: WatchId) -> Option<Timestamp> {
        self.watches.get(&id)?.scope.deadline
    }

    pub(crate) fn end(&mut self, id: WatchId) {
        if let Some(watch) = self.watches.get_mut(&id) {
            watch.ended = true;
        }
    }

    pub(crate) fn end_all(&mut self) {
        self.watches.values_mut().for_each(|watch| watch.ended = true);
    }

    /// Ends the watches of a resource.
    pub(crate) fn end_of(&mut self, group: &str, resource: &str) {
        for watch in self.watches.values_mut() {
            watch.ended |= watch.scope.endpoint.stores(group, resource);
        }
    }

    pub(crate) fn bookmark(&mut self, id: WatchId, revision: u64) {
        self.push_bookmark(id, revision, json!({}));
    }

    /// Queues the bookmark that ends the list with which a streaming list begins.
    pub(crate) fn initial_end(&mut self, id: WatchId, revision: u64) {
        self.push_bookmark(
            id,
            revision,
            json!({"annotations": {"k8s.io/initial-events-end": "true"}}),
        );
    }

    fn push_bookmark(&mut self, id: WatchId, revision: u64, mut metadata: Value) {
        let Some(watch) = self.watches.get_mut(&id) else {
            return;
        };
        let scope = &watch.scope;
        // A bookmark never goes back behind the revision from which the client asked.
        if watch.ended || !scope.bookmarks || revision < scope.from {
            return;
        }
        metadata["resourceVersion"] = revision.to_string().into();
        metadata["creationTimestamp"] = Value::Null;
        let (kind, version) = present::type_of(&scope.endpoint, scope.metadata_only);
        let object = json!({"kind": kind, "apiVersion": version, "metadata": metadata});
        watch
            .events
            .push(format!("{}\n", json!({"type": "BOOKMARK", "object": object})).into());
    }
}

/// Lines of one write that were made already, by what they depend on.
type Lines = Vec<(*const Endpoint, bool, EventType, Bytes)>;

impl Watch {
    fn tell(&mut self, write: &PastWrite, lines: &mut Lines) {
        let scope = &self.scope;
        let elsewhere = scope
            .namespace
            .as_ref()
            .is_some_and(|namespace| *namespace != write.key.namespace);
        if write.revision <= scope.from || elsewhere {
            return;
        }
        let endpoint = &scope.endpoint;
        let fits = |stored: &&Arc<Stored>| scope.selector.matches(&stored.value, endpoint);
        let (before, after) = (write.before.as_ref().filter(fits), write.after.as_ref().filter(fits));
        let kind = match (before, after) {
            (None, None) => return,
            (None, Some(_)) => EventType::Added,
            (Some(_), Some(_)) => EventType::Modified,
            (Some(_), None) => EventType::Deleted,
        };
        let address = Arc::as_ptr(endpoint);
        let made = lines.iter().find(|(other, metadata_only, other_kind, _)| {
            *other == address && *metadata_only == scope.metadata_only && *other_kind == kind
        });
        if let Some((.., line)) = made {
            self.events.push(line.clone());
            return;
        }
        let object = match (before, after) {
            (_, Some(after)) => present::text(after, endpoint, scope.metadata_only),
            (Some(before), None) => {
                // The last state carries the revision of the write that ended it.
                let mut value = Value::clone(&before.value);
                meta::set(&mut value, "resourceVersion", write.revision.to_string().into());
                present::text(
                    &Stored::new(Arc::new(value), before.schema),
                    endpoint,
                    scope.metadata_only,
                )
            }
            (None, None) => return,
        };
        let line = line(kind, &object);
        lines.push((address, scope.metadata_only, kind, line.clone()));
        self.events.push(line);
    }
}

fn line(kind: EventType, object: &str) -> Bytes {
    ["{\"type\":\"", kind.name(), "\",\"object\":", object, "}\n"]
        .concat()
        .into()
}
