//! The code flow with PKCE, through Chromium.

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::{
    browser::Consent,
    issuers::{CLIENT, IssuerUser, OTHER_CLIENT},
    run,
};
use serde_json::json;

use crate::{
    issuers::{browser, shared},
    oidc::Oidc,
    redirect::{FAREWELL, Loopback},
};

#[test]
fn a_person_signs_in_and_the_id_token_has_their_groups() -> Result<()> {
    run(async {
        for issuer in shared().await? {
            let user = IssuerUser::new("anna", &["team-red", "team-blue"]);
            issuer.set_user(user.clone()).await?;
            let oidc = Oidc::of(issuer, CLIENT)?;
            let loopback = Loopback::listen().await?;
            let login = oidc.begin(&loopback.url())?;
            let page = browser().await?.page().await?;
            let sign_in = page.sign_in(&login.url, &user, Consent::Allow);
            let (text, query) = tokio::try_join!(sign_in, loopback.redirected())?;
            ensure!(text == FAREWELL, "the browser is at {}: {text}", page.url().await?);
            let code = login.code(&query)?;
            let tokens = oidc.exchange(&login, &code).await?.map_err(anyhow::Error::msg)?;
            let claims = oidc.verify(&tokens.id).await?;
            ensure!(
                claims["sub"] == "subject-of-anna" && claims["nonce"] == login.nonce,
                "{claims}"
            );
            ensure!(claims["groups"] == json!(["team-red", "team-blue"]), "{claims}");
            ensure!(
                claims["email"] == "anna@example.com" && claims["email_verified"] == true,
                "{claims}"
            );
            ensure!(claims["preferred_username"] == "anna", "{claims}");
            ensure!(tokens.access != tokens.id);
            let replayed = oidc.exchange(&login, &code).await?;
            ensure!(
                replayed.as_ref().err().is_some_and(|error| error == "invalid_grant"),
                "{}: a code is good for two uses: {replayed:?}",
                issuer.make().name()
            );
        }
        Ok(())
    })
}

#[test]
fn a_code_without_its_verifier_is_refused() -> Result<()> {
    run(async {
        for issuer in shared().await? {
            let user = IssuerUser::new("vera", &[]);
            issuer.set_user(user.clone()).await?;
            let oidc = Oidc::of(issuer, CLIENT)?;
            let loopback = Loopback::listen().await?;
            let (login, other) = (oidc.begin(&loopback.url())?, oidc.begin(&loopback.url())?);
            let page = browser().await?.page().await?;
            let sign_in = page.sign_in(&login.url, &user, Consent::Allow);
            let (_, query) = tokio::try_join!(sign_in, loopback.redirected())?;
            let outcome = oidc.exchange(&other, &login.code(&query)?).await?;
            ensure!(outcome.is_err(), "{}: PKCE is not checked", issuer.make().name());
        }
        Ok(())
    })
}

#[test]
fn a_person_who_denies_gives_no_code() -> Result<()> {
    run(async {
        for issuer in shared().await? {
            let user = IssuerUser::new("dennis", &[]);
            issuer.set_user(user.clone()).await?;
            let loopback = Loopback::listen().await?;
            let login = Oidc::of(issuer, CLIENT)?.begin(&loopback.url())?;
            let page = browser().await?.page().await?;
            let sign_in = page.sign_in(&login.url, &user, Consent::Deny);
            let (_, query) = tokio::try_join!(sign_in, loopback.redirected())?;
            let denied = login.code(&query).err().context("there is a code")?;
            ensure!(denied.to_string() == "access_denied", "{denied:#}");
        }
        Ok(())
    })
}

#[test]
fn a_wrong_password_opens_nothing() -> Result<()> {
    run(async {
        for issuer in shared().await? {
            let user = IssuerUser::new("wanda", &[]);
            issuer.set_user(user.clone()).await?;
            let forger = IssuerUser {
                password: "guessed".to_owned(),
                ..user
            };
            let login = Oidc::of(issuer, CLIENT)?.begin("http://127.0.0.1:1/callback")?;
            let page = browser().await?.page().await?;
            let refused = page.sign_in(&login.url, &forger, Consent::Allow).await;
            let message = refused.err().context("any password is good")?.to_string();
            ensure!(message.contains("refuses the password"), "{message}");
        }
        Ok(())
    })
}

#[test]
fn each_client_gets_tokens_of_its_own() -> Result<()> {
    run(async {
        for issuer in shared().await? {
            let user = IssuerUser::new("oscar", &[]);
            issuer.set_user(user.clone()).await?;
            let other = Oidc::of(issuer, OTHER_CLIENT)?;
            let tokens = other.login(browser().await?, &user).await?;
            let claims = other.verify(&tokens.id).await?;
            ensure!(claims["sub"] == "subject-of-oscar", "{claims}");
            let refused = Oidc::of(issuer, CLIENT)?.verify(&tokens.id).await;
            ensure!(refused.is_err(), "{} mixes clients up", issuer.make().name());
        }
        Ok(())
    })
}
