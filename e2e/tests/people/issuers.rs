//! The issuers and the browser that the tests of this suite share, and what the issuers do when they are down.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use bindery_e2e::{
    browser::Browser,
    eventually,
    issuers::{CLIENT, Issuer, IssuerMake, IssuerUser, PlannedAnswer},
    run,
};
use http::StatusCode;
use serde_json::json;
use tokio::{
    sync::OnceCell,
    time::{sleep, timeout},
};

use crate::oidc::Oidc;

/// How long an issuer that answers may take.
const ANSWERS: Duration = Duration::from_secs(10);
/// How long a request that arrived is watched for an answer that must not come.
const SILENCE: Duration = Duration::from_millis(300);

/// The issuers that all tests share, in the order of [`IssuerMake::ALL`]. Each test has users of its own.
pub(crate) async fn shared() -> Result<&'static [Issuer; 2]> {
    static ISSUERS: OnceCell<[Issuer; 2]> = OnceCell::const_new();
    ISSUERS
        .get_or_try_init(async || {
            let [first, second] = IssuerMake::ALL;
            let (first, second) = tokio::try_join!(Issuer::start(first, &[]), Issuer::start(second, &[]))?;
            Ok([first, second])
        })
        .await
}

/// The browser that all tests share. It trusts the shared issuers.
pub(crate) async fn browser() -> Result<&'static Browser> {
    static BROWSER: OnceCell<Browser> = OnceCell::const_new();
    BROWSER
        .get_or_try_init(async || {
            let [first, second] = shared().await?;
            Browser::start(&[first.identity(), second.identity()]).await
        })
        .await
}

#[test]
fn an_issuer_stops_and_starts_at_the_same_address() -> Result<()> {
    run(async {
        for make in IssuerMake::ALL {
            let mut issuer = Issuer::start(make, &[]).await?;
            let discovery = issuer.endpoint("discovery")?;
            let keys = issuer.endpoint("jwks_uri")?;
            let before = issuer.https().get(&keys).await?.success()?;
            issuer.stop().await;
            let refused = issuer.https().get(&discovery).await;
            ensure!(refused.is_err(), "{} answers although it is stopped", make.name());
            issuer.start_again().await?;
            let found = issuer.https().get(&discovery).await?.success()?;
            ensure!(found.json::<serde_json::Value>()? == *issuer.discovery());
            let after = issuer.https().get(&keys).await?.success()?;
            ensure!(before.body == after.body, "{} has other keys", make.name());
        }
        Ok(())
    })
}

#[test]
fn an_issuer_falls_silent_and_answers_again() -> Result<()> {
    run(async {
        let issuer = Issuer::start(IssuerMake::Zitadel, &[]).await?;
        let discovery = issuer.endpoint("discovery")?;
        issuer.fall_silent();
        gets_no_answer(&issuer, "discovery").await?;
        issuer.answer_again();
        timeout(ANSWERS, issuer.https().get(&discovery)).await??.success()?;
        // The request without an answer came, too.
        ensure!(issuer.count("discovery")? == 2, "{:?}", issuer.requests());
        Ok(())
    })
}

#[test]
fn planned_answers_take_the_place_of_those_of_the_issuer() -> Result<()> {
    run(async {
        let issuer = Issuer::start(IssuerMake::Zitadel, &[]).await?;
        let keys = issuer.endpoint("jwks_uri")?;
        issuer.plan_answer("jwks_uri", 1, PlannedAnswer::json(503, &json!({"error": "busy"})))?;
        issuer.plan_answer("jwks_uri", 1, PlannedAnswer::redirect("https://127.0.0.1/elsewhere"))?;
        issuer.plan_answer(
            "jwks_uri",
            2,
            PlannedAnswer::json(200, &json!({})).after(Duration::from_mins(1)),
        )?;
        let get = || issuer.https().get(&keys);
        ensure!(get().await?.status == StatusCode::SERVICE_UNAVAILABLE);
        let redirect = get().await?;
        ensure!(redirect.status == StatusCode::FOUND && redirect.headers.contains_key("location"));
        gets_no_answer(&issuer, "jwks_uri").await?;
        issuer.forget_plans();
        ensure!(get().await?.text().contains("\"kid\""));
        ensure!(issuer.count("jwks_uri")? == 4);
        Ok(())
    })
}

#[test]
fn users_come_and_go() -> Result<()> {
    run(async {
        for issuer in shared().await? {
            let user = IssuerUser::new("passing", &["guests"]);
            issuer.set_user(user.clone()).await?;
            let oidc = Oidc::of(issuer, CLIENT)?;
            let tokens = oidc.login(browser().await?, &user).await?;
            issuer.remove_user("passing").await?;
            let refused = oidc.refresh(tokens.refresh()?).await?;
            let reason = refused.err().context("a user who is gone refreshes")?;
            ensure!(reason == "invalid_grant", "{}: {reason}", issuer.make().name());
        }
        Ok(())
    })
}

/// Sends a request, waits until it has arrived, and fails if it is answered at once.
async fn gets_no_answer(issuer: &Issuer, endpoint: &str) -> Result<()> {
    let url = issuer.endpoint(endpoint)?;
    let before = issuer.count(endpoint)?;
    let unanswered = async {
        eventually("the request to arrive", ANSWERS, async || {
            Ok((issuer.count(endpoint)? > before).then_some(()))
        })
        .await?;
        sleep(SILENCE).await;
        anyhow::Ok(())
    };
    tokio::select! {
        answer = issuer.https().get(&url) => bail!("there is an answer: {answer:?}"),
        outcome = unanswered => outcome,
    }
}
