//! Reads the kinds that an API server serves: two requests, or one for each API version if the server is too old.

use std::collections::BTreeMap;

use bindery_runtime::errors;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroupList, APIResourceList, APIVersions};
use kube::core::discovery::v2::{ACCEPT_AGGREGATED_DISCOVERY_V2, APIGroupDiscoveryList};
use serde_json::Value;

use crate::{
    errors::Failure,
    kinds::{Kinds, Resource},
    object::Gvk,
    rest::Rest,
};

/// Number of API versions that are requested concurrently.
const AT_ONCE: usize = 8;
const PLAIN: &str = "application/json";

/// The kinds that are served, and the groups that do not answer.
#[derive(Default)]
struct Found {
    served: Vec<Resource>,
    silent: BTreeMap<String, String>,
}

/// Reads all kinds that are served.
pub(crate) async fn discover(rest: &Rest) -> Result<Kinds, Failure> {
    let (core, groups) = tokio::try_join!(root(rest, "/api"), root(rest, "/apis"))
        .map_err(Failure::api("find out what the API server serves"))?;
    let mut found = core;
    found.served.extend(groups.served);
    found.silent.extend(groups.silent);
    let mut kinds = Kinds::served(found.served);
    kinds.silent = found.silent;
    Ok(kinds)
}

async fn root(rest: &Rest, path: &str) -> Result<Found, kube::Error> {
    let document: Value = rest.document(path, ACCEPT_AGGREGATED_DISCOVERY_V2).await?;
    match document["kind"].as_str() {
        Some("APIGroupDiscoveryList") => {
            let list = serde_json::from_value(document).map_err(kube::Error::SerdeError)?;
            Ok(aggregated(list))
        }
        Some("APIVersions") => {
            let versions: APIVersions = serde_json::from_value(document).map_err(kube::Error::SerdeError)?;
            one_by_one(rest, versions.versions, "/api").await
        }
        _ => {
            let groups: APIGroupList = serde_json::from_value(document).map_err(kube::Error::SerdeError)?;
            let versions = groups.groups.into_iter().flat_map(|group| group.versions);
            let versions = versions.map(|version| version.group_version).collect();
            one_by_one(rest, versions, "/apis").await
        }
    }
}

fn aggregated(list: APIGroupDiscoveryList) -> Found {
    let mut found = Found::default();
    for group in list.items {
        let name = group.metadata.and_then(|metadata| metadata.name).unwrap_or_default();
        for version in group.versions {
            let number = version.version.unwrap_or_default();
            if version.freshness.as_deref() == Some("Stale") {
                let reason = format!("the server of {name}/{number} does not answer");
                found.silent.insert(name.clone(), reason);
            }
            for resource in version.resources {
                let kind = resource.response_kind.unwrap_or_default();
                found.served.push(Resource {
                    gvk: Gvk {
                        group: name.clone(),
                        version: number.clone(),
                        kind: kind.kind.unwrap_or_default(),
                    },
                    plural: resource.resource.unwrap_or_default(),
                    namespaced: resource.scope.as_deref() == Some("Namespaced"),
                });
            }
        }
    }
    found
}

async fn one_by_one(rest: &Rest, versions: Vec<String>, root: &str) -> Result<Found, kube::Error> {
    let answers = stream::iter(versions).map(async |version| {
        let list: Result<APIResourceList, _> = rest.document(&format!("{root}/{version}"), PLAIN).await;
        match list {
            Err(error) if errors::code(&error).is_none() => Err(error),
            answer => Ok((version, answer)),
        }
    });
    let answers: Vec<_> = answers.buffer_unordered(AT_ONCE).try_collect().await?;
    let mut found = Found::default();
    for (version, answer) in answers {
        let gvk = Gvk::new(&version, "");
        match answer {
            Ok(list) => found.served.extend(listed(&gvk, list)),
            Err(error) => {
                let reason = format!("the server of {version} does not answer: {}", errors::explain(&error));
                found.silent.insert(gvk.group, reason);
            }
        }
    }
    Ok(found)
}

fn listed(gvk: &Gvk, list: APIResourceList) -> impl Iterator<Item = Resource> {
    let own = list
        .resources
        .into_iter()
        .filter(|resource| !resource.name.contains('/'));
    own.map(|resource| Resource {
        gvk: Gvk {
            kind: resource.kind,
            ..gvk.clone()
        },
        plural: resource.name,
        namespaced: resource.namespaced,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_group_that_does_not_answer_is_named() {
        let found = aggregated(
            serde_json::from_value(json!({"items": [
                {"metadata": {"name": "apps"}, "versions": [{"version": "v1", "freshness": "Current", "resources": [
                    {"resource": "deployments", "scope": "Namespaced",
                     "responseKind": {"group": "apps", "version": "v1", "kind": "Deployment"}},
                ]}]},
                {"metadata": {"name": "metrics.k8s.io"}, "versions": [{"version": "v1beta1", "freshness": "Stale"}]},
            ]}))
            .unwrap(),
        );
        let deployments = Resource {
            gvk: Gvk::new("apps/v1", "Deployment"),
            plural: "deployments".to_owned(),
            namespaced: true,
        };
        assert_eq!(found.served, [deployments]);
        assert_eq!(
            found.silent["metrics.k8s.io"],
            "the server of metrics.k8s.io/v1beta1 does not answer"
        );
    }

    #[test]
    fn a_subresource_is_no_kind() {
        let resource = |name: &str, kind: &str| json!({"name": name, "kind": kind, "namespaced": true, "singularName": "", "verbs": []});
        let list = json!({"groupVersion": "v1", "resources": [resource("pods", "Pod"), resource("pods/log", "Pod")]});
        let found: Vec<_> = listed(&Gvk::new("v1", ""), serde_json::from_value(list).unwrap()).collect();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].plural, "pods");
    }
}
