//! Objects with revisions, and what was written before.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, OnceLock},
};

use serde_json::Value;

use crate::{ObjectKey, meta};

mod snapshot;

pub use snapshot::{Revisions, Snapshot};

/// Reads of objects, for the modules that decide without the store.
pub(crate) trait Objects {
    /// One object.
    fn object(&self, group: &str, resource: &str, namespace: &str, name: &str) -> Option<&Arc<Value>>;
    /// All objects of a resource, or those in a namespace, in the order of their keys.
    fn objects_of(
        &self,
        group: &str,
        resource: &str,
        namespace: Option<&str>,
    ) -> Box<dyn Iterator<Item = &Arc<Value>> + '_>;
}

/// One stored version of an object.
#[derive(Debug)]
pub(crate) struct Stored {
    /// The object, with its resource version.
    pub(crate) value: Arc<Value>,
    /// Number of the schema by which a custom resource was pruned; 0 for built-in kinds.
    pub(crate) schema: u64,
    text: OnceLock<Box<str>>,
}

impl Stored {
    pub(crate) fn new(value: Arc<Value>, schema: u64) -> Self {
        Self {
            value,
            schema,
            text: OnceLock::new(),
        }
    }

    /// The object as JSON without `apiVersion`, `kind` and the opening brace, so that all versions share the text.
    pub(crate) fn text(&self) -> &str {
        self.text.get_or_init(|| fields_text(&self.value).into())
    }
}

/// The fields of an object besides `apiVersion` and `kind` as JSON, with the closing brace.
pub(crate) fn fields_text(value: &Value) -> String {
    let mut text = String::new();
    for (field, value) in value.as_object().into_iter().flatten() {
        if field == "apiVersion" || field == "kind" {
            continue;
        }
        text.push(if text.is_empty() { '"' } else { ',' });
        if text.len() > 1 {
            text.push('"');
        }
        text.push_str(field);
        text.push_str("\":");
        text.push_str(&value.to_string());
    }
    text.push('}');
    text
}

/// One write of the past.
#[derive(Clone, Debug)]
pub(crate) struct PastWrite {
    pub(crate) revision: u64,
    pub(crate) key: ObjectKey,
    pub(crate) before: Option<Arc<Stored>>,
    pub(crate) after: Option<Arc<Stored>>,
}

/// The objects of a cluster and the writes since the last compaction.
#[derive(Debug, Default)]
pub(crate) struct Store {
    objects: BTreeMap<ObjectKey, Arc<Stored>>,
    revision: u64,
    past: VecDeque<PastWrite>,
    compacted: u64,
}

impl Store {
    pub(crate) fn new(revision: u64) -> Self {
        Self {
            revision,
            compacted: revision,
            ..Self::default()
        }
    }

    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// The revision before which nothing is known of the past.
    pub(crate) fn compacted(&self) -> u64 {
        self.compacted
    }

    pub(crate) fn compact(&mut self) {
        self.past.clear();
        self.compacted = self.revision;
    }

    pub(crate) fn get(&self, key: &ObjectKey) -> Option<&Arc<Stored>> {
        self.objects.get(key)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&ObjectKey, &Arc<Stored>)> {
        self.objects.iter()
    }

    /// The objects of a resource, or those in one namespace, in the order of their keys.
    pub(crate) fn of<'s>(
        &'s self,
        group: &str,
        resource: &str,
        namespace: Option<&str>,
    ) -> impl Iterator<Item = (&'s ObjectKey, &'s Arc<Stored>)> + use<'s> {
        let first = ObjectKey::new(group, resource, namespace.unwrap_or_default(), "");
        let (group, resource) = (first.group.clone(), first.resource.clone());
        let namespace = namespace.map(ToOwned::to_owned);
        self.objects.range(first..).take_while(move |(key, _)| {
            key.is_of(&group, &resource) && namespace.as_ref().is_none_or(|namespace| key.namespace == *namespace)
        })
    }

    /// Writes one object, or removes it. Returns the revision of the write. The value gets its resource version here.
    pub(crate) fn write(&mut self, key: &ObjectKey, after: Option<(Value, u64)>) -> &PastWrite {
        self.revision += 1;
        let after = after.map(|(mut value, schema)| {
            meta::set(&mut value, "resourceVersion", Value::String(self.revision.to_string()));
            Arc::new(Stored::new(Arc::new(value), schema))
        });
        let before = match &after {
            Some(after) => self.objects.insert(key.clone(), Arc::clone(after)),
            None => self.objects.remove(key),
        };
        self.past.push_back(PastWrite {
            revision: self.revision,
            key: key.clone(),
            before,
            after,
        });
        &self.past[self.past.len() - 1]
    }

    /// The writes after a revision, oldest first.
    pub(crate) fn past_after(&self, revision: u64) -> impl Iterator<Item = &PastWrite> {
        let from = self.past.partition_point(|write| write.revision <= revision);
        self.past.range(from..)
    }

    /// The objects of a resource as they were at a revision that is not compacted.
    pub(crate) fn of_at(
        &self,
        group: &str,
        resource: &str,
        namespace: Option<&str>,
        revision: u64,
    ) -> BTreeMap<ObjectKey, Arc<Stored>> {
        let of = self.of(group, resource, namespace);
        let mut objects: BTreeMap<_, _> = of.map(|(key, stored)| (key.clone(), Arc::clone(stored))).collect();
        let past: Vec<_> = self.past_after(revision).collect();
        for write in past.into_iter().rev() {
            let is_here = namespace.is_none_or(|namespace| write.key.namespace == namespace);
            if !is_here || !write.key.is_of(group, resource) {
                continue;
            }
            match &write.before {
                Some(before) => objects.insert(write.key.clone(), Arc::clone(before)),
                None => objects.remove(&write.key),
            };
        }
        objects
    }
}

impl Objects for Store {
    fn object(&self, group: &str, resource: &str, namespace: &str, name: &str) -> Option<&Arc<Value>> {
        let key = ObjectKey::new(group, resource, namespace, name);
        self.objects.get(&key).map(|stored| &stored.value)
    }

    fn objects_of(
        &self,
        group: &str,
        resource: &str,
        namespace: Option<&str>,
    ) -> Box<dyn Iterator<Item = &Arc<Value>> + '_> {
        Box::new(self.of(group, resource, namespace).map(|(_, stored)| &stored.value))
    }
}
