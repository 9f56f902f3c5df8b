//! What the API server says about itself.

use std::collections::{BTreeMap, BTreeSet};

use http::Method;
use serde_json::{Value, json};

use crate::{
    ApiServer,
    endpoint::Endpoint,
    handle::{Reply, page_not_found},
};

/// Answers a request for a path that is no resource.
pub(crate) fn answer(server: &ApiServer, path: &str, method: &Method) -> Reply {
    if *method != Method::GET && *method != Method::HEAD {
        return page_not_found();
    }
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let found = match parts.as_slice() {
        ["healthz" | "livez" | "readyz", ..] => return Reply::Text(200, "text/plain; charset=utf-8", "ok".to_owned()),
        ["version"] => Some(version()),
        ["api"] => Some(json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})),
        ["api", "v1"] => resources(server, "", "v1"),
        ["apis"] => Some(groups(server)),
        ["apis", group] => self::group(server, group),
        ["apis", group, version] => resources(server, group, version),
        [".well-known", "openid-configuration"] => Some(server.tokens.discovery()),
        ["openid", "v1", "jwks"] => Some(json!({"keys": []})),
        _ => None,
    };
    found.map_or_else(page_not_found, |body| Reply::Json(200, body))
}

fn version() -> Value {
    json!({
        "major": "1",
        "minor": "34",
        "gitVersion": "v1.34.4",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "2026-02-10T00:00:00Z",
        "goVersion": "go1.24.12",
        "compiler": "gc",
        "platform": "linux/amd64",
    })
}

/// Name of the resource, its kind, and whether it is in namespaces.
type Review = (&'static str, &'static str, bool);

/// Groups that are served without a stored resource.
const REVIEWS: [(&str, &[Review]); 2] = [
    (
        "authentication.k8s.io",
        &[
            ("selfsubjectreviews", "SelfSubjectReview", false),
            ("tokenreviews", "TokenReview", false),
        ],
    ),
    (
        "authorization.k8s.io",
        &[
            ("localsubjectaccessreviews", "LocalSubjectAccessReview", true),
            ("selfsubjectaccessreviews", "SelfSubjectAccessReview", false),
            ("selfsubjectrulesreviews", "SelfSubjectRulesReview", false),
            ("subjectaccessreviews", "SubjectAccessReview", false),
        ],
    ),
];

/// Versions of each group.
fn versions(server: &ApiServer) -> BTreeMap<String, BTreeSet<String>> {
    let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let endpoints = server.endpoints.iter().filter(|endpoint| !endpoint.group().is_empty());
    for endpoint in endpoints {
        let info = &endpoint.info;
        versions
            .entry(info.group.clone())
            .or_default()
            .insert(info.version.clone());
    }
    for (group, _) in REVIEWS {
        versions.entry(group.to_owned()).or_default().insert("v1".to_owned());
    }
    versions
}

fn group_json(name: &str, versions: &BTreeSet<String>, nested: bool) -> Value {
    let mut versions: Vec<&String> = versions.iter().collect();
    versions.sort_by_key(|version| std::cmp::Reverse(rank(version)));
    let each = |version: &&String| json!({"groupVersion": format!("{name}/{version}"), "version": version});
    let all: Vec<Value> = versions.iter().map(each).collect();
    let mut group = json!({"name": name, "versions": all, "preferredVersion": all[0]});
    if !nested {
        group["kind"] = "APIGroup".into();
        group["apiVersion"] = "v1".into();
    }
    group
}

/// Order of versions: stable ones before beta and alpha, higher numbers first.
fn rank(version: &str) -> (u8, u64, u64) {
    let digits = |text: &str| text.parse().unwrap_or(0);
    let rest = version.strip_prefix('v').unwrap_or_default();
    if let Some((major, minor)) = rest.split_once("beta") {
        (1, digits(major), digits(minor))
    } else if let Some((major, minor)) = rest.split_once("alpha") {
        (0, digits(major), digits(minor))
    } else {
        (2, digits(rest), 0)
    }
}

fn groups(server: &ApiServer) -> Value {
    let groups: Vec<Value> = versions(server)
        .iter()
        .map(|(name, versions)| group_json(name, versions, true))
        .collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

fn group(server: &ApiServer, name: &str) -> Option<Value> {
    versions(server)
        .get(name)
        .map(|versions| group_json(name, versions, false))
}

const VERBS: [&str; 8] = [
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];

fn resources(server: &ApiServer, group: &str, version: &str) -> Option<Value> {
    let mut resources: Vec<Value> = Vec::new();
    for endpoint in server.endpoints.iter() {
        if endpoint.info.group == group && endpoint.info.version == version {
            resources.extend(entries(endpoint));
        }
    }
    for (_, reviews) in REVIEWS.iter().filter(|(name, _)| *name == group && version == "v1") {
        resources.extend(reviews.iter().map(|(name, kind, namespaced)| {
            json!({"name": name, "singularName": kind.to_lowercase(), "namespaced": namespaced, "kind": kind, "verbs": ["create"]})
        }));
    }
    if resources.is_empty() {
        return None;
    }
    let version = if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    };
    Some(json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": resources}))
}

/// The entries of a resource and its subresources.
fn entries(endpoint: &Endpoint) -> Vec<Value> {
    let info = &endpoint.info;
    let mut entry = json!({
        "name": endpoint.resource,
        "singularName": endpoint.singular,
        "namespaced": endpoint.namespaced,
        "kind": info.kind,
        "verbs": VERBS,
    });
    if !endpoint.short_names.is_empty() {
        entry["shortNames"] = endpoint.short_names.clone().into();
    }
    if !endpoint.categories.is_empty() {
        entry["categories"] = endpoint.categories.clone().into();
    }
    let mut all = vec![entry];
    if info.status {
        all.push(json!({
            "name": format!("{}/status", endpoint.resource),
            "singularName": "",
            "namespaced": endpoint.namespaced,
            "kind": info.kind,
            "verbs": ["get", "patch", "update"],
        }));
    }
    all
}
