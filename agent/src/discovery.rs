//! Which versions of a resource a cluster serves.

use bindery_api::{
    claims::core_kind,
    names::push_segment,
    v1alpha2::{GroupResource, Scope},
    versions::{self, Listed},
};
use bindery_runtime::errors;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroup, APIResourceList};
use kube::Client;

use crate::model::BoundResource;

/// One version of a resource, as a cluster serves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Served {
    pub version: String,
    pub kind: String,
    pub is_namespaced: bool,
}

/// The versions that a cluster serves; none if it does not serve the resource.
pub(crate) async fn served(client: &Client, resource: &GroupResource) -> Result<Vec<Served>, kube::Error> {
    if resource.is_core() {
        let served = core_kind(resource).map(|kind| Served {
            version: "v1".to_owned(),
            kind: kind.to_owned(),
            is_namespaced: true,
        });
        return Ok(served.into_iter().collect());
    }
    let mut root = "/apis".to_owned();
    push_segment(&mut root, &resource.group);
    let group: APIGroup = match get(client, root.clone()).await {
        Err(error) if errors::is_not_found(&error) => return Ok(Vec::new()),
        answer => answer?,
    };
    let mut found = Vec::new();
    for version in group.versions {
        let mut path = root.clone();
        push_segment(&mut path, &version.version);
        let list: APIResourceList = match get(client, path).await {
            // It went away meanwhile.
            Err(error) if errors::is_not_found(&error) => continue,
            answer => answer?,
        };
        let served = list.resources.into_iter().find(|one| one.name == resource.resource);
        found.extend(served.map(|served| Served {
            version: version.version,
            kind: served.kind,
            is_namespaced: served.namespaced,
        }));
    }
    Ok(found)
}

/// The resource in the version to sync: the highest that both clusters serve in namespaces.
pub(crate) fn common(
    resource: &GroupResource,
    consumer: &[Served],
    provider: &[Served],
) -> Result<BoundResource, String> {
    for (cluster, served) in [("consumer", consumer), ("provider", provider)] {
        if served.is_empty() {
            return Err(format!("the {cluster} does not serve {resource}"));
        }
        if served.iter().any(|one| !one.is_namespaced) {
            return Err(format!(
                "{resource} is cluster-scoped on the {cluster}, and only namespaced objects are claimed"
            ));
        }
    }
    let listed = |one| -> Listed<'_> {
        let one: &Served = one;
        Listed {
            name: &one.version,
            served: true,
            storage: false,
        }
    };
    let version = versions::common(provider.iter().map(listed), consumer.iter().map(listed))
        .ok_or_else(|| format!("the two clusters serve no version of {resource} in common"))?;
    Ok(of(resource, version, consumer))
}

/// The resource in the highest version that a cluster serves.
pub(crate) fn highest(resource: &GroupResource, served: &[Served]) -> Option<BoundResource> {
    let version = versions::highest(served.iter().map(|one| one.version.as_str()))?;
    Some(of(resource, version, served))
}

fn of(resource: &GroupResource, version: &str, served: &[Served]) -> BoundResource {
    let kind = served
        .iter()
        .find(|one| one.version == version)
        .map(|one| one.kind.as_str());
    BoundResource {
        group: resource.group.as_str().into(),
        version: version.into(),
        plural: resource.resource.as_str().into(),
        kind: kind.unwrap_or_default().into(),
        scope: Scope::Namespaced,
        status_subresource: false,
    }
}

async fn get<T: serde::de::DeserializeOwned>(client: &Client, path: String) -> Result<T, kube::Error> {
    let request = http::Request::get(path)
        .body(Vec::new())
        .map_err(kube::Error::HttpError)?;
    client.request(request).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(versions: &str) -> Vec<Served> {
        let one = |version: &str| Served {
            version: version.trim_end_matches('!').to_owned(),
            kind: "Horse".to_owned(),
            is_namespaced: !version.ends_with('!'),
        };
        versions.split_whitespace().map(one).collect()
    }

    #[track_caller]
    fn check(consumer: &str, provider: &str, expect: Result<&str, &str>) {
        let horses = GroupResource::new("wildwest.dev", "horses");
        let outcome = common(&horses, &served(consumer), &served(provider));
        match expect {
            Ok(version) => {
                let resource = outcome.unwrap();
                assert_eq!(&*resource.version, version);
                assert_eq!(&*resource.kind, "Horse");
            }
            Err(part) => {
                let message = outcome.unwrap_err();
                assert!(
                    message.contains(part) && message.contains("horses.wildwest.dev"),
                    "{message}"
                );
            }
        }
    }

    #[test]
    fn the_highest_version_of_both_is_synced() {
        check("v1 v1alpha1", "v1alpha1 v1", Ok("v1"));
        check("v1 v1beta1", "v1beta1 v2", Ok("v1beta1"));
        check("v1", "v2", Err("in common"));
        check("", "v2", Err("the consumer does not serve"));
        check("v1", "", Err("the provider does not serve"));
        check("v1!", "v1", Err("cluster-scoped on the consumer"));
        check("v1", "v1!", Err("cluster-scoped on the provider"));
    }

    #[tokio::test]
    async fn core_resources_need_no_question() {
        let service = tower::service_fn(|_: http::Request<kube::client::Body>| {
            std::future::pending::<Result<http::Response<kube::client::Body>, std::io::Error>>()
        });
        let client = Client::new(service, "default");
        let secrets = GroupResource::new("", "secrets");
        let found = super::served(&client, &secrets).await.unwrap();
        let resource = highest(&secrets, &found).unwrap();
        assert_eq!(resource.collection("west"), "/api/v1/namespaces/west/secrets");
        assert_eq!(&*resource.kind, "Secret");
        assert!(
            super::served(&client, &GroupResource::new("", "pods"))
                .await
                .unwrap()
                .is_empty()
        );
    }
}
