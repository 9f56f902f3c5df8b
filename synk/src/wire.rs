//! The ResourceSet and the marks on objects, as they are on the wire: a set that is applied by one synk is continued by
//! another.

use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::Value;

mod name;
mod resource_set;

pub use name::{InvalidName, SetName, Version};
pub use resource_set::{
    API_VERSION, Action, Applied, CRD_NAME, Group, KIND, Phase, ResourceSet, Spec, Status, crd, is_resource_set,
    owner_reference,
};

/// Field manager of all that synk writes.
pub const FIELD_MANAGER: &str = "synk";
/// Label of a ResourceSet: the name of its set.
pub const NAME_LABEL: &str = "name";
/// Annotation of a ResourceSet: the namespace its set is applied with.
pub const NAMESPACE: &str = "synk.cloudrobotics.com/namespace";
/// Label of what is kept beside a set: the name of the set.
pub const LABEL_SET: &str = "synk.cloudrobotics.com/set";
/// Label of what is kept beside a set: the number of a version of it.
pub const LABEL_VERSION: &str = "synk.cloudrobotics.com/version";
/// Type of the Secrets with the manifests that are kept for a rollback.
pub const HISTORY_TYPE: &str = "synk.cloudrobotics.com/history";
/// Annotation with the object as it was last applied, where it is small enough.
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Objects whose JSON has this many bytes or more carry no [`LAST_APPLIED`].
pub const LAST_APPLIED_LIMIT: usize = 256 * 1024;
/// Annotation of a live object that is not to be touched but for its owner.
pub const IGNORE: &str = "synk.cloudrobotics.com/ignore";
/// Annotation of what a chart runs apart from its set.
pub const HELM_HOOK: &str = "helm.sh/hook";

/// What only an API server writes in the metadata of an object.
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

/// Reads what fits, and takes what does not as absent: that one field is odd must not hide a whole ResourceSet.
fn lenient<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned + Default,
{
    let value = Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(value).unwrap_or_default())
}

/// Reads the elements of a list that fit, each for itself.
fn each_lenient<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    let value = Value::deserialize(deserializer)?;
    Ok(each(&value).0)
}

/// The elements of a list that fit, and whether that is all there is.
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
