//! BoundSchema: the schema of a resource as the provider exports it.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinitionNames, CustomResourceSubresources,
};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{InformerScope, Scope, SharedValue, schemas};
use crate::Condition;

/// What the konnector needs to make the CRD on the consumer.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "kube-bind.io",
    version = "v1alpha2",
    kind = "BoundSchema",
    plural = "boundschemas",
    shortname = "bs",
    category = "kube-bindings",
    namespaced,
    status = "BoundSchemaStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "The schema of an exported resource, named <plural>.<group>.",
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase", from = "Option<ReadSpec>")]
#[schemars(!from)]
pub struct BoundSchemaSpec {
    /// Whether the konnector watches the provider cluster-wide or per namespace.
    pub informer_scope: InformerScope,
    /// The API group of the resource.
    pub group: String,
    /// The names of the resource.
    #[schemars(schema_with = "schemas::names")]
    pub names: CustomResourceDefinitionNames,
    /// The scope of the resource as the consumer sees it.
    pub scope: Scope,
    /// The versions of the resource.
    #[schemars(length(min = 1))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub versions: Vec<BoundSchemaVersion>,
    /// How the provider converts between versions; a consumer converts nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversion: Option<BoundSchemaConversion>,
}

/// One version of the resource.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct BoundSchemaVersion {
    /// The version's name, such as v1beta1.
    #[schemars(length(min = 1), regex(pattern = "^v[1-9][0-9]*([a-z]+[1-9][0-9]*)?$"))]
    pub name: String,
    /// Whether it is served.
    #[schemars(extend("default" = true))]
    pub served: bool,
    /// Whether objects are stored in it; true for one version.
    pub storage: bool,
    /// Whether the version is deprecated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deprecated: Option<bool>,
    /// What to tell users of a deprecated version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deprecation_warning: Option<String>,
    /// The structural schema, either bare or below openAPIV3Schema.
    #[schemars(schema_with = "schemas::free_form_atomic")]
    pub schema: SharedValue,
    /// The subresources of the version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::subresources")]
    pub subresources: Option<CustomResourceSubresources>,
    /// The columns kubectl shows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schemas::printer_columns")]
    pub additional_printer_columns: Vec<CustomResourceColumnDefinition>,
}

/// How the provider converts between versions.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[x_kube(validation = Rule::new(
    "(self.strategy == 'None' && !has(self.webhook))  || (self.strategy == 'Webhook' && has(self.webhook))",
).message("Webhook must be specified if strategy=Webhook"))]
pub struct BoundSchemaConversion {
    /// None or Webhook.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "ConversionStrategy")]
    pub strategy: Option<ConversionStrategy>,
    /// The webhook, which a konnector never installs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<WebhookConversion>,
}

/// The way a CRD converts between its versions.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ConversionStrategy {
    /// Only the apiVersion changes.
    #[default]
    None,
    /// A webhook converts.
    Webhook,
}

/// A conversion webhook of the provider.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct WebhookConversion {
    /// Where it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_config: Option<WebhookClientConfig>,
    /// The review versions it understands.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub conversion_review_versions: Vec<String>,
}

/// Where a conversion webhook is.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct WebhookClientConfig {
    /// Its URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "uri"))]
    pub url: Option<String>,
    /// The CA it is verified with, PEM in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "byte"))]
    pub ca_bundle: Option<String>,
}

/// What the consumer's CRD says.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct BoundSchemaStatus {
    /// The names that the consumer's API server accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::names")]
    pub accepted_names: Option<CustomResourceDefinitionNames>,
    /// The versions that were stored on the consumer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stored_versions: Vec<String>,
    /// Part of the wire; nobody sets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::integer")]
    pub instantiations: Option<i64>,
    /// What is well and what is not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

impl BoundSchemaVersion {
    /// The bare schema from either encoding: the content of `openAPIV3Schema` if that is there, else the whole.
    pub fn json_schema_props(&self) -> &Value {
        match self.schema.get("openAPIV3Schema") {
            Some(inner) if inner.is_object() => inner,
            _ => &self.schema,
        }
    }

    /// Whether the version has a status subresource.
    pub fn has_status(&self) -> bool {
        self.subresources
            .as_ref()
            .is_some_and(|subresources| subresources.status.is_some())
    }
}

/// The spec as it is read: the wire does not require it, and one object without it must not stop the reading of others.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ReadSpec {
    informer_scope: InformerScope,
    group: String,
    names: CustomResourceDefinitionNames,
    scope: Scope,
    versions: Vec<BoundSchemaVersion>,
    conversion: Option<BoundSchemaConversion>,
}

impl From<Option<ReadSpec>> for BoundSchemaSpec {
    fn from(read: Option<ReadSpec>) -> Self {
        let read = read.unwrap_or_default();
        Self {
            informer_scope: read.informer_scope,
            group: read.group,
            names: read.names,
            scope: read.scope,
            versions: read.versions,
            conversion: read.conversion,
        }
    }
}
