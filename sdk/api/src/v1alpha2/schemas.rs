//! JSON schemas that the derived ones do not reach: free-form objects, and upstream types with their list and map types.

use k8s_openapi::{
    apiextensions_apiserver::pkg::apis::apiextensions::v1::{
        CustomResourceColumnDefinition, CustomResourceDefinitionNames, CustomResourceSubresources,
    },
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::Value;

const LIST_TYPE: &str = "x-kubernetes-list-type";
const MAP_TYPE: &str = "x-kubernetes-map-type";

/// A label selector, replaced as a whole by server-side apply.
pub(super) fn label_selector(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = generator.subschema_for::<LabelSelector>();
    schema.insert(MAP_TYPE.into(), "atomic".into());
    mark(&mut schema, "/properties/matchExpressions", LIST_TYPE, "atomic");
    mark(
        &mut schema,
        "/properties/matchExpressions/items/properties/values",
        LIST_TYPE,
        "atomic",
    );
    schema
}

/// The names of a custom resource.
pub(super) fn names(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = generator.subschema_for::<CustomResourceDefinitionNames>();
    mark(&mut schema, "/properties/categories", LIST_TYPE, "atomic");
    mark(&mut schema, "/properties/shortNames", LIST_TYPE, "atomic");
    schema
}

/// The subresources of a version.
pub(super) fn subresources(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<CustomResourceSubresources>()
}

/// The columns of a version, one per name.
pub(super) fn printer_columns(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": generator.subschema_for::<CustomResourceColumnDefinition>(),
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
    })
}

/// An object of any content.
pub(super) fn free_form(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

/// An object of any content, replaced as a whole by server-side apply.
pub(super) fn free_form_atomic(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = free_form(generator);
    schema.insert(MAP_TYPE.into(), "atomic".into());
    schema
}

/// A whole number without a stated width.
pub(super) fn integer(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "integer" })
}

fn mark(schema: &mut Schema, pointer: &str, key: &str, value: &str) {
    if let Some(Value::Object(part)) = schema.pointer_mut(pointer) {
        part.insert(key.to_owned(), value.into());
    }
}
