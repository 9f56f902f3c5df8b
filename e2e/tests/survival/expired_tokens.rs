//! The provider's tokens expire or are revoked: while the konnector is away, and while it works.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, Result, ensure};
use bindery_api::{backend, conditions::ConditionStatus, labels, names as fixed, v1alpha2::APIServiceExport};
use bindery_e2e::{
    NAMESPACE, Provider, ServiceAccountClaims,
    bound::{Bound, names},
    eventually_ok,
    lease::PATIENT,
    run,
    wildwest::SOON,
};
use k8s_openapi::{
    ByteString,
    api::core::v1::{Secret, ServiceAccount},
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::calls;

/// The lifetime of a token that is soon renewed. The API server accepts it for longer than the konnector may take to start.
const SHORT: Duration = Duration::from_mins(3);
/// The age of that token when the konnector gets it: it is renewed when it is 102 to 120 seconds old.
const OLD: Duration = Duration::from_secs(99);
/// The pace of steady work.
const PACE: Duration = Duration::from_millis(100);
/// The Secret that a token of the tests' own is bound to.
const ANCHOR: &str = "short-lived";
/// The user's Secret of the binding.
const GIVEN: &str = "kubeconfig-cowboys";

/// The ServiceAccount of a contract, for which tests sign tokens with the provider's own key.
struct Binder {
    contract: String,
    uid: String,
}

#[test]
fn expired_tokens_are_renewed_or_named() -> Result<()> {
    run(async {
        let mut bound = Bound::start("expired", &PATIENT).await?;
        bound.create(names("early", 0..5)).await?;
        bound.converged().await?;
        let binder = Binder::of(&bound).await?;
        let expired = |bound: &Bound, audiences: &[&str]| {
            let mut claims = binder.claims(Duration::from_hours(1), audiences);
            claims.issued_at -= Duration::from_hours(2);
            claims.expires_at -= Duration::from_hours(2);
            bound.provider.plane.sign_service_account_token(&claims)
        };

        // Away for hours: the token for the API server has expired, the one for the backend has not.
        leave(&mut bound).await?;
        give(&bound, Some(expired(&bound, &[])?), None).await?;
        let early = come_back(&mut bound, "hours").await?;
        bound.converged().await?;
        ensure!(early == versions(&bound).await?, "objects in sync were touched");
        ensure!(
            renewed(&bound).await?.len() == 1,
            "a renewed credential is kept in one Secret"
        );
        stored_at_once(&bound)?;
        bound.bound_once().await?;

        // Away for weeks: both have expired.
        leave(&mut bound).await?;
        let backend = expired(&bound, &[&bound.provider.address()])?;
        give(&bound, Some(expired(&bound, &[])?), Some(backend)).await?;
        let early = come_back(&mut bound, "weeks").await?;
        says_what_mends_it(&bound).await?;
        ensure!(early == versions(&bound).await?, "objects were touched");
        bound.bind(&["renew", "cowboys"]).await?;
        bound.converged().await?;
        ensure!(early == versions(&bound).await?, "objects in sync were touched");
        bound.status_flows("caught").await?;
        bound.bound_once().await?;

        // Under the konnector's hands: the owner takes all credentials, and nobody renews them.
        let client = calls::client(&bound.provider, &bound.provider.address(), &bound.token)?;
        client.revoke_credentials(&binder.contract, "lost laptop").await?;
        let early = versions(&bound).await?;
        bound.create(names("revoked", 0..5)).await?;
        says_what_mends_it(&bound).await?;
        ensure!(early == versions(&bound).await?, "objects were touched");
        bound.bind(&["renew", "cowboys"]).await?;
        bound.converged().await?;
        ensure!(early == versions(&bound).await?, "objects in sync were touched");
        bound.bound_once().await?;
        bound.unbind().await
    })
}

#[test]
fn sync_goes_on_while_a_token_is_renewed() -> Result<()> {
    run(async {
        let mut bound = Bound::start("renewal", &PATIENT).await?;
        let binder = Binder::of(&bound).await?;
        leave(&mut bound).await?;
        let short = Anchored::new(&bound, &binder, SHORT, OLD).await?;
        give(&bound, Some(short.token.clone()), None).await?;
        bound.consumer.start_konnector().await?;
        is_served_again(&mut bound).await?;

        let start = Instant::now();
        let mut names = names("steady", 0..1000);
        let mut next = || names.next().context("no more names");
        while renewed(&bound).await?.is_empty() {
            works(&mut bound, &next()?).await?;
            ensure!(start.elapsed() < SOON, "the token is not renewed");
            sleep(PACE).await;
        }
        // Nothing may need the old one any more.
        short.void().await?;
        let voided = Instant::now();
        while let Err(accepted) = short.is_refused(&bound).await {
            ensure!(voided.elapsed() < SOON, "the old token is not refused: {accepted:#}");
            works(&mut bound, &next()?).await?;
            sleep(PACE).await;
        }
        works(&mut bound, &next()?).await?;
        bound.converged().await?;
        bound.bound_once().await?;
        bound.unbind().await
    })
}

#[test]
fn a_token_that_is_refused_before_its_time_is_renewed_at_once() -> Result<()> {
    run(async {
        let mut bound = Bound::start("early", &PATIENT).await?;
        let binder = Binder::of(&bound).await?;
        leave(&mut bound).await?;
        let long = Anchored::new(&bound, &binder, Duration::from_hours(1), Duration::ZERO).await?;
        give(&bound, Some(long.token.clone()), None).await?;
        bound.consumer.start_konnector().await?;
        is_served_again(&mut bound).await?;
        works(&mut bound, "before").await?;
        ensure!(renewed(&bound).await?.is_empty(), "renewed before it was refused");

        long.void().await?;
        eventually_ok("the token to be refused", SOON, async || long.is_refused(&bound).await).await?;
        bound.create(names("after", 0..5)).await?;
        bound.converged().await?;
        bound.status_flows("caught").await?;
        ensure!(
            renewed(&bound).await?.len() == 1,
            "a renewed credential is kept in one Secret"
        );
        stored_at_once(&bound)?;
        bound.bound_once().await?;
        bound.unbind().await
    })
}

/// A token that is void once its anchor is gone, as if its time were over.
struct Anchored {
    token: String,
    contract: String,
    anchors: Api<Secret>,
}

impl Anchored {
    async fn new(bound: &Bound, binder: &Binder, lifetime: Duration, age: Duration) -> Result<Self> {
        let anchors: Api<Secret> = Api::namespaced(bound.provider.plane.client(), &binder.contract);
        let anchor = serde_json::from_value(json!({"metadata": {"name": ANCHOR}}))?;
        let anchor = anchors.create(&PostParams::default(), &anchor).await?;
        let uid = anchor.uid().context("no UID")?;
        let mut claims = binder.claims(lifetime, &[]).bound_to(ANCHOR, &uid);
        claims.issued_at -= age;
        claims.expires_at -= age;
        Ok(Self {
            token: bound.provider.plane.sign_service_account_token(&claims)?,
            contract: binder.contract.clone(),
            anchors,
        })
    }

    async fn void(&self) -> Result<()> {
        self.anchors.delete(ANCHOR, &DeleteParams::default()).await?;
        Ok(())
    }

    async fn is_refused(&self, bound: &Bound) -> Result<()> {
        let plane = &bound.provider.plane;
        let client = plane
            .token_kubeconfig(&self.contract, self.token.clone())
            .client()
            .await?;
        let exports: Api<APIServiceExport> = Api::namespaced(client, &self.contract);
        let answer = exports.get("cowboys").await;
        ensure!(
            matches!(&answer, Err(kube::Error::Api(status)) if status.code == 401),
            "{answer:?}"
        );
        Ok(())
    }
}

async fn says_what_mends_it(bound: &Bound) -> Result<()> {
    eventually_ok("the binding to say what mends it", SOON, async || {
        let condition = bound.condition("SecretValid").await?;
        let expired = condition.status == ConditionStatus::False && condition.reason == "CredentialExpired";
        ensure!(
            expired && condition.message.contains("kubectl bind renew cowboys"),
            "{condition:?}"
        );
        Ok(())
    })
    .await
}

/// Waits until a konnector that was just started serves the binding, and says so: at first its lists are on their way.
async fn is_served_again(bound: &mut Bound) -> Result<()> {
    bound.create(["again".to_owned()]).await?;
    bound.cowboys.copied("again", "ride").await?;
    bound.bound_once().await
}

/// A cowboy rides and is heard of, and the binding knows of no trouble.
async fn works(bound: &mut Bound, name: &str) -> Result<()> {
    bound.create([name.to_owned()]).await?;
    bound.cowboys.copied(name, "ride").await?;
    bound.cowboys.report(name, "riding").await?;
    bound.cowboys.reported(name, "riding").await?;
    for type_ in ["Ready", "SecretValid", "Connected", "Heartbeating", "InformersSynced"] {
        let condition = bound.condition(type_).await?;
        ensure!(condition.status == ConditionStatus::True, "{condition:?}");
    }
    Ok(())
}

/// The konnector ends, and what it renewed is lost.
async fn leave(bound: &mut Bound) -> Result<()> {
    bound.consumer.konnectors[0].terminate(SOON).await?;
    bound.consumer.konnectors.clear();
    let secrets: Api<Secret> = Api::namespaced(bound.consumer.plane.client(), NAMESPACE);
    for secret in renewed(bound).await? {
        secrets.delete(&secret.name_any(), &DeleteParams::default()).await?;
    }
    Ok(())
}

/// The konnector starts again, with more to do than when it left. Answers how objects in sync stand before that.
async fn come_back(bound: &mut Bound, name: &str) -> Result<BTreeMap<String, Option<String>>> {
    bound.create(names(name, 0..5)).await?;
    let before = versions(bound).await?;
    bound.consumer.start_konnector().await?;
    Ok(before)
}

/// Resource versions of what was in sync from the start, on both sides.
async fn versions(bound: &Bound) -> Result<BTreeMap<String, Option<String>>> {
    let mut versions = BTreeMap::new();
    for (side, api) in [("ours", &bound.cowboys.ours), ("copies", &bound.cowboys.copies)] {
        for object in api.list_metadata(&ListParams::default()).await? {
            if object.name_any().starts_with("early") {
                versions.insert(format!("{side}/{}", object.name_any()), object.resource_version());
            }
        }
    }
    Ok(versions)
}

/// What the konnector renewed.
async fn renewed(bound: &Bound) -> Result<Vec<Secret>> {
    let mut secrets = bound.kubeconfigs().await?;
    secrets.retain(|secret| secret.labels().contains_key(labels::CONTRACT_UID));
    Ok(secrets)
}

/// The konnector stored what it renewed without a failed attempt, also while its cache did not show the Secret yet.
fn stored_at_once(bound: &Bound) -> Result<()> {
    let log = bound.consumer.konnectors[0].log();
    let failure = log.lines().find(|line| line.contains("renewed credential not stored"));
    ensure!(failure.is_none(), "{failure:?}");
    Ok(())
}

/// Puts other tokens into the user's Secret.
async fn give(bound: &Bound, api_server: Option<String>, backend: Option<String>) -> Result<()> {
    let secrets: Api<Secret> = Api::namespaced(bound.consumer.plane.client(), NAMESPACE);
    let secret = secrets.get(GIVEN).await?;
    let document = secret.data.as_ref().and_then(|data| data.get(fixed::KUBECONFIG_KEY));
    let document = std::str::from_utf8(&document.context("no kubeconfig")?.0)?;
    let mut kubeconfig: Value = serde_saphyr::from_str(document)?;
    if let Some(token) = api_server {
        kubeconfig["users"][0]["user"]["token"] = token.into();
    }
    if let Some(token) = backend {
        let extensions = kubeconfig["clusters"][0]["cluster"]["extensions"].as_array_mut();
        let extension = extensions
            .into_iter()
            .flatten()
            .find(|entry| entry["name"] == backend::EXTENSION);
        extension.context("no extension")?["extension"]["token"] = token.into();
    }
    let data = BTreeMap::from([(fixed::KUBECONFIG_KEY, ByteString(kubeconfig.to_string().into_bytes()))]);
    let patch = Patch::Merge(json!({"data": data}));
    secrets.patch(GIVEN, &PatchParams::default(), &patch).await?;
    Ok(())
}

impl Binder {
    async fn of(bound: &Bound) -> Result<Self> {
        let contract = Provider::contract(&bound.consumer.identity().await?);
        let accounts: Api<ServiceAccount> = Api::namespaced(bound.provider.plane.client(), &contract);
        let uid = accounts.get(fixed::KUBE_BINDER).await?.uid().context("no UID")?;
        Ok(Self { contract, uid })
    }

    fn claims(&self, lifetime: Duration, audiences: &[&str]) -> ServiceAccountClaims {
        let claims = ServiceAccountClaims::new(&self.contract, fixed::KUBE_BINDER, &self.uid, lifetime);
        claims.audiences(audiences)
    }
}
