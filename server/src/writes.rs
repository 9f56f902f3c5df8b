//! What the server writes on the provider: each [`Write`] is one request about one object, and each is safe to repeat.

use std::fmt::{self, Debug};

use bindery_runtime::preconditions::unchanged;
use kube::{
    Resource, ResourceExt as _,
    api::{ApiResource, DynamicObject, Preconditions, PropagationPolicy},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

mod apply;
mod error;

pub use apply::apply_all;
pub use error::WriteError;

/// The field manager of all writes of the server.
pub const FIELD_MANAGER: &str = "bindery-server";

/// Any typed Kubernetes object that the server writes.
pub trait Object: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned {}

impl<K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned> Object for K {}

/// One request that changes one object, of any kind. Plans are lists of these.
#[must_use = "a write does nothing until it is applied"]
#[derive(Clone, Debug, PartialEq)]
pub struct Write {
    /// Why the write is needed, for the log.
    pub reason: &'static str,
    /// How the API server serves the object.
    pub resource: ApiResource,
    /// Namespace of the object; empty for a cluster-scoped one.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// What the API server is asked to do with the object.
    pub action: WriteAction,
}

/// What a [`Write`] does with its object.
#[derive(Clone, Debug, PartialEq)]
pub enum WriteAction {
    /// Creates the object. One that exists already counts as created if it has the same values of the labels and
    /// annotations named in `identity`; otherwise it is somebody else's.
    Create {
        /// The object to create.
        object: Box<DynamicObject>,
        /// Keys of labels and annotations that tell whose an existing object is. None: any object of the name counts.
        identity: &'static [&'static str],
    },
    /// Merges a patch into the object, without its status.
    Patch(Value),
    /// Merges a patch into the object's status.
    PatchStatus(Value),
    /// Deletes the object. One that is gone, or no longer meets the preconditions, counts as deleted.
    Delete {
        /// UID, and perhaps the resource version, that the object must have.
        preconditions: Option<Preconditions>,
        /// What happens to the object's dependents.
        propagation: PropagationPolicy,
    },
}

// === impl Write ===

impl Write {
    /// A write that creates an object; for `identity` see [`WriteAction::Create`].
    pub fn create<K: Object>(reason: &'static str, object: &K, identity: &'static [&'static str]) -> Self {
        let resource = ApiResource::erase::<K>(&());
        let mut erased = DynamicObject::new("", &resource);
        erased.metadata = object.meta().clone();
        if let Ok(Value::Object(mut fields)) = serde_json::to_value(object) {
            fields.retain(|field, _| !matches!(field.as_str(), "apiVersion" | "kind" | "metadata"));
            erased.data = Value::Object(fields);
        }
        let action = WriteAction::Create {
            object: Box::new(erased),
            identity,
        };
        Self::about(reason, object, action)
    }

    /// A write that merges a patch into an object, if that has not changed since it was seen.
    pub fn patch<K: Object>(reason: &'static str, object: &K, mut patch: Value) -> Self {
        let preconditions = [
            ("uid", &object.meta().uid),
            ("resourceVersion", &object.meta().resource_version),
        ];
        for (field, value) in preconditions {
            patch["metadata"][field] = json!(value);
        }
        Self::about(reason, object, WriteAction::Patch(patch))
    }

    /// A write that sets annotations of an object, and removes those that are null, if it has not changed since it was seen.
    pub fn annotate<K: Object>(reason: &'static str, object: &K, annotations: &Value) -> Self {
        Self::patch(reason, object, json!({ "metadata": { "annotations": annotations } }))
    }

    /// A write that sets the finalizers of an object, if that has not changed since it was seen.
    pub fn finalizers<K: Object>(reason: &'static str, object: &K, finalizers: &[String]) -> Self {
        Self::patch(reason, object, json!({ "metadata": { "finalizers": finalizers } }))
    }

    /// A write that merges into the status of an object, if that has not changed since it was seen.
    pub fn status<K: Object>(reason: &'static str, object: &K, status: &Value) -> Self {
        let mut write = Self::patch(reason, object, json!({ "status": status }));
        if let WriteAction::Patch(patch) = write.action {
            write.action = WriteAction::PatchStatus(patch);
        }
        write
    }

    /// The same write, also if the object has changed since it was seen: only its UID must be the same.
    pub fn of_any_version(mut self) -> Self {
        match &mut self.action {
            WriteAction::Patch(patch) | WriteAction::PatchStatus(patch) => {
                if let Some(metadata) = patch["metadata"].as_object_mut() {
                    metadata.remove("resourceVersion");
                }
            }
            WriteAction::Delete {
                preconditions: Some(preconditions),
                ..
            } => preconditions.resource_version = None,
            WriteAction::Create { .. }
            | WriteAction::Delete {
                preconditions: None, ..
            } => {}
        }
        self
    }

    /// A write that deletes an object, whatever has changed in it since it was seen.
    pub fn delete<K: Object>(reason: &'static str, object: &K) -> Self {
        Self::delete_seen(reason, object).of_any_version()
    }

    /// A write that deletes an object, if that has not changed since it was seen.
    pub fn delete_seen<K: Object>(reason: &'static str, object: &K) -> Self {
        let meta = object.meta();
        let preconditions = meta.uid.is_some().then(|| unchanged(meta));
        Self::about(
            reason,
            object,
            WriteAction::Delete {
                preconditions,
                propagation: PropagationPolicy::Background,
            },
        )
    }

    /// The same deletion, after which dependents of the object stay.
    pub fn leaving_dependents(mut self) -> Self {
        if let WriteAction::Delete { propagation, .. } = &mut self.action {
            *propagation = PropagationPolicy::Orphan;
        }
        self
    }

    /// Whether the write is about an object of that type.
    pub fn is_of<K: Object>(&self) -> bool {
        self.resource.kind == K::kind(&()) && self.resource.group == K::group(&())
    }

    /// Whether the write is about the status of its object.
    pub fn is_status(&self) -> bool {
        matches!(self.action, WriteAction::PatchStatus(_))
    }

    fn about<K: Object>(reason: &'static str, object: &K, action: WriteAction) -> Self {
        Self {
            reason,
            resource: ApiResource::erase::<K>(&()),
            namespace: object.namespace().unwrap_or_default(),
            name: object.name_any(),
            action,
        }
    }
}

impl fmt::Display for Write {
    /// The kind of request, and the object: `create Role kube-bind-a/riders`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.action {
            WriteAction::Create { .. } => "create ",
            WriteAction::Patch(_) => "patch ",
            WriteAction::PatchStatus(_) => "patch status of ",
            WriteAction::Delete { .. } => "delete ",
        })?;
        write!(f, "{} ", self.resource.kind)?;
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.name)
    }
}

/// An object's finalizers with one more; `None` if the object has that one already.
pub fn with_finalizer<K: Resource>(object: &K, finalizer: &str) -> Option<Vec<String>> {
    let mut finalizers = object.meta().finalizers.clone().unwrap_or_default();
    if finalizers.iter().any(|other| other == finalizer) {
        return None;
    }
    finalizers.push(finalizer.to_owned());
    Some(finalizers)
}

/// An object's finalizers without one; `None` if the object does not have that one.
pub fn without_finalizer<K: Resource>(object: &K, finalizer: &str) -> Option<Vec<String>> {
    let mut finalizers = object.meta().finalizers.clone().unwrap_or_default();
    let before = finalizers.len();
    finalizers.retain(|other| other != finalizer);
    (finalizers.len() < before).then_some(finalizers)
}

#[cfg(test)]
mod tests;
