//! Who stole the token of the server's account, or of the konnector's. RBAC gives them much, since contracts and bindings need it;
//! what is not for these, the policies on the accounts refuse.

mod konnector;
mod server;

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::NAMESPACE;
use futures::{StreamExt as _, stream};
use http::{Method, StatusCode};
use kube::Client;
use serde_json::{Value, json};

use crate::{
    attempt::{CONCURRENCY, send},
    served::{Served, Stock},
};

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const STRANGER: &str = "stranger";
/// Types of Secrets that the API server or a tool acts on.
const TOKEN: &str = "kubernetes.io/service-account-token";

/// One request of a chain.
struct Step {
    method: Method,
    path: String,
    body: Value,
}

fn post(path: impl Into<String>, body: Value) -> Step {
    Step {
        method: Method::POST,
        path: path.into(),
        body,
    }
}

fn patch(path: impl Into<String>, body: Value) -> Step {
    Step {
        method: Method::PATCH,
        path: path.into(),
        body,
    }
}

fn get(path: impl Into<String>) -> Step {
    Step {
        method: Method::GET,
        path: path.into(),
        body: Value::Null,
    }
}

fn delete(path: impl Into<String>) -> Step {
    Step {
        method: Method::DELETE,
        path: path.into(),
        body: json!({}),
    }
}

/// A deletion that deletes nothing. An API server reads the options from the content, if there is any.
fn dry_delete(path: impl Into<String>) -> Step {
    Step {
        body: json!({"apiVersion": "v1", "kind": "DeleteOptions", "dryRun": ["All"]}),
        ..delete(path)
    }
}

impl Step {
    async fn run(&self, client: &Client) -> Result<StatusCode> {
        let content_type = if self.method == Method::PATCH { MERGE } else { JSON };
        let body = (!self.body.is_null()).then(|| (content_type, self.body.clone()));
        Ok(send(client, &self.method, &self.path, body.as_ref(), &[]).await?.status)
    }
}

/// Goes through chains for real, whatever becomes of a step. The last step of each must not succeed.
async fn none_arrives(client: &Client, chains: &[(&'static str, Vec<Step>)]) -> Result<()> {
    let mut arrived = Vec::new();
    for (name, chain) in chains {
        let mut last = None;
        for step in chain {
            last = Some(step.run(client).await.context(*name)?);
        }
        if last.context("an empty chain")?.is_success() {
            arrived.push(*name);
        }
    }
    ensure!(arrived.is_empty(), "these arrived: {arrived:?}");
    Ok(())
}

/// A role binding, or a cluster-wide one.
fn binding(name: &str, contract: &str, role: &str, subject: (&str, &str)) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"kube-bind.io/contract": contract}},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "namespace": subject.0, "name": subject.1}],
    })
}

fn token_secret(account: &str) -> Value {
    json!({
        "metadata": {"name": "loot", "annotations": {"kubernetes.io/service-account.name": account}}, "type": TOKEN,
    })
}

/// The paths of role bindings, Secrets and service accounts of a namespace.
fn paths(namespace: &str) -> [String; 3] {
    [
        format!("{RBAC}/namespaces/{namespace}/rolebindings"),
        format!("/api/v1/namespaces/{namespace}/secrets"),
        format!("/api/v1/namespaces/{namespace}/serviceaccounts"),
    ]
}

/// A request that succeeded.
#[derive(Debug)]
struct Done {
    verb: &'static str,
    group: String,
    resource: String,
    namespace: Option<String>,
    name: String,
}

/// Tries every verb on every resource as a dry run, on what is there and on a new object.
async fn everything(thief: &Client, served: &[Served], stock: &Stock, namespaces: &[&str]) -> Result<Vec<Done>> {
    let mut attempts = Vec::new();
    for resource in served {
        let places: Vec<Option<&str>> = if resource.namespaced {
            namespaces.iter().copied().map(Some).collect()
        } else {
            vec![None]
        };
        for place in places {
            attempts.extend(of(resource, place, stock));
        }
    }
    ensure!(attempts.len() > 1_000, "only {} attempts", attempts.len());
    let outcomes: Vec<_> = stream::iter(attempts)
        .map(async |(step, done)| Ok::<_, anyhow::Error>((step.run(thief).await?, done)))
        .buffer_unordered(CONCURRENCY)
        .collect()
        .await;
    let mut all = Vec::new();
    for outcome in outcomes {
        let (status, done) = outcome?;
        // What exists already was let in.
        if status.is_success() || status == StatusCode::CONFLICT {
            all.push(done);
        }
    }
    Ok(all)
}

fn of(resource: &Served, namespace: Option<&str>, stock: &Stock) -> Vec<(Step, Done)> {
    let (_, subresource) = resource.split();
    let (api_version, kind) = &resource.body;
    let done = |verb: &'static str, name: &str| Done {
        verb,
        group: resource.group.clone(),
        resource: resource.name.clone(),
        namespace: namespace.map(str::to_owned),
        name: name.to_owned(),
    };
    let fresh = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "raider"}});
    let mut names: Vec<_> = stock
        .of(resource, namespace)
        .filter_map(|object| object["metadata"]["name"].as_str())
        .take(4)
        .collect();
    names.push("raider");
    let mut all = Vec::new();
    for verb in &resource.verbs {
        match (verb.as_str(), subresource) {
            ("list", None) => all.push((
                get(format!("{}?limit=1", resource.collection(namespace))),
                done("list", ""),
            )),
            ("create", None) => all.push((
                post(format!("{}?dryRun=All", resource.collection(namespace)), fresh.clone()),
                done("create", "raider"),
            )),
            ("get" | "patch" | "delete" | "create", _) => {
                for name in &names {
                    let path = format!("{}?dryRun=All", resource.object(namespace, name));
                    let label = json!({"metadata": {"labels": {"raided": "yes"}}});
                    all.push(match verb.as_str() {
                        "get" => (get(path), done("get", name)),
                        "patch" => (patch(path, label), done("patch", name)),
                        "create" => (post(path, fresh.clone()), done("create", name)),
                        _ => (dry_delete(path), done("delete", name)),
                    });
                }
            }
            _ => {}
        }
    }
    all
}

/// Puts a stranger's namespace and another program's Secret there, unless they are.
async fn plant(admin: &Client) -> Result<()> {
    for (path, object) in [
        ("/api/v1/namespaces".to_owned(), json!({"metadata": {"name": STRANGER}})),
        (
            format!("/api/v1/namespaces/{STRANGER}/secrets"),
            json!({"metadata": {"name": "gold"}}),
        ),
        (
            format!("/api/v1/namespaces/{NAMESPACE}/secrets"),
            json!({"metadata": {"name": "others"}}),
        ),
    ] {
        let status = post(path.clone(), object).run(admin).await?;
        ensure!(
            status.is_success() || status == StatusCode::CONFLICT,
            "{path}: {status}"
        );
    }
    Ok(())
}
