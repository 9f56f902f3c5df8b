//! ClusterBinding: the one object of a contract namespace that stands for the bound consumer cluster.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{LocalSecretKeyRef, SecretRef, schemas};
use crate::{Condition, Duration, times};

/// What the provider says of itself to the consumer.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "kube-bind.io",
    version = "v1alpha2",
    kind = "ClusterBinding",
    plural = "clusterbindings",
    category = "kube-bindings",
    namespaced,
    status = "ClusterBindingStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "The provider's view of a bound consumer cluster, named cluster in its contract namespace.",
    validation = Rule::new(r#"self.metadata.name == "cluster""#).message("cluster binding name should be cluster"),
    printcolumn(name = "Konnector Version", type_ = "string", json_path = ".status.konnectorVersion"),
    printcolumn(name = "Last Heartbeat", type_ = "date", json_path = ".status.lastHeartbeatTime"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].status"#
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterBindingSpec {
    /// The Secret of the contract namespace that holds the consumer's kubeconfig, where there is one.
    #[x_kube(validation = Rule::new("self == oldSelf").message("kubeconfigSecretRef is immutable"))]
    pub kubeconfig_secret_ref: LocalSecretKeyRef,
    /// The provider's name for people.
    #[schemars(length(min = 1))]
    pub provider_pretty_name: String,
    /// Free-form facts of the provider; not interpreted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::free_form")]
    pub service_provider_spec: Option<Value>,
}

/// What the konnector says of itself, and what the provider made of it.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ClusterBindingStatus {
    /// When the konnector last said that it lives.
    #[serde(
        default,
        deserialize_with = "times::or_absent",
        skip_serializing_if = "Option::is_none"
    )]
    pub last_heartbeat_time: Option<Time>,
    /// How often it says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heartbeat_interval: Option<Duration>,
    /// The konnector's version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub konnector_version: Option<String>,
    /// The Secret of the consumer cluster that holds the kubeconfig.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consumer_secret_ref: Option<SecretRef>,
    /// The UID of the consumer's namespace kube-system, written once by its konnector. (An addition of Bindery.)
    #[serde(rename = "consumerClusterUID", default, skip_serializing_if = "Option::is_none")]
    pub consumer_cluster_uid: Option<String>,
    /// When the credential that the konnector uses expires, by its clock. (An addition of Bindery.)
    #[serde(
        default,
        deserialize_with = "times::or_absent",
        skip_serializing_if = "Option::is_none"
    )]
    pub credential_expiration_time: Option<Time>,
    /// How far the objects of the contract are in sync, written with each heartbeat. (An addition of Bindery.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync: Option<ClusterBindingSync>,
    /// What is well and what is not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// How far the objects of a contract were in sync when its konnector sent a heartbeat.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ClusterBindingSync {
    /// Number of objects on the consumer that the konnector keeps in sync: those of bound APIs, and claimed ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objects: Option<i64>,
    /// Number of objects that wait to be synced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<i64>,
    /// Number of objects whose last attempt failed, or that a conflict blocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing: Option<i64>,
    /// How long the object that waits longest has waited; absent if none waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag: Option<Duration>,
}

/// How many intervals may pass without a heartbeat.
const HEARTBEAT_INTERVALS: u32 = 2;

// === impl ClusterBinding ===

impl ClusterBinding {
    /// The longest time without a heartbeat of a konnector that is well; `None` while it does not say how often it sends one.
    pub fn heartbeat_allowance(&self) -> Option<std::time::Duration> {
        let interval = self.status.as_ref()?.heartbeat_interval.as_ref()?.parse().ok()?;
        (!interval.is_zero()).then(|| interval.saturating_mul(HEARTBEAT_INTERVALS))
    }
}
