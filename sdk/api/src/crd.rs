//! Converts a provider's CRD to a BoundSchema, and that to the consumer's CRD.

use k8s_openapi::{
    apiextensions_apiserver::pkg::apis::apiextensions::v1::{
        CustomResourceConversion, CustomResourceDefinition, CustomResourceDefinitionSpec,
        CustomResourceDefinitionVersion, CustomResourceValidation, JSONSchemaProps,
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use serde_json::{Value, json};

use crate::{
    names,
    v1alpha2::{BoundSchemaSpec, BoundSchemaVersion, ConversionStrategy, InformerScope, Scope},
    versions::{self, Listed},
};

pub mod compat;

/// How a CRD is offered to a consumer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offer<'a> {
    /// Whether the konnector watches the provider cluster-wide or per namespace.
    pub informer_scope: InformerScope,
    /// The scope on the consumer; `None` means the CRD's own.
    pub scope: Option<Scope>,
    /// The versions to offer; empty means all served ones.
    pub versions: &'a [String],
}

/// Why a schema cannot be offered or installed.
#[derive(thiserror::Error, Debug)]
pub enum SchemaError {
    /// The resource is of the core group, which has no CRDs.
    #[error("{plural} belongs to the core group, which no CRD can extend; claim it instead of exporting it")]
    CoreGroup {
        /// The resource.
        plural: String,
    },
    /// The requested version is not served.
    #[error("{crd} does not serve version {version}; it serves {served:?}")]
    VersionNotServed {
        /// The CRD or BoundSchema.
        crd: String,
        /// The version.
        version: String,
        /// The served versions.
        served: Vec<String>,
    },
    /// No version is served.
    #[error("{crd} serves no version; set served on one of them")]
    NothingServed {
        /// The CRD or BoundSchema.
        crd: String,
    },
    /// The schema of a version is not valid.
    #[error("schema of {crd} version {version} is no OpenAPI v3 schema: {source}")]
    InvalidSchema {
        /// The CRD or BoundSchema.
        crd: String,
        /// The version.
        version: String,
        /// What is wrong with the schema.
        source: serde_json::Error,
    },
}

impl SchemaError {
    /// Returns the reason of a condition, which never changes.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::CoreGroup { .. } => "CoreGroupNotExportable",
            Self::VersionNotServed { .. } => "VersionNotServed",
            Self::NothingServed { .. } => "NoVersionServed",
            Self::InvalidSchema { .. } => "InvalidSchema",
        }
    }
}

/// Builds the spec of a BoundSchema from a CRD.
///
/// Only served versions are offered, and only one of a CRD with webhook conversion, since a consumer cannot convert.
pub fn bound_schema_spec(crd: &CustomResourceDefinition, offer: &Offer<'_>) -> Result<BoundSchemaSpec, SchemaError> {
    let source = &crd.spec;
    let name = names::custom_resource_definition(&source.names.plural, &source.group);
    let offered = offered_versions(&name, source, offer.versions)?;
    Ok(BoundSchemaSpec {
        informer_scope: offer.informer_scope,
        group: source.group.clone(),
        names: source.names.clone(),
        scope: offer.scope.unwrap_or_else(|| scope_of(source)),
        versions: offered,
        conversion: None,
    })
}

/// Builds the CRD to install on the consumer. It has no conversion, and refers to its owner, which tells it from foreign CRDs.
pub fn custom_resource_definition(
    schema: &BoundSchemaSpec,
    owner: Option<OwnerReference>,
) -> Result<CustomResourceDefinition, SchemaError> {
    if schema.group.is_empty() {
        return Err(SchemaError::CoreGroup {
            plural: schema.names.plural.clone(),
        });
    }
    let name = names::custom_resource_definition(&schema.names.plural, &schema.group);
    let converts =
        schema.conversion.as_ref().and_then(|conversion| conversion.strategy) == Some(ConversionStrategy::Webhook);
    let storage = versions::preferred(schema.versions.iter().map(listed_bound))
        .ok_or_else(|| SchemaError::NothingServed { crd: name.clone() })?;
    let installed = schema
        .versions
        .iter()
        .filter(|version| !converts || version.name == storage)
        .map(|version| installed_version(&name, version, version.name == storage))
        .collect::<Result<_, _>>()?;
    Ok(CustomResourceDefinition {
        metadata: ObjectMeta {
            name: Some(name),
            owner_references: owner.map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec: CustomResourceDefinitionSpec {
            conversion: Some(CustomResourceConversion {
                strategy: "None".to_owned(),
                webhook: None,
            }),
            group: schema.group.clone(),
            names: schema.names.clone(),
            preserve_unknown_fields: None,
            scope: schema.scope.to_string(),
            versions: installed,
        },
        status: None,
    })
}

/// Returns a version of a CRD, for the choice of one.
pub fn listed(version: &CustomResourceDefinitionVersion) -> Listed<'_> {
    Listed {
        name: &version.name,
        served: version.served,
        storage: version.storage,
    }
}

/// Returns a version of a BoundSchema, for the choice of one.
pub fn listed_bound(version: &BoundSchemaVersion) -> Listed<'_> {
    Listed {
        name: &version.name,
        served: version.served,
        storage: version.storage,
    }
}

fn scope_of(source: &CustomResourceDefinitionSpec) -> Scope {
    match source.scope.as_str() {
        "Cluster" => Scope::Cluster,
        _ => Scope::Namespaced,
    }
}

fn offered_versions(
    crd: &str,
    source: &CustomResourceDefinitionSpec,
    asked: &[String],
) -> Result<Vec<BoundSchemaVersion>, SchemaError> {
    let served: Vec<_> = source.versions.iter().filter(|version| version.served).collect();
    if let Some(missing) = asked
        .iter()
        .find(|name| !served.iter().any(|version| version.name == **name))
    {
        return Err(SchemaError::VersionNotServed {
            crd: crd.to_owned(),
            version: missing.clone(),
            served: served.iter().map(|version| version.name.clone()).collect(),
        });
    }
    let chosen: Vec<_> = served
        .into_iter()
        .filter(|version| asked.is_empty() || asked.contains(&version.name))
        .collect();
    let storage = versions::preferred(chosen.iter().map(|version| listed(version)))
        .ok_or_else(|| SchemaError::NothingServed { crd: crd.to_owned() })?;
    let converts = source
        .conversion
        .as_ref()
        .is_some_and(|conversion| conversion.strategy == "Webhook");
    chosen
        .iter()
        .filter(|version| !converts || version.name == storage)
        .map(|version| offered_version(crd, version, version.name == storage))
        .collect()
}

fn offered_version(
    crd: &str,
    version: &CustomResourceDefinitionVersion,
    storage: bool,
) -> Result<BoundSchemaVersion, SchemaError> {
    Ok(BoundSchemaVersion {
        name: version.name.clone(),
        served: true,
        storage,
        deprecated: version.deprecated,
        deprecation_warning: version.deprecation_warning.clone(),
        schema: wrapped_schema(version)
            .map_err(|source| SchemaError::InvalidSchema {
                crd: crd.to_owned(),
                version: version.name.clone(),
                source,
            })?
            .into(),
        subresources: version.subresources.clone(),
        additional_printer_columns: version.additional_printer_columns.clone().unwrap_or_default(),
    })
}

/// Returns the schema as `{"openAPIV3Schema": ...}`, the encoding that every konnector reads.
fn wrapped_schema(version: &CustomResourceDefinitionVersion) -> serde_json::Result<Value> {
    let schema = version
        .schema
        .as_ref()
        .and_then(|validation| validation.open_api_v3_schema.as_ref());
    let schema = match schema {
        Some(schema) => serde_json::to_value(schema)?,
        None => json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true }),
    };
    Ok(json!({ "openAPIV3Schema": schema }))
}

fn installed_version(
    crd: &str,
    version: &BoundSchemaVersion,
    storage: bool,
) -> Result<CustomResourceDefinitionVersion, SchemaError> {
    let schema: JSONSchemaProps =
        serde_json::from_value(version.json_schema_props().clone()).map_err(|source| SchemaError::InvalidSchema {
            crd: crd.to_owned(),
            version: version.name.clone(),
            source,
        })?;
    let columns = &version.additional_printer_columns;
    Ok(CustomResourceDefinitionVersion {
        additional_printer_columns: (!columns.is_empty()).then(|| columns.clone()),
        deprecated: version.deprecated,
        deprecation_warning: version.deprecation_warning.clone(),
        name: version.name.clone(),
        schema: Some(CustomResourceValidation {
            open_api_v3_schema: Some(schema),
        }),
        selectable_fields: None,
        served: version.served,
        storage,
        subresources: version.subresources.clone(),
    })
}

#[cfg(test)]
mod tests;
