//! Turns a derived schema into a structural one, as an API server requires and kube-bind has it.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSON, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use serde_json::json;

/// Kinds whose spec is optional in kube-bind.
const SPEC_OPTIONAL: [&str; 4] = [
    "APIServiceBinding",
    "APIServiceBindingBundle",
    "APIServiceNamespace",
    "BoundSchema",
];
const API_VERSION: &str = "The versioned schema of this representation of an object.";
const KIND: &str = "The REST resource this object represents.";

/// Adds what the derive macro leaves out, and removes what it should not add.
pub(super) fn finish(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    crd.spec.names.list_kind = Some(format!("{}List", crd.spec.names.kind));
    let spec_optional = SPEC_OPTIONAL.contains(&crd.spec.names.kind.as_str());
    let schemas = crd
        .spec
        .versions
        .iter_mut()
        .filter_map(|version| version.schema.as_mut()?.open_api_v3_schema.as_mut());
    for schema in schemas {
        strip(schema);
        finish_root(schema, spec_optional);
    }
    crd
}

fn finish_root(root: &mut JSONSchemaProps, spec_optional: bool) {
    root.title = None;
    if spec_optional {
        root.required = None;
    }
    let properties = root.properties.get_or_insert_default();
    properties.insert("apiVersion".to_owned(), typed("string", Some(API_VERSION)));
    properties.insert("kind".to_owned(), typed("string", Some(KIND)));
    properties.insert("metadata".to_owned(), typed("object", None));
    if let Some(status) = properties.get_mut("status") {
        // A phase is to be seen from the first moment, and defaults reach only into objects that are there.
        let phase = status
            .properties
            .as_ref()
            .and_then(|properties| properties.get("phase"));
        let has_default = phase.is_some_and(|phase| phase.default.is_some());
        status.default = has_default.then(|| JSON(json!({})));
    }
}

fn typed(type_: &str, description: Option<&str>) -> JSONSchemaProps {
    JSONSchemaProps {
        type_: Some(type_.to_owned()),
        description: description.map(ToOwned::to_owned),
        ..JSONSchemaProps::default()
    }
}

/// Removes `nullable`, since absent fields are never written as null, and line breaks of the source code in descriptions.
fn strip(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    schema.description = schema.description.take().map(|text| text.replace('\n', " "));
    for property in schema
        .properties
        .iter_mut()
        .flat_map(|properties| properties.values_mut())
    {
        strip(property);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        strip(items);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        strip(values);
    }
}
