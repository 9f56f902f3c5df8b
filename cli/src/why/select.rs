//! Which part of a claim selects an object.

use std::collections::BTreeMap;

use bindery_api::v1alpha2::{NamedResource, PermissionClaim, ReferencePath};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use kube::{ResourceExt as _, api::DynamicObject};
use serde_json::Value;

/// A bound object that names a claimed one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Referrer {
    /// Its resource and name, for people.
    pub(crate) name: String,
}

/// By what a claim selects an object, apart from references, in words; none if it does not.
pub(crate) fn reason(
    claim: &PermissionClaim,
    (namespace, name): (&str, &str),
    labels: &BTreeMap<String, String>,
) -> Option<String> {
    let selector = &claim.selector;
    if selector.selects_all() {
        return Some("it selects every one".to_owned());
    }
    if selector
        .label_selector
        .as_ref()
        .is_some_and(|selector| admits(selector, labels))
    {
        return Some("by its labels".to_owned());
    }
    let mut named = selector.named_resources.iter();
    named
        .any(|named| is_named(named, namespace, name))
        .then(|| "by its name".to_owned())
}

/// That an object is selected because another names it, in words.
pub(crate) fn named_by(referrers: &[Referrer]) -> Option<String> {
    let referrer = referrers.first()?;
    Some(format!("because {} names it", referrer.name))
}

/// The objects that name an object at a path. `home` is the namespace that a cluster-scoped one means without a path for it.
pub(crate) fn referrers(
    path: &ReferencePath,
    resource: &str,
    objects: &[DynamicObject],
    (namespace, name): (&str, &str),
    home: Option<&str>,
) -> Vec<Referrer> {
    let mut found = Vec::new();
    for object in objects {
        let own = object.metadata.namespace.as_deref().or(home);
        let names = walk(&object.data, &path.name);
        let spaces = path.namespace.as_deref().filter(|path| !path.is_empty());
        // As the konnector does: no namespace is taken from what the provider writes.
        let spaces = spaces.filter(|path| path.split('.').next() != Some("status"));
        let spaces = spaces.map(|path| walk(&object.data, path)).unwrap_or_default();
        let is_meant = |(at, found): &(Vec<usize>, &str)| {
            let beside = spaces.iter().find(|(other, _)| belong_together(at, other));
            let meant = beside.map(|(_, namespace)| *namespace).or(own);
            *found == name && meant.is_none_or(|meant| meant == namespace)
        };
        if names.iter().any(is_meant) {
            let key = match &object.metadata.namespace {
                Some(namespace) => format!("{namespace}/{}", object.name_any()),
                None => object.name_any(),
            };
            found.push(Referrer {
                name: format!("{resource} {key}"),
            });
        }
    }
    found
}

/// All texts at a path, each with the positions in the lists on its way.
fn walk<'a>(root: &'a Value, path: &str) -> Vec<(Vec<usize>, &'a str)> {
    let mut places = vec![(Vec::new(), root)];
    for part in path.split('.') {
        let step = |(at, value): (Vec<usize>, &'a Value)| -> Vec<(Vec<usize>, &'a Value)> {
            match (part, value) {
                ("#", Value::Array(items)) => {
                    let below = |(index, item)| ([at.as_slice(), &[index]].concat(), item);
                    items.iter().enumerate().map(below).collect()
                }
                (name, Value::Object(fields)) => fields.get(name).map(|value| (at, value)).into_iter().collect(),
                _ => Vec::new(),
            }
        };
        places = places.into_iter().flat_map(step).collect();
    }
    let text = |(at, value): (Vec<usize>, &'a Value)| Some((at, value.as_str().filter(|text| !text.is_empty())?));
    places.into_iter().filter_map(text).collect()
}

/// Whether two values stand in the same element of every list that both pass.
fn belong_together(one: &[usize], other: &[usize]) -> bool {
    one.iter().zip(other).all(|(one, other)| one == other)
}

fn is_named(named: &NamedResource, namespace: &str, name: &str) -> bool {
    let meant = named.namespace.as_deref().filter(|meant| !meant.is_empty());
    named.name == name && meant.is_none_or(|meant| meant == namespace)
}

fn admits(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let mut equal = selector.match_labels.iter().flatten();
    let mut expressions = selector.match_expressions.iter().flatten();
    equal.all(|(key, value)| labels.get(key) == Some(value)) && expressions.all(|wanted| holds(wanted, labels))
}

fn holds(wanted: &LabelSelectorRequirement, labels: &BTreeMap<String, String>) -> bool {
    let value = labels.get(&wanted.key);
    let listed = |value: &String| wanted.values.iter().flatten().any(|listed| listed == value);
    match wanted.operator.as_str() {
        "In" => value.is_some_and(listed),
        "NotIn" => !value.is_some_and(listed),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        // What nobody understands selects nothing.
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn claim(selector: &Value) -> PermissionClaim {
        serde_json::from_value(json!({ "resource": "secrets", "selector": selector })).unwrap()
    }

    #[track_caller]
    fn check(selector: &Value, expect: Option<&str>) {
        let labels = [("app".to_owned(), "cowboy".to_owned())].into();
        let found = reason(&claim(selector), ("west", "permit"), &labels);
        assert_eq!(found.as_deref(), expect);
    }

    #[test]
    fn any_part_of_a_selector_selects() {
        let expression = |operator: &str, values: Value| json!({ "labelSelector": { "matchExpressions": [{ "key": "app", "operator": operator, "values": values }] } });
        check(&json!({}), None);
        check(&json!({ "labelSelector": {} }), Some("it selects every one"));
        check(
            &json!({ "labelSelector": { "matchLabels": { "app": "cowboy" } } }),
            Some("by its labels"),
        );
        check(&json!({ "labelSelector": { "matchLabels": { "app": "x" } } }), None);
        check(&expression("In", json!(["cowboy"])), Some("by its labels"));
        check(&expression("NotIn", json!(["cowboy"])), None);
        check(&expression("Exists", json!([])), Some("by its labels"));
        check(&expression("DoesNotExist", json!([])), None);
        check(&expression("Like", json!(["cowboy"])), None);
        check(
            &json!({ "namedResources": [{ "name": "permit" }] }),
            Some("by its name"),
        );
        check(
            &json!({ "namedResources": [{ "name": "permit", "namespace": "east" }] }),
            None,
        );
        check(
            &json!({ "labelSelector": { "matchLabels": { "app": "x" } },
                "namedResources": [{ "name": "permit", "namespace": "west" }] }),
            Some("by its name"),
        );
    }

    fn object(value: Value) -> DynamicObject {
        serde_json::from_value(value).unwrap()
    }

    /// Whether the object names Secret `west/permit`.
    #[track_caller]
    fn check_named(
        data: Value,
        namespace: Option<&str>,
        paths: (&str, Option<&str>),
        home: Option<&str>,
        expect: bool,
    ) {
        let mut data = data;
        data["metadata"] = json!({ "name": "billy" });
        let mut object = object(data);
        object.metadata.namespace = namespace.map(str::to_owned);
        let path = ReferencePath {
            name: paths.0.to_owned(),
            namespace: paths.1.map(str::to_owned),
        };
        let found = referrers(&path, "cowboys", &[object], ("west", "permit"), home);
        assert_eq!(!found.is_empty(), expect, "{found:?}");
    }

    #[test]
    fn a_reference_is_followed_into_lists() {
        let refs = |refs: Value| json!({ "spec": { "refs": refs } });
        let permit = refs(json!([{ "name": "other" }, { "name": "permit" }]));
        let path = ("spec.refs.#.name", None);
        check_named(permit.clone(), Some("west"), path, None, true);
        check_named(permit.clone(), Some("east"), path, None, false);
        check_named(permit.clone(), None, path, None, true);
        check_named(permit.clone(), None, path, Some("east"), false);
        check_named(permit, Some("west"), ("spec.refs.name", None), None, false);
        check_named(
            json!({ "status": { "secret": "permit" } }),
            Some("west"),
            ("status.secret", None),
            None,
            true,
        );
        let both = ("spec.refs.#.name", Some("spec.refs.#.namespace"));
        let crossed = json!([{ "name": "permit", "namespace": "east" }, { "name": "other", "namespace": "west" }]);
        check_named(refs(crossed), None, both, None, false);
        check_named(
            refs(json!([{ "name": "permit", "namespace": "west" }])),
            None,
            both,
            None,
            true,
        );
        // It says none, so that its own is meant.
        check_named(refs(json!([{ "name": "permit" }])), Some("west"), both, None, true);
        check_named(refs(json!([{ "name": "permit" }])), Some("east"), both, None, false);
    }

    #[test]
    fn the_referrer_is_named() {
        let referrer = Referrer {
            name: "cowboys.wildwest.dev west/billy".to_owned(),
        };
        let expect = "because cowboys.wildwest.dev west/billy names it";
        assert_eq!(named_by(&[referrer]).as_deref(), Some(expect));
        assert_eq!(named_by(&[]), None);
    }
}
