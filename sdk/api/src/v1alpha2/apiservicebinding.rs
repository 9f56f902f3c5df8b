//! APIServiceBinding: a consumer uses an export of a provider.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ClusterSecretKeyRef, DeletionPolicy, GroupResource, PermissionClaim, RetainedObjects};
use crate::Condition;

/// What a consumer binds, and with which credentials.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "kube-bind.io",
    version = "v1alpha2",
    kind = "APIServiceBinding",
    plural = "apiservicebindings",
    shortname = "sb",
    category = "kube-bindings",
    status = "APIServiceBindingStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "A consumer's binding to the export of the same name, with the credentials that reach its provider.",
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
pub struct APIServiceBindingSpec {
    /// The Secret with the kubeconfig of the provider.
    #[x_kube(validation = Rule::new("self == oldSelf").message("kubeconfigSecretRef is immutable"))]
    pub kubeconfig_secret_ref: ClusterSecretKeyRef,
    /// Name of the export, where it is not that of the binding. (An addition of Bindery.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("exportName is immutable"))]
    pub export_name: Option<String>,
    /// What happens to the provider's objects when the binding or a CRD of it is deleted; they stay and are marked released if absent.
    /// (An addition of Bindery.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "DeletionPolicy")]
    pub deletion_policy: Option<DeletionPolicy>,
    /// Claims of the export that the consumer refuses: nothing of them is read or written. (An addition of Bindery.)
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rejected_permission_claims: Vec<GroupResource>,
    /// The namespaces of this cluster that the claims concern: objects of the provider come down into these alone, and objects of other
    /// namespaces are not given to it. If there are none, objects come down into the namespaces that have an object of the bound API, and
    /// those of all namespaces are given. (An addition of Bindery.)
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claim_namespaces: Vec<String>,
    /// Types of Secrets that come down from the provider beside Opaque and those of kubernetes.io for TLS, basic authentication, SSH and
    /// container registries. (An addition of Bindery.)
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claim_secret_types: Vec<String>,
}

/// What the konnector found and did.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct APIServiceBindingStatus {
    /// The provider's name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_pretty_name: Option<String>,
    /// The resources that are bound.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1))]
    pub bound_schemas: Vec<GroupResource>,
    /// The claims of the export, as the provider stated them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub permission_claims: Vec<PermissionClaim>,
    /// The namespaces of this cluster that may have copies of claimed objects: those of `spec.claimNamespaces`, and those that were listed
    /// there before until their copies are gone. If there are none, all namespaces may. (An addition of Bindery.)
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claim_namespaces: Vec<String>,
    /// The contract namespace on the provider. (An addition of Bindery.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_namespace: Option<String>,
    /// The UID of the contract namespace this binding is pinned to. (An addition of Bindery.)
    #[serde(rename = "contractUID", default, skip_serializing_if = "Option::is_none")]
    pub contract_uid: Option<String>,
    /// The copies of deleted objects that the provider retains; absent if there are none. (An addition of Bindery.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retained: Option<RetainedObjects>,
    /// What is well and what is not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// The spec as it is read: the wire does not require it, and one object without it must not stop the reading of others.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ReadSpec {
    kubeconfig_secret_ref: ClusterSecretKeyRef,
    export_name: Option<String>,
    deletion_policy: Option<DeletionPolicy>,
    rejected_permission_claims: Vec<GroupResource>,
    claim_namespaces: Vec<String>,
    claim_secret_types: Vec<String>,
}

impl From<Option<ReadSpec>> for APIServiceBindingSpec {
    fn from(read: Option<ReadSpec>) -> Self {
        let read = read.unwrap_or_default();
        Self {
            kubeconfig_secret_ref: read.kubeconfig_secret_ref,
            export_name: read.export_name,
            deletion_policy: read.deletion_policy,
            rejected_permission_claims: read.rejected_permission_claims,
            claim_namespaces: read.claim_namespaces,
            claim_secret_types: read.claim_secret_types,
        }
    }
}

// === impl APIServiceBinding ===

impl APIServiceBinding {
    /// UID of the contract that the binding is pinned to.
    pub fn contract_uid(&self) -> Option<&str> {
        self.status.as_ref()?.contract_uid.as_deref()
    }

    /// Name of the export that it is to.
    pub fn export_name(&self) -> &str {
        let own = self.metadata.name.as_deref().unwrap_or_default();
        self.spec.export_name.as_deref().unwrap_or(own)
    }

    /// Whether the provider's objects stay when the binding or a CRD of it is deleted. Only a policy that says Delete ends them.
    pub fn keeps_copies(&self) -> bool {
        self.spec.deletion_policy != Some(DeletionPolicy::Delete)
    }
}
