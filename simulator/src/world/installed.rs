//! Clusters as administrators leave them before any process of ours starts.
//!
//! Installing takes as long as half of a seed. So it is done once per operating-system process, before its seed is known, and seeds that
//! fork from that process find it done.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use bindery_api::crds;
use bindery_simulator_apiserver::{Answer, ApiServer, ClusterSettings, UserInfo};
use bytes::Bytes;
use http::{Method, Request, header};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use parking_lot::Mutex;
use serde_json::Value;

use super::{
    cluster::cluster_host,
    programs::{KONNECTOR_TOKEN, SERVER_TOKEN},
    timestamp,
};
use crate::topology::Cluster;

/// What administrators of providers install.
const SERVER_MANIFESTS: [&str; 10] = [
    include_str!("../../../deploy/server/account-policy.yaml"),
    include_str!("../../../deploy/server/namespace.yaml"),
    include_str!("../../../deploy/server/role.yaml"),
    include_str!("../../../deploy/server/own-namespace.yaml"),
    include_str!("../../../deploy/server/binder-role.yaml"),
    include_str!("../../../deploy/server/claims-role.yaml"),
    include_str!("../../../deploy/server/contract-role.yaml"),
    include_str!("../../../deploy/server/exports-role.yaml"),
    include_str!("../../../deploy/server/responses-role.yaml"),
    include_str!("../../../deploy/server/policy.yaml"),
];
/// What administrators of providers install for requests made as resources.
const REQUEST_MANIFESTS: [&str; 1] = [include_str!("../../../deploy/server/requests-policy.yaml")];
/// What administrators of consumers install.
const KONNECTOR_MANIFESTS: [&str; 5] = [
    include_str!("../../../deploy/konnector/account-policy.yaml"),
    include_str!("../../../deploy/konnector/namespace.yaml"),
    include_str!("../../../deploy/konnector/role.yaml"),
    include_str!("../../../deploy/konnector/own-namespace.yaml"),
    include_str!("../../../deploy/konnector/policy.yaml"),
];
/// The rights for bundles, which are optional.
const BUNDLE_MANIFESTS: [&str; 1] = [include_str!("../../../deploy/konnector/optional/bundles.yaml")];

/// The clusters that most histories have.
const PREPARED: [Cluster; 4] = [
    Cluster::Provider(1),
    Cluster::Provider(2),
    Cluster::Consumer(1),
    Cluster::Consumer(2),
];

/// The clusters that are prepared and not taken yet, with our CRDs.
static READY: Mutex<BTreeMap<Cluster, ApiServer>> = parking_lot::const_mutex(BTreeMap::new());

/// Makes the clusters that most histories have. To be called before the simulation begins.
pub(super) fn prepare() -> Result<()> {
    let mut ready = READY.lock();
    for cluster in PREPARED {
        if let Entry::Vacant(vacant) = ready.entry(cluster) {
            vacant.insert(make(cluster, true)?);
        }
    }
    Ok(())
}

/// The API server of a cluster, with our CRDs if administrators install those.
pub(super) fn take(cluster: Cluster, with_definitions: bool) -> Result<ApiServer> {
    let ready = READY.lock().remove(&cluster).filter(|_| with_definitions);
    ready.map_or_else(|| make(cluster, with_definitions), Ok)
}

fn make(cluster: Cluster, with_definitions: bool) -> Result<ApiServer> {
    let mut api = ApiServer::new(settings(cluster));
    let is_provider = matches!(cluster, Cluster::Provider(_));
    let manifests = if is_provider {
        [&SERVER_MANIFESTS[..], &REQUEST_MANIFESTS]
    } else {
        [&KONNECTOR_MANIFESTS[..], &BUNDLE_MANIFESTS]
    };
    for file in manifests.concat() {
        apply(&mut api, file).with_context(|| format!("a manifest of {cluster}"))?;
    }
    if with_definitions {
        let definitions = if is_provider {
            crds::for_provider()
        } else {
            crds::for_consumer()
        };
        for definition in definitions {
            create(&mut api, &definition).with_context(|| format!("a CRD of {cluster}"))?;
        }
    }
    while let Some(chore) = api.background().first() {
        api.perform(timestamp(Duration::ZERO), chore);
    }
    api.compile_policies();
    Ok(api)
}

/// Creates a CRD.
fn create(api: &mut ApiServer, definition: &CustomResourceDefinition) -> Result<()> {
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?fieldManager=bindery";
    let request = Request::post(path).header(header::CONTENT_TYPE, "application/json");
    send(api, request, serde_json::to_vec(definition)?)
}

/// Applies the manifests of a file as `kubectl apply --server-side` does.
fn apply(api: &mut ApiServer, file: &str) -> Result<()> {
    for document in file.split("\n---") {
        let object: Value = serde_saphyr::from_str(document)?;
        if object.is_null() {
            continue;
        }
        let path = path_of(&object).with_context(|| format!("its kind is unknown: {}", object["kind"]))?;
        let request = Request::builder()
            .method(Method::PATCH)
            .uri(format!("{path}?fieldManager=kubectl&force=true"))
            .header(header::CONTENT_TYPE, "application/apply-patch+yaml");
        send(api, request, object.to_string().into_bytes()).context(path)?;
    }
    Ok(())
}

/// Sends a request of the administrator.
fn send(api: &mut ApiServer, request: http::request::Builder, body: Vec<u8>) -> Result<()> {
    let request = request
        .header(header::AUTHORIZATION, "Bearer admin")
        .body(Bytes::from(body))?;
    let Answer::Whole(answer) = api.handle(timestamp(Duration::ZERO), &request) else {
        bail!("a watch was answered");
    };
    let said = || String::from_utf8_lossy(answer.body()).into_owned();
    ensure!(answer.status().is_success(), "{}", said());
    Ok(())
}

/// The path of an object of one of the kinds that are installed.
fn path_of(object: &Value) -> Option<String> {
    let plural = match object["kind"].as_str()? {
        "Namespace" => "namespaces",
        "ServiceAccount" => "serviceaccounts",
        "ClusterRole" => "clusterroles",
        "ClusterRoleBinding" => "clusterrolebindings",
        "Role" => "roles",
        "RoleBinding" => "rolebindings",
        "ValidatingAdmissionPolicy" => "validatingadmissionpolicies",
        "ValidatingAdmissionPolicyBinding" => "validatingadmissionpolicybindings",
        _ => return None,
    };
    let version = object["apiVersion"].as_str()?;
    let root = if version.contains('/') { "/apis" } else { "/api" };
    let name = object["metadata"]["name"].as_str()?;
    Some(match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("{root}/{version}/namespaces/{namespace}/{plural}/{name}"),
        None => format!("{root}/{version}/{plural}/{name}"),
    })
}

/// The users of a cluster with their static tokens.
fn settings(cluster: Cluster) -> ClusterSettings {
    let user = |name: &str, groups: &[&str]| UserInfo {
        name: name.to_owned(),
        uid: String::new(),
        groups: groups.iter().map(|&group| group.to_owned()).collect(),
        extra: BTreeMap::new(),
    };
    let account = |name: &str| {
        let groups = [
            "system:serviceaccounts",
            "system:serviceaccounts:kube-bind",
            "system:authenticated",
        ];
        user(&format!("system:serviceaccount:kube-bind:{name}"), &groups)
    };
    let tokens = [
        ("admin", user("admin", &["system:masters", "system:authenticated"])),
        ("alice", user("alice", &["system:authenticated"])),
        ("bob", user("bob", &["system:authenticated"])),
        (SERVER_TOKEN, account("bindery-server")),
        (KONNECTOR_TOKEN, account("konnector")),
    ];
    ClusterSettings {
        name: cluster_host(cluster),
        tokens: tokens
            .into_iter()
            .map(|(token, user)| (token.to_owned(), user))
            .collect(),
        start_revision: 1_000,
    }
}
