//! Secrets and kubeconfigs that are of no use, or would do harm: each is a condition on its binding, and no other binding
//! notices.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use bindery_api::v1alpha2 as api;
use bindery_e2e::{holds_for, wildwest};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    offer::Offer,
    world::{A_WHILE, Case, case, kubeconfig},
};

const INVALID: &str = "KubeconfigSecretInvalid";

/// A kubeconfig that is refused: the name of its binding, what is done to a good one, and what the condition says.
type Refused = (&'static str, fn(&mut Value, &Path), &'static [&'static str]);

const REFUSED: [Refused; 15] = [
    (
        "k-exec",
        |k, trap| user(k)["exec"] = exec(trap),
        &["exec", "runs a program", "users[].user.token"],
    ),
    (
        "k-auth-provider",
        |k, trap| user(k)["auth-provider"] = json!({"name": "oidc", "config": {"cmd-path": trap}}),
        &["auth-provider", "runs a plugin", "users[].user.token"],
    ),
    (
        "k-token-file",
        |k, _| user(k)["tokenFile"] = json!("/etc/hostname"),
        &["tokenFile", "reads a file"],
    ),
    (
        "k-client-certificate",
        |k, _| user(k)["client-certificate"] = json!("/etc/hostname"),
        &["client-certificate", "reads a file", "client-certificate-data"],
    ),
    (
        "k-client-key",
        |k, _| user(k)["client-key"] = json!("/etc/hostname"),
        &["client-key", "reads a file", "client-key-data"],
    ),
    (
        "k-impersonate",
        |k, _| user(k)["as"] = json!("system:admin"),
        &["impersonation", "remove it"],
    ),
    (
        "k-insecure",
        |k, _| cluster(k)["insecure-skip-tls-verify"] = json!(true),
        &[
            "insecure-skip-tls-verify",
            "trusts whoever answers",
            "certificate-authority-data",
        ],
    ),
    (
        "k-proxy",
        |k, _| cluster(k)["proxy-url"] = json!("http://127.0.0.1:9"),
        &["proxy-url", "remove it"],
    ),
    (
        "k-ca-file",
        |k, _| cluster(k)["certificate-authority"] = json!("/etc/hostname"),
        &["certificate-authority", "reads a file"],
    ),
    (
        "k-http",
        |k, _| cluster(k)["server"] = json!("http://127.0.0.1:9"),
        &["plain http", "https://"],
    ),
    (
        "k-no-namespace",
        |k, _| k["contexts"][0]["context"]["namespace"] = Value::Null,
        &["no namespace", "contexts[].context.namespace"],
    ),
    (
        "k-bad-namespace",
        |k, _| k["contexts"][0]["context"]["namespace"] = json!("../kube-system"),
        &["no valid name", "bind again"],
    ),
    (
        "k-no-context",
        |k, _| k["current-context"] = Value::Null,
        &["no current-context", "bind again"],
    ),
    (
        "k-no-token",
        |k, _| user(k)["token"] = Value::Null,
        &["no users[].user.token", "bind again"],
    ),
    (
        "k-extension",
        |k, _| cluster(k)["extensions"] = json!([{"name": "kube-bind.io/backend", "extension": {"address": 5}}]),
        &["kube-bind.io/backend", "bind again"],
    ),
];

fn user(kubeconfig: &mut Value) -> &mut Value {
    &mut kubeconfig["users"][0]["user"]
}

fn cluster(kubeconfig: &mut Value) -> &mut Value {
    &mut kubeconfig["clusters"][0]["cluster"]
}

/// A program that would leave a trace.
fn exec(trap: &Path) -> Value {
    json!({
        "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never",
        "command": "touch", "args": [trap],
    })
}

#[test]
fn a_bad_secret_is_a_condition_and_stalls_no_other_binding() -> Result<()> {
    case("secrets", async |case| {
        let offer = case.offer().await?;
        let principal = case.principal("secrets", &["secrets"]).await?;
        let good = kubeconfig(&principal.bind("secrets", &case.identity()).await?)?;
        let trap = case.consumer().plane.workdir().path().join("trap");

        plant(case, &good, &trap).await?;
        // All the bad ones are there; a good one is served all the same.
        case.bind(&principal, &[]).await?;
        sync_works(case, offer).await?;

        for (name, _, says) in REFUSED {
            let secret = format!("kube-bind/{name}");
            let says: Vec<&str> = [&[secret.as_str()], says].concat();
            case.refused_binding(name, "SecretValid", INVALID, &says).await?;
        }
        let says = ["kube-bind/k-yaml", "cannot be parsed", "unchanged"];
        case.refused_binding("k-yaml", "SecretValid", INVALID, &says).await?;
        let says = ["kube-bind/k-no-key", "no key kubeconfig"];
        case.refused_binding("k-no-key", "SecretValid", INVALID, &says).await?;
        let says = ["kube-bind/k-no-secret does not exist", "key kubeconfig", "bind again"];
        case.refused_binding("k-no-secret", "SecretValid", "KubeconfigSecretNotFound", &says)
            .await?;
        let says = ["wild-secrets/k-elsewhere", "only in namespace kube-bind"];
        case.refused_binding("k-elsewhere", "SecretValid", INVALID, &says)
            .await?;

        ensure!(!trap.exists(), "a provider's program was run");
        nothing_of_the_bad_ones(case).await?;
        mending_is_noticed(case, &good).await?;
        // One that never was any good can be taken away.
        case.unbind("k-exec").await?;
        case.unbind("k-no-secret").await
    })
}

async fn plant(case: &Case, good: &str, trap: &Path) -> Result<()> {
    for (name, spoil, _) in REFUSED {
        let mut document: Value = serde_saphyr::from_str(good)?;
        spoil(&mut document, trap);
        case.plant_binding(name, &serde_saphyr::to_string(&document)?).await?;
    }
    case.plant_binding("k-yaml", "apiVersion: v1\nclusters: [{{{\n").await?;
    case.plant_secret("k-no-key", "other", good).await?;
    case.plant_binding_to("k-no-key", "kube-bind", "k-no-key").await?;
    case.plant_binding_to("k-no-secret", "kube-bind", "k-no-secret").await?;
    // A good kubeconfig in a namespace whose Secrets the konnector does not read.
    let client = case.consumer().plane.client();
    wildwest::namespace(client.clone(), "wild-secrets").await?;
    let mut secret = k8s_openapi::api::core::v1::Secret {
        string_data: Some([("kubeconfig".to_owned(), good.to_owned())].into()),
        ..Default::default()
    };
    secret.metadata.name = Some("k-elsewhere".to_owned());
    Api::namespaced(client, "wild-secrets")
        .create(&PostParams::default(), &secret)
        .await?;
    case.plant_binding_to("k-elsewhere", "wild-secrets", "k-elsewhere")
        .await
}

async fn sync_works(case: &Case, offer: Offer) -> Result<()> {
    let namespace = "wild-secrets";
    let ours = case.ours(offer, namespace);
    ours.create(&PostParams::default(), &offer.widget("good", "red"))
        .await?;
    let copies = case.copies(offer, namespace);
    wildwest::wait("the good one's copy", &copies, "good", |copy| {
        copy.data["spec"]["color"] == "red"
    })
    .await?;
    Ok(())
}

/// No CRD, and no contact with a provider, for bindings that were refused.
async fn nothing_of_the_bad_ones(case: &Case) -> Result<()> {
    let client = case.consumer().plane.client();
    let bindings: Api<api::APIServiceBinding> = Api::all(client.clone());
    let crds: Api<CustomResourceDefinition> = Api::all(client);
    holds_for("nothing made for bad bindings", A_WHILE, async || {
        for crd in crds.list(&ListParams::default()).await? {
            let owners = crd.metadata.owner_references.unwrap_or_default();
            ensure!(owners.iter().all(|owner| !owner.name.starts_with("k-")), "{owners:?}");
        }
        for (name, ..) in REFUSED {
            let status = bindings.get(name).await?.status.context("a status")?;
            ensure!(
                status.contract_uid.is_none() && status.bound_schemas.is_empty(),
                "{name}: {status:?}"
            );
        }
        Ok(())
    })
    .await
}

/// A Secret that comes later is used at once.
async fn mending_is_noticed(case: &Case, good: &str) -> Result<()> {
    case.plant_secret("k-no-secret", "kubeconfig", good).await?;
    let secrets: Api<k8s_openapi::api::core::v1::Secret> = Api::namespaced(case.consumer().plane.client(), "kube-bind");
    let patch = Patch::Merge(json!({"stringData": {"kubeconfig": good}}));
    secrets.patch("k-no-namespace", &PatchParams::default(), &patch).await?;
    for name in ["k-no-secret", "k-no-namespace"] {
        // The provider is reached, and has no export of that name.
        let says = [name, "does not exist on the provider", "bind again"];
        case.refused_binding(name, "Connected", "APIServiceExportNotFound", &says)
            .await?;
    }
    Ok(())
}
