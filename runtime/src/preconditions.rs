//! Preconditions of deletes, and of merge patches that have them as metadata: the API server answers 409 and writes nothing where
//! the live object does not meet them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::Preconditions;

/// Deletes only the object with this UID, and not one that was created later under the same name.
pub fn same_uid(uid: impl Into<String>) -> Preconditions {
    Preconditions {
        uid: Some(uid.into()),
        resource_version: None,
    }
}

/// Deletes or patches the object only if nobody has written to it since it was read with this metadata.
pub fn unchanged(meta: &ObjectMeta) -> Preconditions {
    Preconditions {
        uid: meta.uid.clone(),
        resource_version: meta.resource_version.clone(),
    }
}
