//! Which resources the API server serves, by discovery.

use std::collections::{BTreeMap, BTreeSet};

use bindery_api::v1alpha2::GroupResource;
use bindery_runtime::errors;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroup, APIResource};
use kube::{Client, api::ApiResource};

/// What Kubernetes writes into namespaces by itself, or computes for each request: no object of these is valuable.
const WORTHLESS: [(&str, &str); 5] = [
    ("", "endpoints"),
    ("", "events"),
    ("coordination.k8s.io", "leases"),
    ("discovery.k8s.io", "endpointslices"),
    ("events.k8s.io", "events"),
];
/// Groups whose objects are computed for each request. The server that computes them may be away, which must keep no namespace.
const COMPUTED: [&str; 3] = ["custom.metrics.k8s.io", "external.metrics.k8s.io", "metrics.k8s.io"];

/// The namespaced resources of some groups that can be listed, each in one version. `groups` is `None` for all groups.
pub(super) async fn served(client: &Client, groups: Option<&BTreeSet<&str>>) -> Result<Vec<ApiResource>, kube::Error> {
    let is_wanted = |group: &str| groups.is_none_or(|groups| groups.contains(group)) && !COMPUTED.contains(&group);
    let mut found = BTreeMap::new();
    if is_wanted("") {
        let core = client.list_core_api_resources("v1").await?;
        add(&mut found, "", "v1", core.resources);
    }
    for group in client.list_api_groups().await?.groups {
        if !is_wanted(&group.name) {
            continue;
        }
        for version in in_order(&group) {
            let version_path = format!("{}/{version}", group.name);
            match client.list_api_group_resources(&version_path).await {
                Ok(list) => add(&mut found, &group.name, &version, list.resources),
                // It went away meanwhile.
                Err(error) if errors::is_not_found(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(found.into_values().collect())
}

/// Whether no object of a resource is valuable.
pub(super) fn is_worthless(resource: &GroupResource) -> bool {
    WORTHLESS.contains(&(&*resource.group, &*resource.resource))
}

/// The versions of a group, the preferred one first.
fn in_order(group: &APIGroup) -> Vec<String> {
    let preferred = group
        .preferred_version
        .as_ref()
        .map(|preferred| preferred.version.as_str());
    let mut versions: Vec<_> = group.versions.iter().map(|version| version.version.clone()).collect();
    versions.sort_by_key(|version| preferred != Some(version.as_str()));
    versions
}

/// Adds the namespaced resources of a version that can be listed, without subresources and without those that another version has.
fn add(found: &mut BTreeMap<GroupResource, ApiResource>, group: &str, version: &str, resources: Vec<APIResource>) {
    for resource in resources {
        let is_listed = resource.namespaced && resource.verbs.iter().any(|verb| verb == "list");
        if !is_listed || resource.name.contains('/') {
            continue;
        }
        let key = GroupResource::new(group, &resource.name);
        found.entry(key).or_insert_with(|| ApiResource {
            group: group.to_owned(),
            version: version.to_owned(),
            api_version: if group.is_empty() {
                version.to_owned()
            } else {
                format!("{group}/{version}")
            },
            kind: resource.kind,
            plural: resource.name,
        });
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::GroupVersionForDiscovery;

    use super::*;

    fn resource(name: &str, namespaced: bool, verbs: &[&str]) -> APIResource {
        APIResource {
            name: name.to_owned(),
            namespaced,
            kind: "Kind".to_owned(),
            verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
            ..APIResource::default()
        }
    }

    #[test]
    fn each_resource_that_can_be_listed_is_found_once() {
        let mut found = BTreeMap::new();
        let all = || {
            vec![
                resource("jobs", true, &["get", "list"]),
                resource("jobs/status", true, &["get", "list"]),
                resource("nodes", false, &["list"]),
                resource("reviews", true, &["create"]),
            ]
        };
        add(&mut found, "batch", "v1", all());
        add(&mut found, "batch", "v1beta1", all());
        let found: Vec<_> = found
            .into_values()
            .map(|kind| (kind.plural, kind.api_version))
            .collect();
        assert_eq!(found, [("jobs".to_owned(), "batch/v1".to_owned())]);
        let mut core = BTreeMap::new();
        add(&mut core, "", "v1", vec![resource("pods", true, &["list"])]);
        assert_eq!(core[&GroupResource::new("", "pods")].api_version, "v1");
    }

    #[test]
    fn the_preferred_version_comes_first() {
        let version = |version: &str| GroupVersionForDiscovery {
            group_version: format!("bank.dev/{version}"),
            version: version.to_owned(),
        };
        let group = APIGroup {
            name: "bank.dev".to_owned(),
            versions: ["v2", "v1", "v1beta1"].map(version).to_vec(),
            preferred_version: Some(version("v1")),
            ..APIGroup::default()
        };
        assert_eq!(in_order(&group), ["v1", "v2", "v1beta1"]);
    }

    #[test]
    fn what_kubernetes_writes_by_itself_is_worthless() {
        for (group, resource, expect) in [
            ("", "events", true),
            ("events.k8s.io", "events", true),
            ("bank.dev", "events", false),
            ("", "persistentvolumeclaims", false),
        ] {
            assert_eq!(is_worthless(&GroupResource::new(group, resource)), expect, "{resource}");
        }
    }
}
