//! Secrets that are of no use, or would do harm: each is a reason of its own, and mending it is noticed at once.

use anyhow::{Result, ensure};
use bindery_api::Severity;
use bindery_e2e::{holds_for, offer::Offer};
use kube::{Api, api::DeleteParams};
use serde_json::{Value, json};

use crate::{
    contract::{Contract, Credential, cluster, user},
    world::{A_WHILE, Case, case},
};

const OFFER: Offer = Offer { name: "sec-offer" };
const EXPIRED: Offer = Offer { name: "sec-expired" };

/// A kubeconfig that is refused: the end of its bundle's name, what is done to a good one, the reason, and what is said.
type Refused = (&'static str, fn(&mut Value), &'static str, &'static [&'static str]);

const REFUSED: [Refused; 9] = [
    (
        "-exec",
        |config| user(config)["exec"] = json!({"apiVersion": "client.authentication.k8s.io/v1", "command": "true"}),
        "KubeconfigUnsafe",
        &["exec"],
    ),
    (
        "-plugin",
        |config| user(config)["auth-provider"] = json!({"name": "oidc", "config": {}}),
        "KubeconfigUnsafe",
        &["auth-provider"],
    ),
    (
        "-file",
        |config| user(config)["tokenFile"] = json!("/etc/hostname"),
        "KubeconfigUnsafe",
        &["tokenFile"],
    ),
    (
        "-insecure",
        |config| cluster(config)["insecure-skip-tls-verify"] = json!(true),
        "KubeconfigUnsafe",
        &["insecure-skip-tls-verify"],
    ),
    (
        "-http",
        |config| cluster(config)["server"] = json!("http://127.0.0.1:9"),
        "KubeconfigUnsafe",
        &["https://"],
    ),
    (
        "-as",
        |config| user(config)["as"] = json!("system:admin"),
        "KubeconfigUnsafe",
        &["impersonation"],
    ),
    (
        "-nowhere",
        |config| config["contexts"][0]["context"]["namespace"] = Value::Null,
        "KubeconfigNamespaceMissing",
        &["namespace"],
    ),
    (
        "-no-context",
        |config| config["current-context"] = Value::Null,
        "KubeconfigSecretInvalid",
        &["current-context"],
    ),
    (
        "-no-token",
        |config| user(config)["token"] = Value::Null,
        "KubeconfigSecretInvalid",
        &["token"],
    ),
];

pub(crate) async fn every_bad_secret_has_a_reason_of_its_own() -> Result<()> {
    case("secrets", async |case| {
        let contract = case.contract(&case.world.p, &[OFFER]).await?;
        let good = contract.export(OFFER).await?;
        for (name, spoil, ..) in REFUSED {
            let bundle = case.bundle(name);
            bundle.give(&good.with(spoil).yaml()?).await?;
            bundle.apply(json!({})).await?;
        }
        case.bundle("-yaml").give("clusters: [{{{\n").await?;
        case.bundle("-key").give_under("other", &good.yaml()?).await?;
        let elsewhere = json!({"name": "secrets-elsewhere", "namespace": "default", "key": "kubeconfig"});
        case.bundle("-yaml").apply(json!({})).await?;
        case.bundle("-key").apply(json!({})).await?;
        case.bundle("-absent").apply(json!({})).await?;
        case.bundle("-elsewhere")
            .apply(json!({"kubeconfigSecretRef": elsewhere}))
            .await?;

        for (name, _, reason, says) in REFUSED {
            refused(case, name, reason, says).await?;
        }
        refused(case, "-yaml", "KubeconfigSecretInvalid", &["kube-bind/secrets-yaml"]).await?;
        refused(
            case,
            "-key",
            "KubeconfigKeyNotFound",
            &["kube-bind/secrets-key", "kubeconfig"],
        )
        .await?;
        refused(
            case,
            "-absent",
            "KubeconfigSecretNotFound",
            &["kube-bind/secrets-absent"],
        )
        .await?;
        refused(
            case,
            "-elsewhere",
            "KubeconfigSecretElsewhere",
            &["default/secrets-elsewhere", "kube-bind"],
        )
        .await?;
        nothing_is_bound(case).await?;
        mending_is_noticed(case, &good).await
    })
    .await
}

/// `SecretValid` says so, and `Synced` that nothing can be done without it.
async fn refused(case: &Case, name: &str, reason: &str, says: &[&str]) -> Result<()> {
    let bundle = case.bundle(name);
    bundle.complains("SecretValid", Severity::Error, reason, says).await?;
    let synced = bundle
        .is("Synced", |synced| synced.reason == "ProviderClientError")
        .await?;
    ensure!(!synced.is_true(), "{synced:?}");
    let status = bundle.status().await?;
    ensure!(
        status.observed_generation == bundle.get().await?.metadata.generation,
        "{status:?}"
    );
    Ok(())
}

async fn nothing_is_bound(case: &Case) -> Result<()> {
    holds_for("nothing to be bound", A_WHILE, async || {
        let bundle = case.bundle("-exec");
        ensure!(bundle.all_bindings.get_opt(OFFER.name).await?.is_none(), "it is bound");
        Ok(())
    })
    .await
}

/// The first one that is mended binds; the others find its binding there.
async fn mending_is_noticed(case: &Case, good: &Credential) -> Result<()> {
    let first = case.bundle("-absent");
    first.give(&good.yaml()?).await?;
    first.binds(&[OFFER.name]).await?;
    for name in ["-key", "-nowhere", "-yaml"] {
        let bundle = case.bundle(name);
        bundle.give(&good.yaml()?).await?;
        bundle.is("SecretValid", bindery_api::Condition::is_true).await?;
        let says = ["export sec-offer", "APIServiceBinding sec-offer", first.name.as_str()];
        bundle
            .complains("Synced", Severity::Warning, "SyncErrors", &says)
            .await?;
        ensure!(bundle.bindings().await?.is_empty(), "it took the binding");
    }
    first.binds(&[OFFER.name]).await
}

pub(crate) async fn a_secret_is_rotated_and_nothing_is_lost_meanwhile() -> Result<()> {
    case("rotated", async |case| {
        let (contract, bundle) = case.begin(EXPIRED, json!({"pollingInterval": "1s"})).await?;
        let pair = case.object(&contract, EXPIRED, "one").await?;
        let before = bundle.bound().await?;
        contract
            .client
            .revoke_credentials(&contract.namespace, "rotation")
            .await?;
        bundle
            .complains(
                "SecretValid",
                Severity::Error,
                "CredentialExpired",
                &["Secret kube-bind/rotated"],
            )
            .await?;
        bundle
            .is("ProviderReachable", |found| found.reason == "ProviderUnauthorized")
            .await?;
        holds_for("nothing to be lost", A_WHILE, async || {
            pair.is_here().await?;
            ensure!(bundle.bound().await? == before, "bindings changed");
            Ok(())
        })
        .await?;
        rotate(&contract, &bundle).await?;
        pair.works("rotated").await?;
        // Without the Secret, the konnector goes on with what it keeps; and with the next one.
        let secrets: Api<_> = bundle.secrets.clone();
        secrets.delete(&bundle.name, &DeleteParams::default()).await?;
        bundle
            .is("SecretValid", |found| found.reason == "KubeconfigSecretNotFound")
            .await?;
        pair.is_here().await?;
        rotate(&contract, &bundle).await?;
        pair.works("again").await
    })
    .await
}

/// Puts a new kubeconfig into the Secret.
async fn rotate(contract: &Contract, bundle: &bindery_e2e::bundle::Bundle) -> Result<()> {
    bundle.give(&contract.export(EXPIRED).await?.yaml()?).await?;
    bundle.binds(&[EXPIRED.name]).await
}
