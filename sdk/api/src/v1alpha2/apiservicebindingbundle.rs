//! APIServiceBindingBundle: a consumer uses every export of a contract.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ClusterSecretKeyRef, DeletionPolicy, PermissionClaim, RemovedExports};
use crate::{Condition, Duration};

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
    /// Labels of the exports to bind, which they have from their templates; all if absent. (An addition of Bindery.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "LabelSelector")]
    pub selector: Option<LabelSelector>,
    /// How often the provider is asked where it cannot be watched, and how soon one that does not answer is asked again; the
    /// konnector's `--provider-polling-interval` if absent. (An addition of Bindery.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Duration")]
    pub polling_interval: Option<Duration>,
    /// After how many failures in a row the condition is an error; three if absent. The provider is asked on all the same.
    /// (An addition of Bindery.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i32", range(min = 0))]
    pub max_retries: Option<i32>,
    /// How much longer each pause after a failure is than the one before it, up to a limit; 2 if absent, 1 for pauses of the
    /// same length. (An addition of Bindery.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64", range(min = 1, max = 10))]
    pub backoff_multiplier: Option<f64>,
    /// The claims of the exports that the consumer accepts; none if empty. A selector with an empty labelSelector accepts all
    /// objects of the resource. (An addition of Bindery.)
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accepted_claims: Vec<PermissionClaim>,
    /// The namespaces of this cluster that the claims concern, in both directions; the bundle's bindings get them as their own. If there are
    /// none, each binding has what was set on it. The rights that bundles share stay on the whole cluster. (An addition of Bindery.)
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claim_namespaces: Vec<String>,
    /// Types of Secrets that come down beside those that always may; the bundle's bindings get them as their own. If there are none, each
    /// binding has what was set on it. (An addition of Bindery.)
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claim_secret_types: Vec<String>,
    /// What happens to a binding whose export the provider has removed; Keep if absent. (An addition of Bindery.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "RemovedExports")]
    pub removed_exports: Option<RemovedExports>,
    /// What happens to the provider's objects when a binding of the bundle, or a CRD of it, is deleted; the bundle's bindings get it as
    /// their own. If absent, each binding has what was set on it. (An addition of Bindery.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "DeletionPolicy")]
    pub deletion_policy: Option<DeletionPolicy>,
    /// Put in front of the names of exports to get those of their bindings. (An addition of Bindery.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(max = 63), regex(pattern = "^[a-z0-9]([-a-z0-9.]*)$"))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("bindingNamePrefix is immutable"))]
    pub binding_name_prefix: Option<String>,
}

/// What the konnector found and did.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct APIServiceBindingBundleStatus {
    /// The provider's name for people. (An addition of Bindery.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_pretty_name: Option<String>,
    /// The generation of the spec that this status speaks of. (An addition of Bindery.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// When the bindings were last brought in line with a complete list of the exports. (An addition of Bindery.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_sync_time: Option<Time>,
    /// How many exports the provider has that the selector takes. (An addition of Bindery.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub discovered_services: Option<i32>,
    /// How many of them are bound. (An addition of Bindery.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound_services: Option<i32>,
    /// The contract namespace on the provider. (An addition of Bindery.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_namespace: Option<String>,
    /// The UID of the contract namespace this bundle is pinned to. (An addition of Bindery.)
    #[serde(rename = "contractUID", default, skip_serializing_if = "Option::is_none")]
    pub contract_uid: Option<String>,
    /// What is well and what is not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// The spec as it is read: the wire does not require it, and one object without it must not stop the reading of others.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ReadSpec {
    kubeconfig_secret_ref: ClusterSecretKeyRef,
    selector: Option<LabelSelector>,
    polling_interval: Option<Duration>,
    max_retries: Option<i32>,
    backoff_multiplier: Option<f64>,
    accepted_claims: Vec<PermissionClaim>,
    claim_namespaces: Vec<String>,
    claim_secret_types: Vec<String>,
    removed_exports: Option<RemovedExports>,
    deletion_policy: Option<DeletionPolicy>,
    binding_name_prefix: Option<String>,
}

impl APIServiceBindingBundle {
    /// UID of the contract that the bundle is pinned to.
    pub fn contract_uid(&self) -> Option<&str> {
        self.status.as_ref()?.contract_uid.as_deref()
    }
}

impl From<Option<ReadSpec>> for APIServiceBindingBundleSpec {
    fn from(read: Option<ReadSpec>) -> Self {
        let read = read.unwrap_or_default();
        Self {
            kubeconfig_secret_ref: read.kubeconfig_secret_ref,
            selector: read.selector,
            polling_interval: read.polling_interval,
            max_retries: read.max_retries,
            backoff_multiplier: read.backoff_multiplier,
            accepted_claims: read.accepted_claims,
            claim_namespaces: read.claim_namespaces,
            claim_secret_types: read.claim_secret_types,
            removed_exports: read.removed_exports,
            deletion_policy: read.deletion_policy,
            binding_name_prefix: read.binding_name_prefix,
        }
    }
}
