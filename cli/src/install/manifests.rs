//! The objects that a bind installs on the consumer cluster, as the SDK makes them.

use bindery_api::labels;
pub(crate) use bindery_sdk::manifests::{
    BindingInstall, ClaimRights, Kubeconfig, MANAGER as FIELD_MANAGER, Manifests, NamespaceRights, bundle_secret_ref,
    secret, secret_ref,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use crate::errors::Failure;

/// All objects as JSON, in the order in which they are applied.
pub(crate) fn documents(manifests: &Manifests) -> Result<Vec<Value>, Failure> {
    manifests
        .documents()
        .map_err(|error| Failure::Format(error.to_string()))
}

/// Whether the label of the object says that this command made it.
pub(crate) fn is_ours(meta: &ObjectMeta) -> bool {
    let labels = meta.labels.as_ref();
    labels
        .and_then(|labels| labels.get(labels::MANAGED_BY))
        .map(String::as_str)
        == Some(FIELD_MANAGER)
}

#[cfg(test)]
pub(crate) mod tests;
