//! What the labels and annotations of an object say about it.

use bindery_api::{annotations, finalizers::SYNCER, labels, retention};
use bindery_simulator_apiserver::ObjectKey;
use jiff::Timestamp;
use serde_json::Value;

/// The UID of an object.
pub fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap_or_default()
}

/// An annotation of an object.
pub fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object["metadata"]["annotations"].get(key)?.as_str()
}

/// A label of an object.
pub fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object["metadata"]["labels"].get(key)?.as_str()
}

/// Whether an object is being deleted.
pub fn is_deleting(object: &Value) -> bool {
    object["metadata"].get("deletionTimestamp").is_some()
}

/// A time in the metadata of an object.
pub fn time(object: &Value, field: &str) -> Option<Timestamp> {
    object["metadata"].get(field)?.as_str()?.parse().ok()
}

/// Whether an object has the konnector's finalizer.
pub fn is_held(object: &Value) -> bool {
    let all = object["metadata"]["finalizers"].as_array();
    all.is_some_and(|all| all.iter().any(|one| one == SYNCER))
}

/// The serial number that the users of a history put into the content of an object.
pub fn serial(object: &Value) -> Option<u64> {
    let spec = &object["spec"]["serial"];
    spec.as_u64().or_else(|| annotation(object, SERIAL)?.parse().ok())
}

/// The annotation with the serial number of objects that have no spec, such as Secrets. It is copied with the object.
pub const SERIAL: &str = "example.dev/serial";

/// Whether an object of a consumer is the binding of the export of this name.
pub fn is_binding_of(key: &ObjectKey, object: &Value, export: &str) -> bool {
    let of = object["spec"]["exportName"].as_str().unwrap_or(&key.name);
    key.group == "kube-bind.io" && key.resource == "apiservicebindings" && of == export
}

/// A copy on a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyMarks<'a> {
    /// Name of the contract that made it.
    pub contract: &'a str,
    /// UID of its source.
    pub source: &'a str,
    /// Namespace of its source; empty if it is cluster-scoped.
    pub namespace: &'a str,
    /// Whether it is the copy of a claimed object.
    pub claimed: bool,
    /// Whether it was released: it stays without its source.
    pub released: bool,
    /// Whether it is retained: its source was deleted and can be restored.
    pub retained: bool,
}

/// Reads an object of a provider as a copy; `None` if it is none.
pub fn copy_on_provider(object: &Value) -> Option<CopyMarks<'_>> {
    let contract = annotation(object, annotations::CLUSTER_NAMESPACE)?;
    let released = annotation(object, annotations::RELEASED);
    Some(CopyMarks {
        contract,
        source: annotation(object, annotations::CONSUMER_UID)?,
        namespace: annotation(object, annotations::CONSUMER_NAMESPACE).unwrap_or_default(),
        claimed: label(object, labels::OWNER) == Some("consumer"),
        released: released.is_some_and(|value| annotations::is_released(value, contract)),
        retained: retention::is_retained(|key| annotation(object, key), contract),
    })
}

/// Whether an object of a consumer is the copy of a provider's claimed object.
pub fn is_copy_on_consumer(object: &Value) -> bool {
    label(object, labels::OWNER) == Some("provider") && annotation(object, annotations::PROVIDER_UID).is_some()
}

/// Whether a write retained a copy on a provider that was not retained before.
pub fn is_retained_now(before: Option<&Value>, after: Option<&Value>) -> bool {
    let is_retained = |object: &Value| copy_on_provider(object).is_some_and(|copy| copy.retained);
    before.is_some_and(|before| !is_retained(before)) && after.is_some_and(is_retained)
}

/// Whether a write began the end of an object: it is being deleted now, or gone, and was neither before.
pub fn has_ended(before: Option<&Value>, after: Option<&Value>) -> bool {
    before.is_some_and(|before| !is_deleting(before)) && after.is_none_or(is_deleting)
}
