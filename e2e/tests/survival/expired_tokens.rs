//! The provider's tokens expire, before and behind the konnector's back.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, Result, ensure};
use bindery_api::{backend, conditions::ConditionStatus, labels, names};
use bindery_e2e::{
    NAMESPACE, Provider, ServiceAccountClaims, eventually, eventually_ok, run,
    wildwest::SOON,
};
use k8s_openapi::{
    ByteString,
    api::core::v1::{Secret, ServiceAccount},
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::bound::{Bound, names};

/// Longer than the API server trusts what it knows of a token.
const REFUSED_BY_THEN: Duration = Duration::from_secs(12);

/// The user's Secret of the binding.
const GIVEN: &str = "kubeconfig-cowboys";

#[test]
fn expired_tokens_are_renewed_or_named() -> Result<()> {
    run(async {
        let mut bound = Bound::start("expired").await?;
        bound.create(names("early", 0..5)).await?;
        bound.converged().await?;
        let tokens = Tokens::of(&bound).await?;

        // Down over the hour: the token for the API server has expired, the one for the backend has not.
        away_until(&mut bound, Some(tokens.sign(-3600, &[])?), None).await?;
        bound.create(names("hour", 0..5)).await?;
        let before = versions(&bound).await?;
        bound.consumer.start_konnector().await?;
        bound.converged().await?;
        unchanged(&before, &versions(&bound).await?, "early")?;
        ensure!(renewed(&bound).await?.len() == 1, "one renewed Secret");
        bound.bound_once().await?;

        // Down for longer than that: both have expired.
        let (api, backend) = (tokens.sign(-3600, &[])?, tokens.sign(-3600, &[&bound.provider.address()])?);
        away_until(&mut bound, Some(api), Some(backend)).await?;
        bound.create(names("week", 0..5)).await?;
        let before = versions(&bound).await?;
        bound.consumer.start_konnector().await?;
        eventually_ok("the binding to say what mends it", SOON, async || {
            let condition = bound.condition("SecretValid").await?;
            ensure!(
                condition.status == ConditionStatus::False && condition.reason == "CredentialExpired",
                "{condition:?}"
            );
            ensure!(condition.message.contains("kubectl bind renew cowboys"), "{}", condition.message);
            Ok(())
        })
        .await?;
        unchanged(&before, &versions(&bound).await?, "")?;
        bound.bind(&["renew", "cowboys"]).await?;
        bound.converged().await?;
        unchanged(&before, &versions(&bound).await?, "early")?;
        bound.status_flows("caught").await?;
        bound.bound_once().await?;
        bound.unbind().await
    })
}

#[test]
fn sync_goes_on_while_a_token_is_renewed() -> Result<()> {
    run(async {
        let mut bound = Bound::start("short").await?;
        bound.create(names("early", 0..5)).await?;
        bound.converged().await?;
        let tokens = Tokens::of(&bound).await?;
        // Void when its anchor goes, as one that has expired.
        let anchors: Api<Secret> = Api::namespaced(bound.provider.plane.client(), &tokens.contract);
        let anchor = serde_json::from_value(json!({"metadata": {"name": "short-lived"}}))?;
        let anchor = anchors.create(&PostParams::default(), &anchor).await?;
        let claims = tokens.claims(20, &[]);
        let claims = claims.bound_to("short-lived", &anchor.uid().context("a UID")?);
        let short = bound.provider.plane.sign_service_account_token(&claims)?;
        give(&bound, Some(short), None).await?;

        let start = Instant::now();
        let mut is_renewed = None;
        let mut number = 0;
        // Until the token is refused, whatever the API server remembers of it.
        while is_renewed.is_none_or(|at: Instant| at.elapsed() < REFUSED_BY_THEN) {
            let name = format!("steady-{number:03}");
            bound.create([name.clone()]).await?;
            bound.cowboys.copied(&name, "ride").await?;
            bound.cowboys.report(&name, "riding").await?;
            bound.cowboys.reported(&name, "riding").await?;
            for type_ in ["SecretValid", "Connected", "Heartbeating", "InformersSynced"] {
                let condition = bound.condition(type_).await?;
                ensure!(condition.status == ConditionStatus::True, "after {:?}: {condition:?}", start.elapsed());
            }
            if is_renewed.is_none() && !renewed(&bound).await?.is_empty() {
                anchors.delete("short-lived", &DeleteParams::default()).await?;
                is_renewed = Some(Instant::now());
            }
            ensure!(is_renewed.is_some() || start.elapsed() < SOON, "not renewed");
            number += 1;
            sleep(Duration::from_millis(100)).await;
        }
        let refused = bound.provider.plane.token_kubeconfig(&tokens.contract, tokens.sign_claims(&claims)?).client().await?;
        let exports: Api<bindery_api::v1alpha2::APIServiceExport> = Api::namespaced(refused, &tokens.contract);
        let answer = exports.get("cowboys").await;
        ensure!(matches!(&answer, Err(kube::Error::Api(status)) if status.code == 401), "{answer:?}");
        bound.converged().await?;
        bound.bound_once().await?;
        bound.unbind().await
    })
}

/// Signs tokens of a contract with the provider's own key.
struct Tokens<'a> {
    provider: &'a Provider,
    contract: String,
    uid: String,
}
