//! How a claim selects an object, in words.

use std::borrow::Cow;

use bindery_api::claims::{ReferencePaths, SelectedBy, referrer_metadata};
use kube::{ResourceExt as _, api::DynamicObject};
use serde_json::Value;

/// Says by which part of its selector a claim selects an object.
pub(crate) fn selected_by(part: SelectedBy) -> String {
    match part {
        SelectedBy::Everything => "it selects every one",
        SelectedBy::Labels => "by its labels",
        SelectedBy::Name => "by its name",
        SelectedBy::Reference => "because a bound object names it",
    }
    .to_owned()
}

/// Looks for the first of these bound objects that refers to an object, and says so. `cluster_scoped_namespace` is the
/// field of that name of the export.
pub(crate) fn named_by(
    paths: &ReferencePaths,
    resource: &str,
    objects: &[DynamicObject],
    (namespace, name): (&str, &str),
    cluster_scoped_namespace: Option<&str>,
) -> Option<String> {
    let of_export = cluster_scoped_namespace.map(Into::into);
    let refers = |object: &&DynamicObject| {
        let own = object.metadata.namespace.as_deref().unwrap_or_default().into();
        let found = paths.evaluate(&own, of_export.as_ref(), |root| field(object, root));
        found.iter().any(|referenced| referenced.is(namespace, name))
    };
    let referrer = objects.iter().find(refers)?;
    let key = match &referrer.metadata.namespace {
        Some(namespace) => format!("{namespace}/{}", referrer.name_any()),
        None => referrer.name_any(),
    };
    Some(format!("because {resource} {key} names it"))
}

fn field<'a>(object: &'a DynamicObject, name: &str) -> Option<Cow<'a, Value>> {
    if name != "metadata" {
        return object.data.get(name).map(Cow::Borrowed);
    }
    let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
    let labels = object
        .labels()
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()));
    let annotations = object
        .annotations()
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()));
    let metadata = referrer_metadata((namespace, &object.name_any()), labels, annotations);
    Some(Cow::Owned(metadata))
}

#[cfg(test)]
mod tests {
    use bindery_api::v1alpha2::ReferencePath;
    use serde_json::json;

    use super::*;

    /// By what cowboy `billy` refers to Secret `west/permit`.
    #[track_caller]
    fn check(
        data: &Value,
        namespace: Option<&str>,
        paths: (&str, Option<&str>),
        of_export: Option<&str>,
        expect: bool,
    ) {
        let mut data = data.clone();
        data["metadata"] = json!({ "name": "billy", "namespace": namespace, "labels": { "permit": "permit" } });
        let object: DynamicObject = serde_json::from_value(data).unwrap();
        let paths = ReferencePaths::parse(&ReferencePath {
            name: paths.0.to_owned(),
            namespace: paths.1.map(str::to_owned),
        })
        .unwrap();
        let found = named_by(&paths, "cowboys.wildwest.dev", &[object], ("west", "permit"), of_export);
        let billy = namespace.map_or_else(|| "billy".to_owned(), |namespace| format!("{namespace}/billy"));
        let says = format!("because cowboys.wildwest.dev {billy} names it");
        assert_eq!(found, expect.then_some(says));
    }

    #[test]
    fn a_bound_object_that_refers_to_the_object_is_named() {
        let refs = |refs: Value| json!({ "spec": { "refs": refs } });
        let permit = refs(json!([{ "name": "other" }, { "name": "permit" }]));
        let path = ("spec.refs.#.name", None);
        check(&permit, Some("west"), path, None, true);
        check(&permit, Some("east"), path, None, false);
        check(&permit, None, path, None, true);
        check(&permit, None, path, Some("east"), false);
        check(&permit, Some("west"), ("spec.refs.1.name", None), None, true);
        check(&permit, Some("west"), ("spec.refs.0.name", None), None, false);
        check(&permit, Some("west"), ("metadata.labels.permit", None), None, true);
        let both = ("spec.refs.#.name", Some("spec.refs.#.namespace"));
        let crossed = json!([{ "name": "permit", "namespace": "east" }, { "name": "other", "namespace": "west" }]);
        check(&refs(crossed), None, both, None, false);
    }
}
