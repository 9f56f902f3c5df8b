//! The CRDs agree with the wire: `tests/wire/<plural>.json` holds what others rely on, field by field.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::*;

/// Fields that the wire does not have. Each is optional; only what an added object cannot do without is required in it.
const ADDITIONS: [(&str, &str); 48] = [
    ("apiservicebindingbundles", "spec.acceptedClaims"),
    ("apiservicebindingbundles", "spec.backoffMultiplier"),
    ("apiservicebindingbundles", "spec.bindingNamePrefix"),
    ("apiservicebindingbundles", "spec.claimNamespaces"),
    ("apiservicebindingbundles", "spec.claimSecretTypes"),
    ("apiservicebindingbundles", "spec.deletionPolicy"),
    ("apiservicebindingbundles", "spec.maxRetries"),
    ("apiservicebindingbundles", "spec.pollingInterval"),
    ("apiservicebindingbundles", "spec.removedExports"),
    ("apiservicebindingbundles", "spec.selector"),
    ("apiservicebindingbundles", "status.boundServices"),
    ("apiservicebindingbundles", "status.conditions[].lastProbeTime"),
    ("apiservicebindingbundles", "status.contractUID"),
    ("apiservicebindingbundles", "status.discoveredServices"),
    ("apiservicebindingbundles", "status.lastSyncTime"),
    ("apiservicebindingbundles", "status.observedGeneration"),
    ("apiservicebindingbundles", "status.providerNamespace"),
    ("apiservicebindingbundles", "status.providerPrettyName"),
    ("apiservicebindings", "spec.claimNamespaces"),
    ("apiservicebindings", "spec.claimSecretTypes"),
    ("apiservicebindings", "spec.deletionPolicy"),
    ("apiservicebindings", "spec.exportName"),
    ("apiservicebindings", "spec.rejectedPermissionClaims"),
    ("apiservicebindings", "status.claimNamespaces"),
    ("apiservicebindings", "status.conditions[].lastProbeTime"),
    ("apiservicebindings", "status.contractUID"),
    ("apiservicebindings", "status.providerNamespace"),
    ("apiservicebindings", "status.retained"),
    ("apiserviceexportrequests", "status.conditions[].lastProbeTime"),
    ("apiserviceexports", "spec.clusterScopedNamespace"),
    ("apiserviceexports", "spec.conflictPolicy"),
    ("apiserviceexports", "spec.retention"),
    ("apiserviceexports", "status.conditions[].lastProbeTime"),
    ("apiserviceexporttemplates", "spec.clusterScopedNamespace"),
    ("apiserviceexporttemplates", "spec.conflictPolicy"),
    ("apiserviceexporttemplates", "spec.isolation"),
    ("apiserviceexporttemplates", "spec.retention"),
    ("apiserviceexporttemplates", "status.conditions[].lastProbeTime"),
    ("apiservicenamespaces", "status.conditions"),
    ("apiservicenamespaces", "status.sharedNamespace"),
    ("bindableresourcesrequests", "spec.compatibility"),
    ("boundschemas", "status.conditions[].lastProbeTime"),
    ("clusterbindings", "status.conditions[].lastProbeTime"),
    ("clusterbindings", "status.consumerClusterUID"),
    ("clusterbindings", "status.credentialExpirationTime"),
    ("clusterbindings", "status.sync"),
    ("clusters", "status.conditions[].lastProbeTime"),
    ("collections", "status.conditions[].lastProbeTime"),
];

/// What the wire says of one kind.
#[derive(Deserialize, Debug)]
struct Wire {
    names: Value,
    scope: String,
    /// `<name> <type> <path> [<priority>]`, with `_` for a space in the name.
    columns: Vec<String>,
    /// What is said of each field; `[]` are a list's items, `{}` a map's values, and `.` is the object itself.
    fields: BTreeMap<String, Value>,
}

fn wire(plural: &str) -> Wire {
    let path = format!("{}/tests/wire/{plural}.json", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// All facts of a schema, in the form of [`Wire::fields`].
fn facts(crd: &CustomResourceDefinition) -> BTreeMap<String, Value> {
    let schema = crd.spec.versions[0]
        .schema
        .as_ref()
        .unwrap()
        .open_api_v3_schema
        .as_ref()
        .unwrap();
    let mut facts = BTreeMap::new();
    collect(&serde_json::to_value(schema).unwrap(), "", false, &mut facts);
    facts
}

fn collect(schema: &Value, path: &str, required: bool, facts: &mut BTreeMap<String, Value>) {
    let name = if path.is_empty() { "." } else { path };
    facts.insert(name.to_owned(), fact(schema, required));
    let needed = schema["required"].as_array().cloned().unwrap_or_default();
    for (field, inner) in schema["properties"].as_object().into_iter().flatten() {
        let below = if path.is_empty() {
            field.clone()
        } else {
            format!("{path}.{field}")
        };
        collect(inner, &below, needed.contains(&json!(field)), facts);
    }
    for (keyword, mark) in [("items", "[]"), ("additionalProperties", "{}")] {
        if let Some(inner) = schema.get(keyword) {
            collect(inner, &format!("{path}{mark}"), false, facts);
        }
    }
}

fn fact(schema: &Value, required: bool) -> Value {
    let mut fact = Map::new();
    for (keyword, value) in schema.as_object().unwrap() {
        let name = match keyword.as_str() {
            "description" | "properties" | "required" | "items" | "additionalProperties" => continue,
            "x-kubernetes-list-type" => "listType",
            "x-kubernetes-list-map-keys" => "listMapKeys",
            "x-kubernetes-map-type" => "mapType",
            "x-kubernetes-preserve-unknown-fields" => "preserve",
            "x-kubernetes-validations" => {
                let [rule] = value.as_array().unwrap().as_slice() else {
                    panic!("more than one rule: {value}")
                };
                fact.insert("rule".to_owned(), rule["rule"].clone());
                fact.insert("message".to_owned(), rule["message"].clone());
                continue;
            }
            other => other,
        };
        fact.insert(name.to_owned(), value.clone());
    }
    if required {
        fact.insert("required".to_owned(), true.into());
    }
    fact.into()
}

fn is_addition(plural: &str, path: &str) -> bool {
    ADDITIONS.iter().any(|(kind, field)| {
        // What is below a field that was added belongs to it.
        *kind == plural
            && path
                .strip_prefix(field)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['[', '.', '{']))
    })
}

fn columns(crd: &CustomResourceDefinition) -> Vec<String> {
    let columns = crd.spec.versions[0].additional_printer_columns.iter().flatten();
    columns
        .map(|column| {
            let plain = format!(
                "{} {} {}",
                column.name.replace(' ', "_"),
                column.type_,
                column.json_path
            );
            match column.priority {
                Some(priority) => format!("{plain} {priority}"),
                None => plain,
            }
        })
        .collect()
}

#[test]
fn every_kind_of_the_wire_is_there() {
    let folder = format!("{}/tests/wire", env!("CARGO_MANIFEST_DIR"));
    let mut on_wire: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            entry
                .unwrap()
                .file_name()
                .into_string()
                .unwrap()
                .replace(".json", ".kube-bind.io")
        })
        .collect();
    on_wire.sort();
    let ours: Vec<_> = all().into_iter().filter_map(|crd| crd.metadata.name).collect();
    assert_eq!(ours, on_wire);
}

#[test]
fn names_scopes_and_columns_are_those_of_the_wire() {
    for crd in all() {
        let wire = wire(&crd.spec.names.plural);
        let mut names = serde_json::to_value(&crd.spec.names).unwrap();
        let short_names = names.as_object_mut().unwrap().entry("shortNames");
        short_names.or_insert_with(|| json!([]));
        assert_eq!(names, wire.names);
        assert_eq!(crd.spec.scope, wire.scope, "{}", crd.spec.names.kind);
        assert_eq!(columns(&crd), wire.columns, "{}", crd.spec.names.kind);
        assert!(crd.spec.conversion.is_none(), "no strategy means None");
    }
}

#[test]
fn versions_are_those_of_the_wire() {
    for crd in all() {
        let [version] = crd.spec.versions.as_slice() else {
            panic!("{}: one version", crd.spec.names.kind)
        };
        assert_eq!(version.name, "v1alpha2");
        assert!(version.served && version.storage);
        assert_eq!(
            serde_json::to_value(&version.subresources).unwrap(),
            json!({ "status": {} })
        );
    }
}

#[test]
fn every_field_of_the_wire_is_there_as_it_is_there() {
    for crd in all() {
        let plural = &crd.spec.names.plural;
        let ours = facts(&crd);
        for (path, fact) in wire(plural).fields {
            assert_eq!(ours.get(&path), Some(&fact), "{plural} {path}");
        }
    }
}

#[test]
fn what_the_wire_has_not_is_a_known_addition_and_optional() {
    let mut seen = Vec::new();
    for crd in all() {
        let plural = crd.spec.names.plural.as_str();
        let wire = wire(plural);
        for (path, fact) in facts(&crd)
            .into_iter()
            .filter(|(path, _)| !wire.fields.contains_key(path))
        {
            assert!(is_addition(plural, &path), "{plural} {path} is on no list");
            let parent = path.rsplit_once('.').map_or("", |(parent, _)| parent);
            let may_be_required = is_addition(plural, parent) || path.contains("[]");
            assert!(
                fact.get("required").is_none() || may_be_required,
                "{plural} {path} must be optional"
            );
            assert!(
                fact.get("default").is_none() || path.contains("[]"),
                "{plural} {path} must mean nothing where it is absent"
            );
            seen.push((plural.to_owned(), path));
        }
    }
    for (plural, path) in ADDITIONS {
        assert!(
            seen.contains(&(plural.to_owned(), path.to_owned())),
            "{plural} {path} is gone"
        );
    }
}

/// What an API server takes: types everywhere, and none of the keywords that a structural schema may not have.
#[test]
fn schemas_are_structural() {
    const FORBIDDEN: [&str; 8] = [
        "$ref",
        "anyOf",
        "oneOf",
        "allOf",
        "not",
        "nullable",
        "title",
        "uniqueItems",
    ];
    for crd in all() {
        for (path, fact) in facts(&crd) {
            let place = format!("{} {path}", crd.spec.names.plural);
            assert!(fact["type"].is_string(), "{place} has no type");
            for keyword in FORBIDDEN {
                assert!(fact.get(keyword).is_none(), "{place} has {keyword}");
            }
        }
    }
}

#[test]
fn what_people_read_is_described() {
    for crd in all() {
        let schema = crd.spec.versions[0]
            .schema
            .as_ref()
            .unwrap()
            .open_api_v3_schema
            .as_ref()
            .unwrap();
        assert!(
            schema
                .description
                .as_ref()
                .is_some_and(|text| !text.starts_with("Auto-generated"))
        );
        let properties = schema.properties.as_ref().unwrap();
        for part in ["spec", "status"] {
            for (field, inner) in properties[part].properties.iter().flatten() {
                let text = inner.description.as_deref().unwrap_or_default();
                assert!(
                    !text.is_empty() && !text.contains('\n'),
                    "{} {part}.{field}",
                    crd.spec.names.plural
                );
            }
        }
    }
}
