//! A tenant who may make requests as resources in a namespace of its own, and what it tries with the other's names.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bindery_api::{
    annotations, labels, names,
    v1alpha2::{BindableResourcesRequest, Phase},
};
use bindery_e2e::{NAMESPACE, eventually_ok, holds_for, wildwest::SOON};
use http::Method;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client, ResourceExt as _,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{
    attempt::{self, Attempt, Expect},
    offers::{HORSES, MASKS},
    world::{Scope, World, attack},
};

const GANG: &str = "joe-gang";
const MERGE: &str = "application/merge-patch+json";
/// How long something that must not happen is waited for.
const A_WHILE: Duration = Duration::from_secs(5);

/// Lets the attacker write requests and their status in its namespace, and the server answer there. Gives a client.
async fn armed(world: &World) -> Result<Client> {
    let plane = &world.provider.plane;
    let role = |name: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": name, "name": "asks"});
    let metadata = json!({"name": "asks", "namespace": GANG});
    let kind = |kind: &str| json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": metadata});
    let (mut rights, mut mine, mut servers) = (kind("Role"), kind("RoleBinding"), kind("RoleBinding"));
    rights["rules"] = json!([{
        "apiGroups": ["kube-bind.io"], "resources": ["bindableresourcesrequests", "bindableresourcesrequests/status"],
        "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"],
    }]);
    mine["roleRef"] = role("Role");
    mine["subjects"] = json!([{"kind": "ServiceAccount", "namespace": GANG, "name": "binder"}]);
    servers["metadata"]["name"] = json!("responses");
    servers["roleRef"] = role("ClusterRole");
    servers["roleRef"]["name"] = json!("bindery-server-responses");
    servers["subjects"] = json!([{"kind": "ServiceAccount", "namespace": NAMESPACE, "name": "bindery-server"}]);
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [rights, mine, servers]});
    plane.apply(&list.to_string()).await?;
    let client = plane.service_account_client(GANG, "binder").await?;
    let requests: Api<BindableResourcesRequest> = Api::namespaced(client.clone(), GANG);
    // Rights take effect with a delay.
    eventually_ok("the attacker to have its rights", SOON, async || {
        Ok(requests.list(&ListParams::default()).await?)
    })
    .await?;
    Ok(client)
}

fn me() -> String {
    format!("system:serviceaccount:{GANG}:binder")
}

fn path(namespace: &str) -> String {
    format!("/apis/kube-bind.io/v1alpha2/namespaces/{namespace}/bindableresourcesrequests")
}

fn request(name: &str, template: &str, identity: &str, author: &str) -> Value {
    json!({
        "apiVersion": "kube-bind.io/v1alpha2", "kind": "BindableResourcesRequest", "metadata": {"name": name},
        "spec": {"templateRef": {"name": template}, "clusterIdentity": {"identity": identity}, "author": author},
    })
}

/// Every way to create that request in a namespace.
fn creations(namespace: &str, request: &Value, expect: Expect) -> Vec<Attempt> {
    let mut attempts = Vec::new();
    let mut send = |method: Method, path: String, content_type: &'static str, body: Value| {
        let mut attempt = Attempt::new(method, path, expect);
        attempt.body = Some((content_type, body));
        attempts.push(attempt);
    };
    let name = request["metadata"]["name"].as_str().unwrap_or_default();
    let mut generated = request.clone();
    generated["metadata"]["name"] = Value::Null;
    generated["metadata"]["generateName"] = json!("raid-");
    for query in ["", "?dryRun=All"] {
        let (json, to) = ("application/json", format!("{}{query}", path(namespace)));
        send(Method::POST, to.clone(), json, request.clone());
        send(Method::POST, to, json, generated.clone());
    }
    let apply = format!("{}/{name}?fieldManager=joe&force=true", path(namespace));
    send(Method::PATCH, apply, "application/apply-patch+yaml", request.clone());
    attempts
}

#[test]
fn nobody_asks_in_the_name_of_another() -> Result<()> {
    attack(Scope::Namespaced, async |world| {
        let (client, zorro) = (armed(world).await?, &world.zorro);
        let identity = zorro.identity.as_str();
        let others = [
            "system:serviceaccount:zorro-gang:binder".to_owned(),
            zorro.account(),
            world.joe.account(),
            format!("system:serviceaccount:{NAMESPACE}:bindery-server"),
            "system:admin".to_owned(),
            "system:masters".to_owned(),
            String::new(),
        ];
        let mut attempts = Vec::new();
        for other in &others {
            let asked = request("raid", HORSES.name, identity, other);
            attempts.extend(creations(GANG, &asked, Expect::Policy));
        }
        // What it may not bind, and marks that would say who was verified.
        attempts.extend(creations(
            GANG,
            &request("raid", MASKS.name, "joes", &me()),
            Expect::Policy,
        ));
        let verified = json!({"username": "system:serviceaccount:zorro-gang:binder"}).to_string();
        for metadata in [
            json!({"name": "raid", "labels": {labels::VIA: labels::VIA_GRPC}}),
            json!({"name": "raid", "annotations": {annotations::PRINCIPAL: verified}}),
            json!({"name": "raid", "annotations": {annotations::REQUEST_NAME: "zorro-horses"}}),
        ] {
            let mut asked = request("raid", HORSES.name, "joes", &me());
            asked["metadata"] = metadata;
            attempts.extend(creations(GANG, &asked, Expect::Policy));
        }
        // Elsewhere it may not ask at all; nor may the account of its contract, anywhere.
        let places = [
            "zorro-gang",
            &zorro.contract,
            &zorro.space,
            &world.joe.contract,
            NAMESPACE,
            "default",
        ];
        let own = request("raid", HORSES.name, "joes", &me());
        for place in places {
            attempts.extend(creations(place, &own, Expect::Forbidden));
        }
        attempt::all(&client, &attempts).await?;
        let account = request("raid", HORSES.name, "joes", &world.joe.account());
        let attempts: Vec<_> = places
            .iter()
            .chain(&[GANG])
            .flat_map(|place| creations(place, &account, Expect::Forbidden))
            .collect();
        attempt::all(&world.joe.client, &attempts).await?;
        let requests: Api<BindableResourcesRequest> = Api::namespaced(client, GANG);
        let made: Vec<_> = requests
            .list(&ListParams::default())
            .await?
            .into_iter()
            .map(|it| it.name_any())
            .collect();
        ensure!(!made.iter().any(|name| name.starts_with("raid")), "made: {made:?}");
        Ok(())
    })
}

/// Waits until a request has come so far.
async fn comes_to(requests: &Api<BindableResourcesRequest>, name: &str, phase: Phase) -> Result<()> {
    eventually_ok(format!("request {name} to be {phase:?}"), SOON, async || {
        let status = requests.get(name).await?.status.context("no status")?;
        ensure!(status.phase == phase, "{status:?}");
        Ok(())
    })
    .await
}

#[test]
fn a_request_reaches_no_contract_of_another() -> Result<()> {
    attack(Scope::Namespaced, async |world| {
        let (client, zorro) = (armed(world).await?, &world.zorro);
        let requests: Api<BindableResourcesRequest> = Api::namespaced(client.clone(), GANG);
        let own = request("asks-own", HORSES.name, "joes-other-cluster", &me());
        let mut attempts = creations(GANG, &own, Expect::Own);
        attempts.retain(|attempt| attempt.method == Method::PATCH);
        let taken = request("asks-taken", HORSES.name, &zorro.identity, &me());
        attempts.extend(
            creations(GANG, &taken, Expect::Own)
                .into_iter()
                .filter(|it| it.method == Method::PATCH),
        );
        attempt::all(&client, &attempts).await?;
        comes_to(&requests, "asks-own", Phase::Succeeded).await?;
        comes_to(&requests, "asks-taken", Phase::Failed).await?;

        // What was asked does not change, and what became of it gives nothing.
        let mut attempts = Vec::new();
        for change in [
            json!({"clusterIdentity": {"identity": zorro.identity}}),
            json!({"author": "system:serviceaccount:zorro-gang:binder"}),
            json!({"templateRef": {"name": MASKS.name}}),
        ] {
            let mut attempt = Attempt::new(Method::PATCH, format!("{}/asks-own", path(GANG)), Expect::Policy);
            attempt.body = Some((MERGE, json!({"spec": change})));
            attempts.push(attempt);
        }
        attempt::all(&client, &attempts).await?;
        for name in ["asks-own", "asks-taken"] {
            let forged = json!({
                "spec": {"author": "system:serviceaccount:zorro-gang:binder"},
                "status": {
                    "phase": "Succeeded", "namespace": zorro.contract, "completionTime": jiff::Timestamp::now(),
                    "kubeconfigSecretRef": {"name": "loot", "key": "kubeconfig"},
                },
            });
            requests
                .patch_status(name, &PatchParams::default(), &Patch::Merge(forged))
                .await?;
            ensure!(
                requests.get(name).await?.spec.author == me(),
                "the author of {name} has changed"
            );
        }
        let secrets: Api<Secret> = Api::namespaced(world.provider.plane.client(), GANG);
        secrets
            .delete(&names::response_secret("asks-own"), &kube::api::DeleteParams::default())
            .await?;
        holds_for("no response leads to the other", A_WHILE, async || {
            for secret in secrets.list(&ListParams::default()).await? {
                let name = secret.name_any();
                let told: String = secret
                    .data
                    .iter()
                    .flatten()
                    .map(|(_, value)| String::from_utf8_lossy(&value.0))
                    .collect();
                ensure!(
                    !told.contains(&zorro.contract) && name != "loot",
                    "{name} holds what is the other's"
                );
            }
            Ok(())
        })
        .await?;
        // The one that it has a right to comes back, for its own contract.
        let own = bindery_e2e::Provider::contract("joes-other-cluster");
        eventually_ok("its own response to come back", SOON, async || {
            let secret = secrets.get(&names::response_secret("asks-own")).await?;
            let kubeconfig = secret
                .data
                .as_ref()
                .and_then(|data| data.get(names::KUBECONFIG_KEY))
                .context("no key")?;
            ensure!(
                String::from_utf8_lossy(&kubeconfig.0).contains(&own),
                "another contract"
            );
            Ok(())
        })
        .await
    })
}
