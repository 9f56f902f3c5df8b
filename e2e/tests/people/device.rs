//! The device flow: a program without a browser, and a person with one.

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::{
    browser::Consent,
    issuers::{CLIENT, Issuer, IssuerMake, IssuerSettings, IssuerUser, Lifetimes, PlannedAnswer},
    run,
};
use serde_json::json;

use crate::{
    issuers::{browser, shared},
    oidc::Oidc,
};

#[test]
fn a_person_allows_a_device() -> Result<()> {
    run(async {
        for issuer in shared().await? {
            let user = IssuerUser::new("dora", &["team-green"]);
            issuer.set_user(user.clone()).await?;
            let oidc = Oidc::of(issuer, CLIENT)?;
            let device = oidc.device().await?;
            let early = oidc.poll(&device).await?.err().context("there are tokens already")?;
            ensure!(early == "authorization_pending", "{early}");
            let page = browser().await?.page().await?;
            let text = page
                .sign_in(&device.verification_uri_complete, &user, Consent::Allow)
                .await?;
            ensure!(text.contains("Return to your device"), "{text}");
            let tokens = oidc.wait_for_person(&device).await?.map_err(anyhow::Error::msg)?;
            let claims = oidc.verify(&tokens.id).await?;
            ensure!(claims["groups"] == json!(["team-green"]), "{claims}");
            ensure!(claims.get("nonce").is_none(), "{claims}");
            tokens.refresh()?;
        }
        Ok(())
    })
}

#[test]
fn a_person_denies_a_device() -> Result<()> {
    run(async {
        for issuer in shared().await? {
            let user = IssuerUser::new("nina", &[]);
            issuer.set_user(user.clone()).await?;
            let oidc = Oidc::of(issuer, CLIENT)?;
            let device = oidc.device().await?;
            let page = browser().await?.page().await?;
            page.sign_in(&device.verification_uri_complete, &user, Consent::Deny)
                .await?;
            let denied = oidc.poll(&device).await?.err().context("there are tokens")?;
            ensure!(denied == "access_denied", "{}: {denied}", issuer.make().name());
        }
        Ok(())
    })
}

#[test]
fn device_codes_expire_and_issuers_ask_for_patience() -> Result<()> {
    run(async {
        for make in IssuerMake::ALL {
            let mut settings = IssuerSettings::default();
            settings.lifetimes = Lifetimes {
                device_code: 1,
                ..settings.lifetimes
            };
            let issuer = Issuer::start_with(make, settings).await?;
            let oidc = Oidc::of(&issuer, CLIENT)?;
            let device = oidc.device().await?;
            issuer.plan_answer(
                "token_endpoint",
                1,
                PlannedAnswer::json(400, &json!({"error": "slow_down"})),
            )?;
            let slower = oidc.poll(&device).await?.err();
            ensure!(slower.as_deref() == Some("slow_down"), "{slower:?}");
            let expired = oidc.wait_for_person(&device).await?.err().context("there are tokens")?;
            // An issuer that has forgotten the code no longer knows that it has expired.
            ensure!(
                ["expired_token", "invalid_grant"].contains(&expired.as_str()),
                "{}: {expired}",
                make.name()
            );
        }
        Ok(())
    })
}
