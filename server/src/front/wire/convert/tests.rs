//! Each field of a CRD is in its message, or in a list of those that are left out on purpose.

use std::collections::{BTreeMap, BTreeSet};

use bindery_api::v1alpha2 as api;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray,
};
use kube::CustomResourceExt as _;
use prost::Message as _;
use prost_types::{DescriptorProto, FileDescriptorSet, field_descriptor_proto::Type};

/// Fields of CRDs that no message has, and why.
const OMITTED: &[(&str, &str)] = &[
    (
        "APIServiceExport.spec.clusterScopedIsolation",
        "neither read nor written, a relic of the wire",
    ),
    ("APIServiceExport.status.conditions.lastProbeTime", PROBED),
    ("APIServiceExportTemplate.status.conditions.lastProbeTime", PROBED),
    ("BoundSchema.spec.conversion", "a consumer converts nothing"),
    ("BoundSchema.status.conditions.lastProbeTime", PROBED),
    ("BoundSchema.status.instantiations", "part of the wire that nobody sets"),
    ("Collection.status.conditions.lastProbeTime", PROBED),
];
const PROBED: &str = "set where a konnector asks a provider, on the consumer alone";

/// Fields that a message has under another name, or as something else.
const RENAMED: &[(&str, &str)] = &[("schema", "open_api_v3_schema"), ("for", "duration")];

struct Messages(BTreeMap<String, DescriptorProto>);

impl Messages {
    fn read() -> Self {
        let set = FileDescriptorSet::decode(bindery_proto::FILE_DESCRIPTOR_SET).expect("descriptors");
        let ours = set
            .file
            .into_iter()
            .filter(|file| file.package() == "kubebind.v1alpha2");
        let messages = ours.flat_map(|file| file.message_type);
        Self(
            messages
                .map(|message| (format!(".kubebind.v1alpha2.{}", message.name()), message))
                .collect(),
        )
    }
}

fn snake(camel: &str) -> String {
    let mut text = String::new();
    for letter in camel.chars() {
        if letter.is_ascii_uppercase() {
            text.push('_');
        }
        text.push(letter.to_ascii_lowercase());
    }
    text
}

/// The fields of the schema that the message lacks.
fn missing(
    messages: &Messages,
    schema: &JSONSchemaProps,
    message: &DescriptorProto,
    path: &str,
    found: &mut BTreeSet<String>,
) {
    for (name, property) in schema.properties.iter().flatten() {
        let path = format!("{path}.{name}");
        let renamed = RENAMED
            .iter()
            .find(|(crd, _)| crd == name)
            .map(|(_, proto)| (*proto).to_owned());
        let wanted = renamed.unwrap_or_else(|| snake(name));
        let Some(field) = message.field.iter().find(|field| field.name() == wanted) else {
            found.insert(path);
            continue;
        };
        let inner = match &property.items {
            Some(JSONSchemaPropsOrArray::Schema(item)) => item,
            _ => property,
        };
        if field.r#type() == Type::Message
            && let Some(message) = messages.0.get(field.type_name())
        {
            missing(messages, inner, message, &path, found);
        }
    }
}

fn of(messages: &Messages, crd: &CustomResourceDefinition, message: &str, found: &mut BTreeSet<String>) {
    let schema = crd.spec.versions[0]
        .schema
        .as_ref()
        .and_then(|schema| schema.open_api_v3_schema.clone())
        .expect("a schema");
    let message = &messages.0[&format!(".kubebind.v1alpha2.{message}")];
    let properties = schema.properties.expect("properties");
    for part in ["spec", "status"] {
        let field = message
            .field
            .iter()
            .find(|field| field.name() == part)
            .expect("spec and status");
        let path = format!("{}.{part}", crd.spec.names.kind);
        missing(
            messages,
            &properties[part],
            &messages.0[field.type_name()],
            &path,
            found,
        );
    }
}

#[test]
fn every_field_of_a_crd_is_in_its_message_or_left_out_on_purpose() {
    let messages = Messages::read();
    let mut found = BTreeSet::new();
    of(&messages, &api::APIServiceExport::crd(), "Export", &mut found);
    of(&messages, &api::APIServiceExportTemplate::crd(), "Template", &mut found);
    of(
        &messages,
        &api::BindableResourcesRequest::crd(),
        "BindableResourcesRequest",
        &mut found,
    );
    of(&messages, &api::BoundSchema::crd(), "BoundSchema", &mut found);
    of(&messages, &api::Collection::crd(), "Collection", &mut found);
    let omitted: BTreeSet<_> = OMITTED.iter().map(|(path, _)| (*path).to_owned()).collect();
    assert_eq!(found, omitted);
}
