//! How long copies of deleted objects stay with the provider, and which are there.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{GroupResource, schemas};
use crate::{Duration, times};

/// How long the copy of a deleted object stays with the provider, and what is changed in it for that time. (An addition of Bindery.)
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
pub struct Retention {
    /// How long the copy stays, such as 72h, by the clock of the server. Until then the consumer may restore the object.
    #[serde(rename = "for")]
    pub duration: Duration,
    /// A merge patch that stops what the object runs, such as `{"spec": {"replicas": 0}}`; restoring the object undoes it. Without it
    /// the provider's operator goes on working on the copy. It changes neither metadata nor status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::free_form")]
    pub suspend: Option<Value>,
}

/// The retained copies of a binding: their objects were deleted, and can be restored. (An addition of Bindery.)
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct RetainedObjects {
    /// The number of all retained copies.
    pub count: i64,
    /// The first of them by resource, namespace and name. All can be restored by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub first: Vec<RetainedObject>,
}

/// An object that was deleted, and whose copy the provider retains.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct RetainedObject {
    /// The resource of the object.
    #[serde(flatten)]
    pub group_resource: GroupResource,
    /// The namespace of the object; absent for a cluster-scoped one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The name of the object.
    pub name: String,
    /// When the copy was retained, by the clock of the konnector.
    #[serde(deserialize_with = "times::or_epoch")]
    pub since: Time,
    /// When the server ends the copy; absent until the server has said it.
    #[serde(
        default,
        deserialize_with = "times::or_absent",
        skip_serializing_if = "Option::is_none"
    )]
    pub until: Option<Time>,
}

// === impl RetainedObject ===

impl RetainedObject {
    /// The time until which the object can be restored, if the server has said it.
    pub fn until(&self) -> Option<Timestamp> {
        self.until.as_ref().map(|until| until.0)
    }
}
