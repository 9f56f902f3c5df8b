//! Defines the ResourceSet, and the labels, annotations and owner references on objects, as all synks write them: a set
//! that one synk applied can be continued by another.

use serde::{Deserialize, Deserializer, Serializer, de::DeserializeOwned};
use serde_json::Value;

mod name;
mod resource_set;

pub use name::{InvalidName, SetName, Version};
pub use resource_set::{
    API_VERSION, Action, Applied, CRD_NAME, Group, KIND, Phase, ResourceSet, Spec, Status, crd, is_resource_set,
    owner_reference,
};
pub(crate) use resource_set::{grouped, listed};

/// Field manager of all writes of synk.
pub const FIELD_MANAGER: &str = "synk";
/// Label of a ResourceSet: the name of the set.
pub const NAME_LABEL: &str = "name";
/// Annotation of a ResourceSet: the namespace that the set is applied with.
pub const NAMESPACE: &str = "synk.cloudrobotics.com/namespace";
/// Label of Secrets and Leases of a set: the name of the set.
pub const LABEL_SET: &str = "synk.cloudrobotics.com/set";
/// Label of Secrets of a set: the number of the version.
pub const LABEL_VERSION: &str = "synk.cloudrobotics.com/version";
/// Type of the Secrets that keep manifests for a rollback.
pub const HISTORY_TYPE: &str = "synk.cloudrobotics.com/history";
/// Annotation with the object as it was last applied, if it is small enough.
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Objects whose JSON has this many bytes or more carry no [`LAST_APPLIED`].
pub const LAST_APPLIED_LIMIT: usize = 256 * 1024;
/// Annotation of a live object of which synk may change only the owner.
pub const IGNORE: &str = "synk.cloudrobotics.com/ignore";
/// Annotation of objects that a chart runs beside its set.
pub const HELM_HOOK: &str = "helm.sh/hook";

/// Metadata fields that only an API server writes.
pub(crate) const SERVER_WRITTEN: [&str; 8] = [
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "selfLink",
];

/// Serializes a version as its name, such as `web.v2`.
pub(crate) fn as_text<S: Serializer>(version: &Version, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(version)
}

/// Deserializes a value, or its default if it does not fit, so that one odd field does not hide a whole ResourceSet.
fn lenient<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned + Default,
{
    let value = Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(value).unwrap_or_default())
}

/// Deserializes those elements of a list that fit.
fn each_lenient<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    let value = Value::deserialize(deserializer)?;
    Ok(each(&value).0)
}

/// Returns the elements of a list that fit, and whether all of them did.
fn each<T: DeserializeOwned>(list: &Value) -> (Vec<T>, bool) {
    match list {
        Value::Null => (Vec::new(), true),
        Value::Array(elements) => {
            let fit: Vec<T> = elements
                .iter()
                .filter_map(|element| serde_json::from_value(element.clone()).ok())
                .collect();
            let is_all = fit.len() == elements.len();
            (fit, is_all)
        }
        _ => (Vec::new(), false),
    }
}
