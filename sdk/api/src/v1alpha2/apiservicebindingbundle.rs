//! APIServiceBindingBundle: a consumer uses every export of a contract.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ClusterSecretKeyRef;
use crate::Condition;

/// The credentials whose exports are to be bound.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "kube-bind.io",
    version = "v1alpha2",
    kind = "APIServiceBindingBundle",
    plural = "apiservicebindingbundles",
    shortname = "sbb",
    category = "kube-bindings",
    status = "APIServiceBindingBundleStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "Binds every export that the credentials of one provider reach.",
    printcolumn(name = "Provider", type_ = "string", json_path = ".status.providerPrettyName"),
    printcolumn(
        name = "Resources",
        type_ = "string",
        json_path = r".metadata.annotations.kube-bind\.io/resources",
        priority = 1
    ),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].status"#
    ),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].message"#
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase", from = "Option<ReadSpec>")]
#[schemars(!from)]
pub struct APIServiceBindingBundleSpec {
    /// The Secret with the kubeconfig of the provider.
    #[x_kube(validation = Rule::new("self == oldSelf").message("kubeconfigSecretRef is immutable"))]
    pub kubeconfig_secret_ref: ClusterSecretKeyRef,
}

/// What the konnector found and did.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct APIServiceBindingBundleStatus {
    /// What is well and what is not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// The spec as it is read: the wire does not require it, and one object without it must not stop the reading of others.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ReadSpec {
    kubeconfig_secret_ref: ClusterSecretKeyRef,
}

impl From<Option<ReadSpec>> for APIServiceBindingBundleSpec {
    fn from(read: Option<ReadSpec>) -> Self {
        let read = read.unwrap_or_default();
        Self {
            kubeconfig_secret_ref: read.kubeconfig_secret_ref,
        }
    }
}
