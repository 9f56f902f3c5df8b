use bindery_api::v1alpha2::{ReferencePath, Selector};
use serde_json::json;

use super::*;

/// A claim on a core resource, by labels, or on every object without any.
pub(crate) fn claim(resource: &str, label: Option<(&str, &str)>) -> PermissionClaim {
    let labels = label.map(|(key, value)| (key.to_owned(), value.to_owned()));
    PermissionClaim {
        group_resource: GroupResource::new("", resource),
        selector: Selector {
            label_selector: Some(LabelSelector {
                match_labels: labels.map(|label| [label].into()),
                match_expressions: None,
            }),
            ..Selector::default()
        },
    }
}

fn reference(namespace: Option<&str>) -> SelectorReference {
    SelectorReference {
        group_resource: GroupResource::new("wildwest.dev", "cowboys"),
        versions: Vec::new(),
        json_path: ReferencePath {
            name: "spec.secretRefs.#.name".to_owned(),
            namespace: namespace.map(str::to_owned),
        },
    }
}

#[track_caller]
fn check(selector: serde_json::Value, expect: &str) {
    let claim = PermissionClaim {
        group_resource: GroupResource::new("", "secrets"),
        selector: serde_json::from_value(selector).unwrap(),
    };
    assert_eq!(selection(&claim), expect);
}

#[test]
fn a_selector_is_said_in_words() {
    check(json!({}), "none, for its selector is empty");
    check(json!({ "labelSelector": {} }), "EVERY Secret");
    check(
        json!({ "labelSelector": { "matchLabels": {}, "matchExpressions": [] }, "namedResources": [{ "name": "a" }] }),
        "EVERY Secret",
    );
    check(
        json!({ "labelSelector": { "matchLabels": { "app": "cowboy" } } }),
        "those labelled app=cowboy",
    );
    check(
        json!({ "labelSelector": { "matchExpressions": [
            { "key": "a", "operator": "In", "values": ["x", "y"] }, { "key": "b", "operator": "NotIn", "values": ["z"] },
            { "key": "c", "operator": "Exists" }, { "key": "d", "operator": "DoesNotExist" } ] } }),
        "those labelled a in (x,y), b not in (z), c, not d",
    );
    check(
        json!({ "namedResources": [{ "name": "a", "namespace": "west" }, { "name": "b" }] }),
        "those named west/a, b in any namespace",
    );
}

#[test]
fn a_reference_says_where_it_looks() {
    let claim = PermissionClaim {
        group_resource: GroupResource::new("", "secrets"),
        selector: Selector {
            references: vec![reference(None), reference(Some("spec.secretRefs.#.namespace"))],
            ..Selector::default()
        },
    };
    assert_eq!(
        selection(&claim),
        "those that an object of cowboys.wildwest.dev names at spec.secretRefs.#.name, in the same namespace, or in any if it \
         has none; those that an object of cowboys.wildwest.dev names at spec.secretRefs.#.name, in the namespace that it names \
         at spec.secretRefs.#.namespace"
    );
}

#[test]
fn everything_is_called_everything() {
    let lines = explained(&claim("secrets", None));
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[0], "secrets: EVERY Secret of this cluster");
    assert!(lines[1].contains("copied to the provider") && lines[1].contains("copied here"));
    let mut other = claim("x", None);
    other.group_resource.group = "example.com".to_owned();
    assert_eq!(selection(&other), "EVERY object of x.example.com");
}

#[test]
fn each_way_of_a_selector_has_its_line() {
    assert_eq!(
        explained(&claim("secrets", Some(("a", "b"))))[0],
        "secrets: those labelled a=b"
    );
    let mut several = claim("secrets", Some(("a", "b")));
    several.selector.named_resources = vec![NamedResource {
        name: "c".to_owned(),
        namespace: None,
    }];
    assert_eq!(
        explained(&several)[..3],
        ["secrets:", "  those labelled a=b", "  those named c in any namespace"]
    );
}
