//! The konnector's account, on the consumer.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bindery_api::names;
use bindery_e2e::{Consumer, NAMESPACE, bound::Bound, eventually, eventually_ok, lease, run};
use http::StatusCode;
use kube::Client;
use serde_json::{Value, json};

use super::{
    Done, RBAC, STRANGER, Step, binding, delete, dry_delete, everything, get, none_arrives, patch, paths, plant, post,
    token_secret,
};
use crate::served::{self, Stock};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Ways of the konnector's account to more than bindings.
#[expect(clippy::too_many_lines, reason = "one row for each way")]
fn konnector_chains() -> Vec<(&'static str, Vec<Step>)> {
    let [own_bindings, own_secrets, own_accounts] = paths(NAMESPACE);
    let [system_bindings, system_secrets, system_accounts] = paths("kube-system");
    let me = (NAMESPACE, "konnector");
    let secret = |type_: &str| json!({"metadata": {"name": "loot"}, "type": type_});
    let definition = |group: &str, conversion: Value| {
        json!({
            "metadata": {"name": format!("raids.{group}"), "ownerReferences": [{
                "apiVersion": "kube-bind.io/v1alpha2", "kind": "APIServiceBinding", "name": "raid", "uid": "0-1", "controller": true,
            }]},
            "spec": {
                "group": group, "scope": "Namespaced", "names": {"plural": "raids", "kind": "Raid"}, "conversion": conversion,
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
            },
        })
    };
    let webhook = json!({"strategy": "Webhook", "webhook": {
        "conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://raid.example.dev"},
    }});
    vec![
        (
            "a token Secret of its own",
            vec![post(&own_secrets, token_secret("konnector"))],
        ),
        (
            "a token Secret of a controller",
            vec![post(
                &system_secrets,
                token_secret("clusterrole-aggregation-controller"),
            )],
        ),
        (
            "a release of Helm",
            vec![post(&own_secrets, secret("helm.sh/release.v1"))],
        ),
        (
            "a release of Helm elsewhere",
            vec![post(&system_secrets, secret("helm.sh/release.v1"))],
        ),
        (
            "the history of a set",
            vec![post(&own_secrets, secret("synk.cloudrobotics.com/history"))],
        ),
        (
            "a bootstrap token",
            vec![post(&system_secrets, secret("bootstrap.kubernetes.io/token"))],
        ),
        ("the Secrets of the cluster", vec![get("/api/v1/secrets")]),
        ("the Secrets of kube-system", vec![get(&system_secrets)]),
        (
            "a token of itself",
            vec![post(
                format!("{own_accounts}/konnector/token"),
                json!({"spec": {"audiences": []}}),
            )],
        ),
        (
            "a token of a controller",
            vec![post(
                format!("{system_accounts}/clusterrole-aggregation-controller/token"),
                json!({"spec": {"audiences": []}}),
            )],
        ),
        (
            "a binding of cluster-admin",
            vec![post(
                format!("{RBAC}/clusterrolebindings"),
                binding("kube-bind-konnector-raid", "x", "cluster-admin", me),
            )],
        ),
        (
            "a binding of admin in its namespace",
            vec![post(&own_bindings, binding("raid", "x", "admin", me))],
        ),
        (
            "a binding of admin in kube-system",
            vec![post(&system_bindings, binding("raid", "x", "admin", me))],
        ),
        (
            "a role of a binding",
            vec![post(
                format!("{RBAC}/clusterroles"),
                json!({"metadata": {"name": "kube-bind-konnector-raid"}, "rules": []}),
            )],
        ),
        (
            "more in its own role",
            vec![patch(
                format!("{RBAC}/clusterroles/kube-bind-konnector"),
                json!({"metadata": {"labels": {"a": "b"}}}),
            )],
        ),
        (
            "the end of a role of Kubernetes",
            vec![delete(format!("{RBAC}/clusterroles/view"))],
        ),
        (
            "a definition of Kubernetes",
            vec![post(DEFINITIONS, definition("raid.k8s.io", Value::Null))],
        ),
        (
            "a definition with a conversion",
            vec![post(DEFINITIONS, definition("raid.example.dev", webhook))],
        ),
        (
            "a definition of somebody",
            vec![delete(format!("{DEFINITIONS}/apiservicebindings.kube-bind.io"))],
        ),
        (
            "a namespace with labels",
            vec![post(
                "/api/v1/namespaces",
                json!({
                    "metadata": {"name": "raid", "labels": {"pod-security.kubernetes.io/enforce": "privileged"}},
                }),
            )],
        ),
        (
            "the Lease of a controller",
            vec![patch(
                "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager",
                json!({"spec": {"holderIdentity": "x"}}),
            )],
        ),
        (
            "its own policy",
            vec![delete(
                "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/kube-bind-konnector-account",
            )],
        ),
        (
            "a certificate of an admin",
            vec![post(
                "/apis/certificates.k8s.io/v1/certificatesigningrequests",
                json!({
                    "metadata": {"name": "raid"},
                    "spec": {"request": "cmFpZA==", "signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"]},
                }),
            )],
        ),
        (
            "a pod",
            vec![post(
                format!("/api/v1/namespaces/{NAMESPACE}/pods"),
                json!({
                    "metadata": {"name": "raid"}, "spec": {"containers": [{"name": "raid", "image": "raid"}]},
                }),
            )],
        ),
    ]
}

/// An API server notices a policy some seconds after it was applied. Until then it admits what the policy forbids.
async fn policies_are_in_force(thief: &Client) -> Result<()> {
    let [_, secrets, _] = paths(NAMESPACE);
    let secret = |name: &str| post(format!("{secrets}?dryRun=All"), json!({"metadata": {"name": name}}));
    // Each is refused by one of them alone.
    for (policy, probe) in [
        ("on the account", secret(names::POLICY_PROBE)),
        ("on claims", secret("synk-policy-probe")),
        (
            "on definitions",
            dry_delete(format!("{DEFINITIONS}/apiservicebindings.kube-bind.io")),
        ),
    ] {
        eventually_ok(format!("the policy {policy}"), Duration::from_mins(1), async || {
            let status = probe.run(thief).await?;
            // A policy without a reason answers as if the object were invalid, which each of these is not.
            let is_refused = [StatusCode::FORBIDDEN, StatusCode::UNPROCESSABLE_ENTITY].contains(&status);
            ensure!(is_refused, "{status}");
            Ok(())
        })
        .await?;
    }
    Ok(())
}

/// With all rights beside its own, as if each binding named everything: what is refused then, the policies refuse.
#[test]
fn a_stolen_token_of_the_konnector_leads_no_further_than_bindings() -> Result<()> {
    run(async {
        let consumer = Consumer::start_with("robbed", &lease::PATIENT).await?;
        let thief = consumer.plane.service_account_client(NAMESPACE, "konnector").await?;
        policies_are_in_force(&thief).await?;
        none_arrives(&thief, &konnector_chains())
            .await
            .context("with its own rights")?;
        let all = json!({"apiVersion": "v1", "kind": "List", "items": [
            {
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "writes"},
                "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": [
                    "create", "update", "patch", "delete", "bind", "escalate", "approve", "sign",
                ]}],
            },
            {
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "writes"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "writes"},
                "subjects": [{"kind": "ServiceAccount", "namespace": NAMESPACE, "name": "konnector"}],
            },
        ]});
        consumer.plane.apply(&all.to_string()).await?;
        let may = post(
            format!("/api/v1/namespaces/{STRANGER}/configmaps?dryRun=All"),
            json!({"metadata": {"name": "x"}}),
        );
        eventually("the rights", Duration::from_mins(1), async || {
            // Not there, but no longer forbidden by RBAC.
            Ok((may.run(&thief).await? == StatusCode::NOT_FOUND).then_some(()))
        })
        .await?;
        // But policies and the binding of policies, which no policy looks at.
        let mut chains = konnector_chains();
        chains.retain(|(name, _)| *name != "its own policy");
        none_arrives(&thief, &chains).await.context("with all rights to write")
    })
}

#[test]
fn a_stolen_token_of_the_konnector_writes_and_reads_nothing_else() -> Result<()> {
    run(async {
        let mut bound = Bound::start("looted", &lease::PATIENT).await?;
        bound.create(["billy".to_owned()]).await?;
        bound.converged().await?;
        let plane = &bound.consumer.plane;
        let admin = plane.client();
        plant(&admin).await?;
        let thief = plane.service_account_client(NAMESPACE, "konnector").await?;
        policies_are_in_force(&thief).await?;
        let served = served::discover(&admin).await?;
        let stock = Stock::take(&admin, &served).await?;
        let namespaces = [NAMESPACE, "wild-west", STRANGER, "kube-system"];
        let done = everything(&thief, &served, &stock, &namespaces).await?;
        ensure!(
            done.iter().any(|done| done.resource == "cowboys"),
            "nothing of its own: {done:#?}"
        );
        let beyond: Vec<_> = done.iter().filter(|done| !is_the_konnectors(done)).collect();
        ensure!(beyond.is_empty(), "beyond bindings: {beyond:#?}");
        Ok(())
    })
}

/// Whether a request is part of serving the binding of `cowboys`, or reads what says where bound objects can be.
fn is_the_konnectors(done: &Done) -> bool {
    let reads = ["get", "list"].contains(&done.verb);
    let is_own = done.namespace.as_deref() == Some(NAMESPACE);
    match (&*done.group, &*done.resource) {
        // What is bound, and questions about itself.
        ("wildwest.dev", "cowboys" | "cowboys/status") | ("authentication.k8s.io" | "authorization.k8s.io", _) => true,
        ("kube-bind.io", resource) => !resource.contains('/') || resource.ends_with("/status"),
        ("events.k8s.io", _) => !reads,
        ("", "namespaces") => reads,
        // The policies on its account, by their names.
        ("admissionregistration.k8s.io", "validatingadmissionpolicies" | "validatingadmissionpolicybindings") => {
            done.verb == "get" && done.name.starts_with("kube-bind-konnector")
        }
        // What is bound, and its own definitions, which it brings up to date.
        ("apiextensions.k8s.io", "customresourcedefinitions") => {
            reads
                || done.name == "cowboys.wildwest.dev"
                || (done.verb == "patch" && done.name.ends_with(".kube-bind.io"))
        }
        // The rights that came with a binding go with it.
        ("rbac.authorization.k8s.io", "clusterroles" | "clusterrolebindings") => {
            done.verb == "delete" && done.name == "kube-bind-konnector-cowboys"
        }
        // In its own namespace, which is for nothing else: the kubeconfigs of bindings, which it renews, and the Lease by which it leads.
        ("", "secrets") | ("coordination.k8s.io", "leases") => is_own,
        _ => false,
    }
}
