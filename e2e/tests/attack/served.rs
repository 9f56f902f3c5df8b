//! What an API server serves, as its discovery says, and what there is of it.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use http::{Method, StatusCode};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroupList, APIResourceList};
use kube::Client;
use serde_json::Value;

use crate::attempt::{CONCURRENCY, send};

/// A resource, or a subresource such as `pods/exec`.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    pub(crate) group: String,
    pub(crate) version: String,
    /// Plural name, with the subresource after a slash.
    pub(crate) name: String,
    /// What is sent to it: apiVersion and kind.
    pub(crate) body: (String, String),
    pub(crate) namespaced: bool,
    pub(crate) verbs: Vec<String>,
}

/// Everything that is stored, by resource without its version: the objects of all namespaces.
pub(crate) struct Stock(BTreeMap<(String, String), Vec<Value>>);

/// Asks an API server for all that it serves.
pub(crate) async fn discover(admin: &Client) -> Result<Vec<Served>> {
    let groups: APIGroupList = get(admin, "/apis").await?;
    let versions = groups.groups.iter().flat_map(|group| &group.versions);
    let mut group_versions = vec!["v1".to_owned()];
    group_versions.extend(versions.map(|version| version.group_version.clone()));
    let lists: Vec<APIResourceList> = stream::iter(group_versions)
        .map(async |group_version| get(admin, &base(&group_version)).await)
        .buffered(CONCURRENCY)
        .try_collect()
        .await?;
    let served: Vec<_> = lists.into_iter().flat_map(served).collect();
    // Less would mean that discovery was read wrongly, and nothing was attacked.
    ensure!(served.len() > 100, "only {} resources are served", served.len());
    Ok(served)
}

fn served(list: APIResourceList) -> impl Iterator<Item = Served> {
    let (group, version) = match list.group_version.split_once('/') {
        Some((group, version)) => (group.to_owned(), version.to_owned()),
        None => (String::new(), list.group_version.clone()),
    };
    list.resources.into_iter().map(move |resource| {
        let body_version = match (&resource.group, &resource.version) {
            (Some(group), Some(version)) if !group.is_empty() => format!("{group}/{version}"),
            (_, Some(version)) => version.clone(),
            _ => list.group_version.clone(),
        };
        Served {
            group: group.clone(),
            version: version.clone(),
            name: resource.name,
            body: (body_version, resource.kind),
            namespaced: resource.namespaced,
            verbs: resource.verbs,
        }
    })
}

fn base(group_version: &str) -> String {
    match group_version.split_once('/') {
        Some(_) => format!("/apis/{group_version}"),
        None => format!("/api/{group_version}"),
    }
}

async fn get<T: serde::de::DeserializeOwned>(client: &Client, path: &str) -> Result<T> {
    let answer = send(client, &Method::GET, path, None, &[]).await?;
    ensure!(answer.status == StatusCode::OK, "GET {path}: {answer:?}");
    serde_json::from_slice(&answer.body).with_context(|| format!("GET {path}"))
}

// === impl Served ===

impl Served {
    /// Resource without its subresource, and the subresource.
    pub(crate) fn split(&self) -> (&str, Option<&str>) {
        match self.name.split_once('/') {
            Some((resource, subresource)) => (resource, Some(subresource)),
            None => (&self.name, None),
        }
    }

    /// Path of its collection, in a namespace or everywhere.
    pub(crate) fn collection(&self, namespace: Option<&str>) -> String {
        let group_version = match self.group.as_str() {
            "" => self.version.clone(),
            group => format!("{group}/{}", self.version),
        };
        let (base, resource) = (base(&group_version), self.split().0);
        match namespace {
            Some(namespace) => format!("{base}/namespaces/{namespace}/{resource}"),
            None => format!("{base}/{resource}"),
        }
    }

    /// Path of one object, or of its subresource.
    pub(crate) fn object(&self, namespace: Option<&str>, name: &str) -> String {
        let object = format!("{}/{name}", self.collection(namespace));
        match self.split().1 {
            Some(subresource) => format!("{object}/{subresource}"),
            None => object,
        }
    }
}

// === impl Stock ===

impl Stock {
    /// Reads everything that can be listed.
    pub(crate) async fn take(admin: &Client, served: &[Served]) -> Result<Self> {
        let listable = served
            .iter()
            .filter(|resource| resource.split().1.is_none() && resource.verbs.iter().any(|verb| verb == "list"));
        let stock = stream::iter(listable)
            .map(async |resource| {
                let list: Value = get(admin, &resource.collection(None)).await?;
                let items = list["items"].as_array().cloned().unwrap_or_default();
                let complete = |mut item: Value| {
                    item["apiVersion"] = list["apiVersion"].clone();
                    item["kind"] = Value::from(resource.body.1.as_str());
                    item
                };
                let items: Vec<_> = items.into_iter().map(complete).collect();
                anyhow::Ok(((resource.group.clone(), resource.name.clone()), items))
            })
            .buffered(CONCURRENCY)
            .try_collect()
            .await?;
        Ok(Self(stock))
    }

    /// Objects of a resource in a namespace, or without one.
    pub(crate) fn of<'a>(&'a self, resource: &Served, namespace: Option<&'a str>) -> impl Iterator<Item = &'a Value> {
        let key = (resource.group.clone(), resource.split().0.to_owned());
        let objects = self.0.get(&key).into_iter().flatten();
        objects.filter(move |object| object["metadata"]["namespace"].as_str() == namespace)
    }

    /// Any object of a resource, as an example of what is valid.
    pub(crate) fn example(&self, resource: &Served) -> Option<&Value> {
        self.0
            .get(&(resource.group.clone(), resource.split().0.to_owned()))?
            .first()
    }

    /// Everything in these namespaces, and everything without one that speaks of `word`: UIDs and resource versions.
    pub(crate) fn versions(&self, namespaces: &[&str], word: &str) -> BTreeMap<String, String> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let all = self
            .0
            .iter()
            .flat_map(|(key, objects)| objects.iter().map(move |object| (key, object)));
        all.filter(|(_, object)| match object["metadata"]["namespace"].as_str() {
            Some(namespace) => namespaces.contains(&namespace),
            None => object.to_string().contains(word),
        })
        .map(|((group, resource), object)| {
            let meta = &object["metadata"];
            let name = format!(
                "{resource}.{group} {}/{}",
                text(&meta["namespace"]),
                text(&meta["name"])
            );
            (
                name,
                format!("{} {}", text(&meta["uid"]), text(&meta["resourceVersion"])),
            )
        })
        .collect()
    }
}
