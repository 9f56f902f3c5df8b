//! The few kinds of write that controllers make, each safe to repeat.

use std::{fmt::Debug, sync::Arc};

use bindery_runtime::{
    errors,
    preconditions::{same_uid, unchanged},
};
use kube::{
    Api, Resource, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, PostParams, PropagationPolicy},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

/// The field manager of all writes of the server.
pub const FIELD_MANAGER: &str = "bindery-server";

/// Why a write was not made.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// An object of that name exists and is not the server's.
    #[error("{kind} {name} exists and is not managed by this server; rename or remove it")]
    Foreign {
        /// Its kind.
        kind: String,
        /// Its name, with the namespace if it has one.
        name: String,
    },
    /// The API server refused, or could not be asked.
    #[error("{}", errors::explain(.0))]
    Api(#[from] kube::Error),
    /// The API server could not be asked what the write depends on.
    #[error("{}", errors::explain(.0))]
    Unasked(Arc<kube::Error>),
}

/// What can be written: any typed Kubernetes object.
pub trait Object: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned {}

impl<K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned> Object for K {}

/// Creates an object. One that is there already counts if it is ours: our caches had not seen it yet.
pub async fn create<K: Object>(api: &Api<K>, object: &K, is_ours: impl Fn(&K) -> bool) -> Result<K, WriteError> {
    let params = PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    };
    match api.create(&params, object).await {
        Ok(created) => Ok(created),
        Err(error) if errors::is_already_exists(&error) => match api.get_opt(&object.name_any()).await? {
            Some(existing) if is_ours(&existing) => Ok(existing),
            Some(existing) => Err(WriteError::foreign(&existing)),
            // Deleted in between: the caller comes again.
            None => Err(error.into()),
        },
        Err(error) => Err(error.into()),
    }
}

/// Merges a patch into an object.
pub async fn merge<K: Object>(api: &Api<K>, name: &str, patch: &Value) -> Result<K, WriteError> {
    Ok(api.patch(name, &params(), &Patch::Merge(patch)).await?)
}

/// Merges a patch into an object's status.
pub async fn merge_status<K: Object>(api: &Api<K>, name: &str, patch: &Value) -> Result<K, WriteError> {
    Ok(api.patch_status(name, &params(), &Patch::Merge(patch)).await?)
}

/// Deletes the object of that UID. One that is gone, or was made anew, is deleted already.
pub async fn delete<K: Object>(api: &Api<K>, name: &str, uid: Option<&str>) -> Result<(), WriteError> {
    let params = DeleteParams {
        preconditions: uid.map(same_uid),
        ..DeleteParams::background()
    };
    gone(api.delete(name, &params).await)
}

/// Deletes an object as it was seen. One that has changed since stays.
pub async fn delete_seen<K: Object>(api: &Api<K>, object: &K) -> Result<(), WriteError> {
    delete_seen_with(api, object, PropagationPolicy::Background).await
}

/// As [`delete_seen`], with a say in what happens to dependents.
pub async fn delete_seen_with<K: Object>(
    api: &Api<K>,
    object: &K,
    propagation: PropagationPolicy,
) -> Result<(), WriteError> {
    let params = DeleteParams {
        propagation_policy: Some(propagation),
        preconditions: Some(unchanged(object.meta())),
        ..DeleteParams::default()
    };
    gone(api.delete(&object.name_any(), &params).await)
}

/// A conflict says that the object is another one by now.
fn gone<T>(deleted: Result<T, kube::Error>) -> Result<(), WriteError> {
    match deleted {
        Ok(_) => Ok(()),
        Err(error) if errors::is_not_found(&error) || errors::is_conflict(&error) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The metadata of a patch that is to apply only to the object as it was seen.
pub fn seen<K: Resource>(object: &K) -> Value {
    let meta = object.meta();
    json!({ "uid": meta.uid, "resourceVersion": meta.resource_version })
}

/// The patch that sets the finalizers of an object as it was seen.
pub fn finalizers_patch<K: Resource>(object: &K, finalizers: &[String]) -> Value {
    let mut metadata = seen(object);
    metadata["finalizers"] = json!(finalizers);
    json!({ "metadata": metadata })
}

/// An object's finalizers with one more, if it lacks that one.
pub fn with_finalizer<K: Resource>(object: &K, finalizer: &str) -> Option<Vec<String>> {
    let mut finalizers = object.meta().finalizers.clone().unwrap_or_default();
    if finalizers.iter().any(|other| other == finalizer) {
        return None;
    }
    finalizers.push(finalizer.to_owned());
    Some(finalizers)
}

/// An object's finalizers without one, if it has that one.
pub fn without_finalizer<K: Resource>(object: &K, finalizer: &str) -> Option<Vec<String>> {
    let mut finalizers = object.meta().finalizers.clone().unwrap_or_default();
    let before = finalizers.len();
    finalizers.retain(|other| other != finalizer);
    (finalizers.len() < before).then_some(finalizers)
}

fn params() -> PatchParams {
    PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

// === impl WriteError ===

impl WriteError {
    /// That an object is somebody else's.
    pub fn foreign<K: Object>(object: &K) -> Self {
        let name = object.name_any();
        Self::Foreign {
            kind: K::kind(&()).into_owned(),
            name: match object.namespace() {
                Some(namespace) => format!("{namespace}/{name}"),
                None => name,
            },
        }
    }

    /// Whether the server lacks a right.
    pub fn is_forbidden(&self) -> bool {
        matches!(self, Self::Api(error) if errors::is_forbidden(error))
    }

    /// Whether the object is not there.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Api(error) if errors::is_not_found(error))
    }

    /// Whether the object was not, or no longer, what the caches said: looking again mends it.
    pub fn is_stale(&self) -> bool {
        matches!(self, Self::Api(error) if errors::code(error) == Some(409))
    }
}
