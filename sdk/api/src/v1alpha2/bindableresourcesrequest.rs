//! BindableResourcesRequest: somebody asks the provider to bind a template for a consumer cluster.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Compatibility, LocalSecretKeyRef, NameRef, Phase};
use crate::{Duration, labels};

/// Which template, for which cluster, asked by whom.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "kube-bind.io",
    version = "v1alpha2",
    kind = "BindableResourcesRequest",
    plural = "bindableresourcesrequests",
    category = "kube-bindings",
    namespaced,
    status = "BindableResourcesRequestStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "Asks for everything a consumer cluster needs to use a template: contract, export, credentials.",
    printcolumn(name = "Template", type_ = "string", json_path = ".spec.templateRef.name"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct BindableResourcesRequestSpec {
    /// The template to bind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template_ref: Option<NameRef>,
    /// The consumer cluster that will bind.
    pub cluster_identity: ClusterIdentity,
    /// Who asks.
    pub author: String,
    /// Where the response is to be written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubeconfig_secret_ref: Option<LocalSecretKeyRef>,
    /// How long a finished request is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_after_finished: Option<Duration>,
    /// Another implementation whose konnector is to be served by this contract. (An addition of Bindery.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Compatibility")]
    pub compatibility: Option<Compatibility>,
}

/// A consumer cluster.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq, Hash)]
#[serde(rename_all = "camelCase")]
pub struct ClusterIdentity {
    /// What tells the cluster from all others, usually the UID of its namespace kube-system.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub identity: String,
    /// The cluster's name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pretty_name: Option<String>,
}

/// How far the request has come.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct BindableResourcesRequestStatus {
    /// Pending until it is decided.
    #[serde(default)]
    pub phase: Phase,
    /// The contract namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Where the response was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubeconfig_secret_ref: Option<LocalSecretKeyRef>,
    /// When the request was decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
    /// What is well and what is not; these conditions are Kubernetes' own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

// === impl BindableResourcesRequest ===

impl BindableResourcesRequest {
    /// The phase in the status; pending while there is no status.
    pub fn phase(&self) -> Phase {
        self.status.as_ref().map(|status| status.phase).unwrap_or_default()
    }

    /// Whether the label of a request that came over gRPC is there. Only in the server's own namespace is it the server's word.
    pub fn is_marked_grpc(&self) -> bool {
        let labels = self.metadata.labels.as_ref();
        let via = labels.and_then(|labels| labels.get(labels::VIA));
        via.is_some_and(|via| via == labels::VIA_GRPC)
    }

    /// Whether a call made the request: it is labelled so, and lies in the server's own namespace.
    pub fn is_grpc(&self, server_namespace: &str) -> bool {
        self.is_marked_grpc() && self.metadata.namespace.as_deref() == Some(server_namespace)
    }
}
