//! Resolves the name of an API, as kubectl does.

use bindery_api::v1alpha2::{GroupResource, Scope};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    api::{ApiResource, GroupVersionKind},
    core::discovery::v2::APIGroupDiscoveryList,
};
use serde::Serialize;

use crate::text::joined;

/// An API of this cluster, in its preferred version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Kind {
    pub(crate) group: String,
    pub(crate) version: String,
    #[serde(rename = "kind")]
    pub(crate) name: String,
    pub(crate) plural: String,
    pub(crate) namespaced: bool,
    /// Whether its objects are stored, rather than computed when they are read.
    #[serde(skip)]
    pub(crate) stored: bool,
    #[serde(skip)]
    singular: String,
    #[serde(skip)]
    short_names: Vec<String>,
}

impl Kind {
    pub(crate) fn resource(&self) -> GroupResource {
        GroupResource::new(&self.group, &self.plural)
    }

    pub(crate) fn api(&self) -> ApiResource {
        let kind = GroupVersionKind::gvk(&self.group, &self.version, &self.name);
        ApiResource::from_gvk_with_plural(&kind, &self.plural)
    }

    pub(crate) fn scope(&self) -> Scope {
        if self.namespaced {
            Scope::Namespaced
        } else {
            Scope::Cluster
        }
    }

    fn is_called(&self, word: &str) -> bool {
        let names = [&self.plural, &self.singular, &self.name];
        names
            .into_iter()
            .chain(&self.short_names)
            .any(|name| name.eq_ignore_ascii_case(word))
    }
}

/// Lists the APIs of a cluster, those of the core group first.
pub(crate) fn kinds(lists: impl IntoIterator<Item = APIGroupDiscoveryList>) -> Vec<Kind> {
    let groups = lists.into_iter().flat_map(|list| list.items);
    let mut kinds = Vec::new();
    for group in groups {
        let group_name = group.metadata.and_then(|metadata| metadata.name).unwrap_or_default();
        let mut of_group: Vec<Kind> = Vec::new();
        for version in group.versions {
            let version_name = version.version.unwrap_or_default();
            for resource in version.resources {
                let plural = resource.resource.unwrap_or_default();
                // Versions come with the preferred one first.
                if of_group.iter().any(|known| known.plural == plural) {
                    continue;
                }
                of_group.push(Kind {
                    group: group_name.clone(),
                    version: version_name.clone(),
                    name: resource.response_kind.and_then(|kind| kind.kind).unwrap_or_default(),
                    namespaced: resource.scope.as_deref() != Some("Cluster"),
                    stored: ["list", "delete"]
                        .iter()
                        .all(|verb| resource.verbs.iter().any(|other| other == verb)),
                    singular: resource.singular_resource.unwrap_or_default(),
                    short_names: resource.short_names,
                    plural,
                });
            }
        }
        kinds.extend(of_group);
    }
    kinds
}

/// Resolves a word such as `cowboy`, `cowboys`, `Cowboy` or `cowboys.wildwest.dev`. Of several APIs of that name, one that a binding
/// brings or claims is preferred, then Kubernetes' own.
pub(crate) fn resolve(kinds: &[Kind], word: &str, is_bound: impl Fn(&GroupResource) -> bool) -> Result<Kind, String> {
    let mut found: Vec<_> = kinds.iter().filter(|kind| kind.is_called(word)).collect();
    if let Some((name, group)) = word.split_once('.').filter(|_| found.is_empty()) {
        found = kinds
            .iter()
            .filter(|kind| kind.is_called(name) && kind.group.eq_ignore_ascii_case(group))
            .collect();
    }
    if found.len() > 1 {
        let better = |choose: &dyn Fn(&Kind) -> bool| -> Option<Vec<&Kind>> {
            let chosen: Vec<_> = found.iter().copied().filter(|kind| choose(kind)).collect();
            (!chosen.is_empty()).then_some(chosen)
        };
        found = better(&|kind| is_bound(&kind.resource()))
            .or_else(|| better(&|kind| kind.group.is_empty()))
            .unwrap_or(found);
    }
    match found.as_slice() {
        [kind] => Ok((*kind).clone()),
        [] => Err(format!(
            "this cluster serves no API called {word:?}; `kubectl api-resources` lists those it serves"
        )),
        several => Err(format!(
            "several APIs are called {word:?}; write one of {}",
            joined(several.iter().map(|kind| kind.resource()))
        )),
    }
}

/// The resource that a CustomResourceDefinition defines, in a version that is served; `None` if none is.
pub(crate) fn served_resource(definition: &CustomResourceDefinition) -> Option<ApiResource> {
    let version = definition.spec.versions.iter().find(|version| version.served)?;
    let (group, names) = (&definition.spec.group, &definition.spec.names);
    let kind = GroupVersionKind::gvk(group, &version.name, &names.kind);
    Some(ApiResource::from_gvk_with_plural(&kind, &names.plural))
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    /// Secrets, cowboys, and two things of one name.
    pub(crate) fn served() -> Vec<Kind> {
        let resource = |plural: &str, kind: &str, scope: &str| {
            json!({ "resource": plural, "responseKind": { "kind": kind, "group": "", "version": "" }, "scope": scope,
                "singularResource": kind.to_ascii_lowercase(), "shortNames": [&plural[..2]], "verbs": ["get"] })
        };
        let group =
            |name: &str, versions: serde_json::Value| json!({ "metadata": { "name": name }, "versions": versions });
        let core = json!({ "items": [group("", json!([{ "version": "v1", "resources": [
            resource("secrets", "Secret", "Namespaced"), resource("events", "Event", "Namespaced")] }]))] });
        let others = json!({ "items": [
            group("events.k8s.io", json!([{ "version": "v1", "resources": [resource("events", "Event", "Namespaced")] }])),
            group("wildwest.dev", json!([
                { "version": "v1", "resources": [resource("cowboys", "Cowboy", "Namespaced")] },
                { "version": "v1alpha1", "resources": [
                    resource("cowboys", "Cowboy", "Namespaced"), resource("sheriffs", "Sheriff", "Cluster")] }])),
            group("tameeast.dev", json!([{ "version": "v1", "resources": [resource("sheriffs", "Sheriff", "Namespaced")] }])),
        ] });
        kinds([core, others].map(|list| serde_json::from_value(list).unwrap()))
    }

    #[track_caller]
    fn check(word: &str, expect: Result<&str, &str>) {
        let found = resolve(&served(), word, |resource| {
            resource.to_string() == "sheriffs.wildwest.dev"
        });
        match (found, expect) {
            (Ok(kind), Ok(expect)) => {
                let api = kind.api();
                assert_eq!(format!("{} {}", api.api_version, api.plural), expect, "{word}");
            }
            (Err(error), Err(expect)) => assert!(error.contains(expect), "{error}"),
            (found, expect) => panic!("{word}: {found:?} instead of {expect:?}"),
        }
    }

    #[test]
    fn an_api_goes_by_many_names() {
        for word in [
            "cowboy",
            "Cowboy",
            "cowboys",
            "co",
            "cowboys.wildwest.dev",
            "cowboy.wildwest.dev",
        ] {
            check(word, Ok("wildwest.dev/v1 cowboys"));
        }
        check("secret", Ok("v1 secrets"));
        check("event", Ok("v1 events"));
        check("events.events.k8s.io", Ok("events.k8s.io/v1 events"));
        check("sheriff", Ok("wildwest.dev/v1alpha1 sheriffs"));
        check("sheriff.tameeast.dev", Ok("tameeast.dev/v1 sheriffs"));
        check("horse", Err("no API called \"horse\""));
    }

    #[test]
    fn nothing_is_guessed() {
        let error = resolve(&served(), "sheriffs", |_| false).expect_err("two are called so");
        assert!(error.contains("sheriffs.wildwest.dev,sheriffs.tameeast.dev"), "{error}");
        assert!(
            !resolve(&served(), "sheriff.wildwest.dev", |_| false)
                .unwrap()
                .namespaced
        );
    }
}
