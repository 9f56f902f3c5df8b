//! Decides what to write to one object that is drained.

use bindery_api::{finalizers::SYNCER, meta::is_paused};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use super::DrainMode;

/// One write.
#[derive(Debug, PartialEq)]
pub(super) enum DrainOp {
    /// Deletes the object of this UID.
    Delete { uid: String },
    /// Takes the konnector's finalizer off, by this merge patch. The patch names the version of the object that it was made of.
    RemoveFinalizer(Value),
}

/// Plans the next write to an object; `None` if there is nothing to write now.
pub(super) fn plan(meta: &ObjectMeta, mode: DrainMode) -> Option<DrainOp> {
    if is_paused(meta) {
        return None;
    }
    if meta.deletion_timestamp.is_none() && mode != DrainMode::LetGo {
        let uid = meta.uid.clone().filter(|_| mode != DrainMode::Deleted);
        return uid.map(|uid| DrainOp::Delete { uid });
    }
    if mode == DrainMode::Copies || !is_held(meta) {
        return None;
    }
    let finalizers = meta.finalizers.iter().flatten();
    let others: Vec<_> = finalizers.filter(|finalizer| *finalizer != SYNCER).collect();
    Some(DrainOp::RemoveFinalizer(json!({"metadata": {
        "uid": meta.uid, "resourceVersion": meta.resource_version, "finalizers": others,
    }})))
}

/// Whether the object has the konnector's finalizer.
pub(super) fn is_held(meta: &ObjectMeta) -> bool {
    meta.finalizers.iter().flatten().any(|finalizer| finalizer == SYNCER)
}

/// Tells whether the object would be written to, were it not paused.
pub(super) fn is_held_by_pause(meta: &ObjectMeta, mode: DrainMode) -> bool {
    is_paused(meta)
        && match mode {
            DrainMode::Deleted => meta.deletion_timestamp.is_some(),
            DrainMode::LetGo => is_held(meta),
            DrainMode::All | DrainMode::Copies => true,
        }
}
