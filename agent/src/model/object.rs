//! An object as the engine reads it: the few fields of its metadata that decide, and the rest as the text it came in.
//!
//! Nothing is built that is not needed: managed fields are skipped while reading, and spec and status stay JSON text.
//! API servers write the fields of custom resources in sorted order, so equal text means equal content; different text
//! is compared by value before anything is written.

use std::{collections::HashSet, fmt, marker::PhantomData, sync::Arc};

use bindery_api::annotations;
use bindery_runtime::{cache::ObjectKey, guard::Held, watch::Decode};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{IgnoredAny, MapAccess, Visitor},
};
use serde_json::value::RawValue;

use crate::model::labels::Marks;

/// One object, as a watch or a read brought it.
#[derive(Clone)]
pub(crate) struct Object {
    pub meta: Meta,
    /// All top-level fields but `apiVersion`, `kind`, `metadata` and `status`, sorted by name.
    pub body: Vec<(Box<str>, Box<RawValue>)>,
    pub status: Option<Box<RawValue>>,
    /// Counts its text as held, if the provider sent it.
    pub held: Option<Held>,
}

/// The metadata that the engine looks at.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Meta {
    pub name: Arc<str>,
    pub namespace: Arc<str>,
    pub uid: Arc<str>,
    pub resource_version: Version,
    /// How often its content was changed; 0 for an object without a generation.
    pub generation: i64,
    #[serde(deserialize_with = "present")]
    pub deletion_timestamp: bool,
    pub finalizers: Vec<Box<str>>,
    pub labels: Marks,
    pub annotations: Marks,
}

/// A resource version, ordered as the API server wrote them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version(pub u64);

/// Decodes [`Object`]s.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lean;

impl Decode for Lean {
    type Object = Object;

    fn decode(&self, json: &str) -> serde_json::Result<Object> {
        serde_json::from_str(json)
    }

    fn version(object: &Object) -> Option<u64> {
        // Zero stands for an object without a resource version.
        Some(object.meta.resource_version.0).filter(|version| *version > 0)
    }

    fn name(object: &Object) -> (&str, &str) {
        (&object.meta.namespace, &object.meta.name)
    }

    fn hold(object: &mut Object, held: Held) {
        object.held = Some(held);
    }
}

/// Interned names that many objects have in common: all share one `Arc<str>`.
#[derive(Debug, Default)]
pub(crate) struct Names(HashSet<Arc<str>>);

/// At most this many names are interned; once full, unused ones are removed, and further ones are allocated for each
/// object.
const NAMES_MAX: usize = 4096;

fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(Option::<IgnoredAny>::deserialize(deserializer)?.is_some())
}

// === impl Names ===

impl Names {
    /// Returns the shared text of a name.
    pub(crate) fn shared(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.0.get(name) {
            return Arc::clone(known);
        }
        if self.0.len() >= NAMES_MAX {
            self.0.retain(|name| Arc::strong_count(name) > 1);
        }
        let name: Arc<str> = name.into();
        if self.0.len() < NAMES_MAX {
            self.0.insert(Arc::clone(&name));
        }
        name
    }
}

// === impl Meta ===

impl Meta {
    /// Whether the user paused the synchronization of the object. See [`annotations::PAUSED`].
    pub(crate) fn is_paused(&self) -> bool {
        self.annotations.get(annotations::PAUSED) == Some(annotations::TRUE)
    }
}

// === impl Version ===

impl<'de> Deserialize<'de> for Version {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map(Self).map_err(serde::de::Error::custom)
    }
}

impl Serialize for Version {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

// === impl Object ===

impl Object {
    /// Namespace and name of the object, by which caches and queues know it.
    pub(crate) fn key(&self) -> ObjectKey {
        ObjectKey::new(Arc::clone(&self.meta.namespace), Arc::clone(&self.meta.name))
    }

    /// The length of its content in bytes: that of all fields beside its metadata, as JSON.
    pub(crate) fn content_length(&self) -> u64 {
        let body = self.body.iter().map(|(name, text)| name.len() + text.get().len());
        let status = self.status.as_ref().map_or(0, |status| status.get().len());
        (body.sum::<usize>() + status) as u64
    }
}

/// Shows which object it is and none of its content, which may be a Secret's.
impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Object")
            .field("namespace", &self.meta.namespace)
            .field("name", &self.meta.name)
            .field("uid", &self.meta.uid)
            .field("version", &self.meta.resource_version)
            .finish_non_exhaustive()
    }
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

struct ObjectVisitor(PhantomData<fn() -> Object>);

impl<'de> Visitor<'de> for ObjectVisitor {
    type Value = Object;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a Kubernetes object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
        let mut meta = None;
        // Most objects have a spec and no other field here.
        let mut body = Vec::with_capacity(1);
        let mut status = None;
        while let Some(key) = map.next_key::<std::borrow::Cow<'de, str>>()? {
            match key.as_ref() {
                "apiVersion" | "kind" => drop(map.next_value::<IgnoredAny>()?),
                "metadata" => meta = Some(map.next_value::<Meta>()?),
                "status" => status = Some(map.next_value::<Box<RawValue>>()?),
                _ => body.push((key.into_owned().into_boxed_str(), map.next_value::<Box<RawValue>>()?)),
            }
        }
        body.sort_by(|left, right| left.0.cmp(&right.0));
        let meta = meta.ok_or_else(|| serde::de::Error::missing_field("metadata"))?;
        Ok(Object {
            meta,
            body,
            status,
            held: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_decides_and_keeps_the_rest_as_text() {
        let json = r#"{"apiVersion":"wildwest.dev/v1alpha1","kind":"Cowboy","status":{"result":"done"},
            "spec":{"b":1,"a":[1.0,"x"]},"data":{"k":"v"},
            "metadata":{"name":"billy","namespace":"wild-west","uid":"u1","resourceVersion":"42","generation":3,
              "managedFields":[{"manager":"x","fieldsV1":{"f:spec":{}}}],"labels":{"a":"b"},
              "finalizers":["f1"],"deletionTimestamp":"2026-01-01T00:00:00Z"}}"#;
        let object = Lean.decode(json).unwrap();
        assert_eq!(&*object.meta.name, "billy");
        assert_eq!((object.meta.resource_version, object.meta.generation), (Version(42), 3));
        assert!(object.meta.deletion_timestamp);
        assert_eq!(object.status.as_ref().unwrap().get(), r#"{"result":"done"}"#);
        let body: Vec<_> = object.body.iter().map(|(key, text)| (&**key, text.get())).collect();
        assert_eq!(body, [("data", r#"{"k":"v"}"#), ("spec", r#"{"b":1,"a":[1.0,"x"]}"#)]);
    }

    #[test]
    fn what_an_object_says_is_not_shown_where_it_is_debugged() {
        let json = r#"{"metadata":{"name":"colt","uid":"u1","resourceVersion":"4","labels":{"l":"hidden"},
            "annotations":{"kubectl.kubernetes.io/last-applied-configuration":"hidden"}},
            "data":{"password":"hidden"},"status":{"token":"hidden"}}"#;
        let shown = format!("{:?}", Lean.decode(json).unwrap());
        assert!(shown.contains("colt") && shown.contains("u1"), "{shown}");
        assert!(!shown.contains("hidden"), "{shown}");
    }

    #[test]
    fn a_live_object_is_not_deleting_and_bad_ones_are_errors() {
        let object = Lean
            .decode(r#"{"metadata":{"name":"a","resourceVersion":"1"}}"#)
            .unwrap();
        assert!(!object.meta.deletion_timestamp);
        for bad in [
            "{}",
            "[]",
            r#"{"metadata":{"resourceVersion":"x"}}"#,
            r#"{"metadata":3}"#,
        ] {
            assert!(Lean.decode(bad).is_err(), "{bad}");
        }
    }
}
