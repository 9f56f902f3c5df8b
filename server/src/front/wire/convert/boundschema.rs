//! Conversion of BoundSchemas.

use bindery_api::{Conditions as _, hash, v1alpha2 as api};
use bindery_proto::v1alpha2 as proto;
use bytes::Bytes;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinitionNames, CustomResourceSubresources,
};
use kube::ResourceExt as _;
use prost::Message as _;

use crate::front::wire::convert::{condition::conditions, enums, meta};

/// The message of a schema.
pub(crate) fn bound_schema(schema: &api::BoundSchema) -> proto::BoundSchema {
    let status = schema.status.as_ref();
    proto::BoundSchema {
        metadata: Some(meta::metadata(&schema.metadata)),
        spec: Some(spec(&schema.spec)),
        status: Some(proto::BoundSchemaStatus {
            accepted_names: status.and_then(|status| status.accepted_names.as_ref()).map(names),
            stored_versions: status.map(|status| status.stored_versions.clone()).unwrap_or_default(),
            conditions: conditions(schema.conditions()),
        }),
        hash: hash::schema_hash(&schema.spec),
    }
}

/// A reference to a schema, whose hash changes with the schema.
pub(crate) fn reference(schema: &api::BoundSchema) -> proto::BoundSchemaRef {
    planned(schema.name_any(), &schema.spec)
}

/// A reference to a schema that may not exist yet.
pub(crate) fn planned(name: String, schema: &api::BoundSchemaSpec) -> proto::BoundSchemaRef {
    proto::BoundSchemaRef {
        name,
        hash: hash::schema_hash(schema),
        size_bytes: i32::try_from(spec(schema).encoded_len()).unwrap_or(i32::MAX),
    }
}

fn spec(spec: &api::BoundSchemaSpec) -> proto::BoundSchemaSpec {
    proto::BoundSchemaSpec {
        group: spec.group.clone(),
        names: Some(names(&spec.names)),
        scope: enums::scope(spec.scope),
        informer_scope: enums::informer_scope(spec.informer_scope),
        versions: spec.versions.iter().map(version).collect(),
    }
}

fn names(names: &CustomResourceDefinitionNames) -> proto::CustomResourceNames {
    proto::CustomResourceNames {
        plural: names.plural.clone(),
        singular: names.singular.clone().unwrap_or_default(),
        kind: names.kind.clone(),
        list_kind: names.list_kind.clone().unwrap_or_default(),
        short_names: names.short_names.clone().unwrap_or_default(),
        categories: names.categories.clone().unwrap_or_default(),
    }
}

fn version(version: &api::BoundSchemaVersion) -> proto::BoundSchemaVersion {
    proto::BoundSchemaVersion {
        name: version.name.clone(),
        served: version.served,
        storage: version.storage,
        deprecated: version.deprecated.unwrap_or_default(),
        deprecation_warning: version.deprecation_warning.clone().unwrap_or_default(),
        open_api_v3_schema: Bytes::from(version.json_schema_props().to_string()),
        subresources: version.subresources.as_ref().map(subresources),
        additional_printer_columns: version.additional_printer_columns.iter().map(column).collect(),
    }
}

fn subresources(subresources: &CustomResourceSubresources) -> proto::Subresources {
    proto::Subresources {
        status: subresources.status.as_ref().map(|_| proto::StatusSubresource {}),
        scale: subresources.scale.as_ref().map(|scale| proto::ScaleSubresource {
            spec_replicas_path: scale.spec_replicas_path.clone(),
            status_replicas_path: scale.status_replicas_path.clone(),
            label_selector_path: scale.label_selector_path.clone().unwrap_or_default(),
        }),
    }
}

fn column(column: &CustomResourceColumnDefinition) -> proto::PrinterColumn {
    proto::PrinterColumn {
        name: column.name.clone(),
        r#type: column.type_.clone(),
        format: column.format.clone().unwrap_or_default(),
        description: column.description.clone().unwrap_or_default(),
        priority: column.priority.unwrap_or_default(),
        json_path: column.json_path.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema(value: serde_json::Value) -> api::BoundSchemaSpec {
        api::BoundSchemaSpec {
            versions: vec![api::BoundSchemaVersion {
                name: "v1".to_owned(),
                schema: value.into(),
                ..api::BoundSchemaVersion::default()
            }],
            ..api::BoundSchemaSpec::default()
        }
    }

    #[test]
    fn both_encodings_of_a_schema_come_out_bare() {
        let bare = json!({"type": "object", "x-unknown": {"kept": true}});
        for encoding in [bare.clone(), json!({"openAPIV3Schema": bare})] {
            let message = spec(&schema(encoding));
            let text = &message.versions[0].open_api_v3_schema;
            assert_eq!(serde_json::from_slice::<serde_json::Value>(text).expect("JSON"), bare);
        }
    }

    #[test]
    fn a_reference_changes_with_the_schema() {
        let (one, two) = (
            schema(json!({"type": "object"})),
            schema(json!({"type": "object", "title": "x"})),
        );
        let (one, two) = (planned("n".to_owned(), &one), planned("n".to_owned(), &two));
        assert_ne!(one.hash, two.hash);
        assert!(one.size_bytes > 0 && two.size_bytes > one.size_bytes);
    }
}
