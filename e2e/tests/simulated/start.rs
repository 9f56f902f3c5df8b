//! What both control planes begin with: definitions, policies and rights, written to both in the same way.

use std::time::Duration;

use anyhow::{Result, ensure};
use jiff::Timestamp;
use serde_json::Value;
use tokio::time::sleep;

use crate::{
    generate::step::{Call, User},
    sides::{memory::Memory, real::Real, wire::wire},
};

/// Kinds of the manifests, and where they are created.
const PATHS: [(&str, &str); 6] = [
    ("Namespace", "/api/v1/namespaces"),
    ("ClusterRole", "/apis/rbac.authorization.k8s.io/v1/clusterroles"),
    (
        "ClusterRoleBinding",
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    ),
    (
        "CustomResourceDefinition",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    ),
    (
        "ValidatingAdmissionPolicy",
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    ),
    (
        "ValidatingAdmissionPolicyBinding",
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
    ),
];

/// How often is asked whether the real API server has taken everything up.
const ATTEMPTS: usize = 200;

/// The request that creates a manifest.
fn create(object: &Value) -> Result<Call> {
    let kind = object["kind"].as_str().unwrap_or_default();
    let path = PATHS.iter().find(|(its, _)| *its == kind);
    ensure!(path.is_some(), "no path for kind {kind:?}");
    let path = path.map_or("", |(_, path)| path);
    Ok(Call::post(path, object.clone()))
}

/// Writes the manifests to the in-memory control plane.
pub(crate) fn fill_memory(memory: &mut Memory, objects: &[Value]) -> Result<()> {
    for object in objects {
        let Some(wire) = wire(&create(object)?, &Vec::new()) else {
            continue;
        };
        let answer = memory.call(&wire, Timestamp::now())?;
        ensure!(
            answer.status == 201,
            "the in-memory API server refuses {object}: {:?}",
            answer.body
        );
    }
    memory.settle()
}

/// Writes the manifests to the real control plane.
pub(crate) async fn fill_real(real: &Real, objects: &[Value]) -> Result<()> {
    for object in objects {
        let Some(wire) = wire(&create(object)?, &Vec::new()) else {
            continue;
        };
        let answer = real.call(&wire).await?;
        ensure!(
            answer.status == 201,
            "the API server refuses {object}: {:?}",
            answer.body
        );
    }
    Ok(())
}

/// Waits until definitions are served and policies refuse.
pub(crate) async fn is_ready(real: &Real) -> Result<()> {
    let asks: [(Call, u16, &str); 4] = probes();
    for (call, status, words) in asks {
        let Some(wire) = wire(&call, &Vec::new()) else { continue };
        let mut last = None;
        for _ in 0..ATTEMPTS {
            let answer = real.call(&wire).await?;
            let fits = answer.status == status && answer.body.to_string().contains(words);
            last = Some(answer);
            if fits {
                last = None;
                break;
            }
            sleep(Duration::from_millis(100)).await;
        }
        ensure!(last.is_none(), "not ready for {} {}: {last:?}", wire.method, wire.uri);
    }
    Ok(())
}

/// Users of the probes, with their groups.
pub(crate) fn users() -> [(String, Vec<String>); 2] {
    let powerful = || vec!["simulated:powerful".to_owned()];
    [
        ("system:serviceaccount:kube-bind-0:kube-binder".to_owned(), powerful()),
        ("system:serviceaccount:kube-bind:konnector".to_owned(), powerful()),
    ]
}

fn probes() -> [(Call, u16, &'static str); 4] {
    let [binder, konnector] = users().map(|(name, _)| User::Named(name));
    let post = |path: &str, api: &str, kind: &str, name: &str, spec: Value| {
        let object = serde_json::json!({"apiVersion": api, "kind": kind, "metadata": {"name": name}, "spec": spec});
        Call::post(path, object).query("dryRun", "All")
    };
    let kube_bind = |resource: &str| format!("/apis/kube-bind.io/v1alpha2/namespaces/default/{resource}");
    let request = serde_json::json!({
        "author": "x", "templateRef": {"name": "x"}, "clusterIdentity": {"identity": "x"},
    });
    [
        (Call::get("/apis/simulated.bindery.test/v1/gadgets"), 200, "GadgetList"),
        (
            post(
                &kube_bind("apiservicenamespaces"),
                "kube-bind.io/v1alpha2",
                "APIServiceNamespace",
                "policy.probe",
                Value::Null,
            )
            .by(&binder),
            403,
            "policy.probe",
        ),
        (
            post(
                &kube_bind("bindableresourcesrequests"),
                "kube-bind.io/v1alpha2",
                "BindableResourcesRequest",
                "policy.probe",
                request,
            ),
            403,
            "policy.probe",
        ),
        (
            post(
                "/api/v1/namespaces/default/configmaps",
                "v1",
                "ConfigMap",
                "x",
                Value::Null,
            )
            .by(&konnector),
            422,
            "carry its marks",
        ),
    ]
}
