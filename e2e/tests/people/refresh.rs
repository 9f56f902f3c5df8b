//! Refresh tokens: groups that change, tokens that are used twice, and revocation.

use anyhow::{Result, ensure};
use bindery_e2e::{
    issuers::{CLIENT, IssuerUser},
    run,
};
use serde_json::{Value, json};

use crate::{
    issuers::{browser, shared},
    oidc::Oidc,
};

#[test]
fn a_refresh_brings_the_groups_of_now() -> Result<()> {
    run(async {
        for issuer in shared().await? {
            let user = IssuerUser::new("greta", &["before"]);
            issuer.set_user(user.clone()).await?;
            let oidc = Oidc::of(issuer, CLIENT)?;
            let tokens = oidc.login(browser().await?, &user).await?;
            issuer.set_groups("greta", &["after"]).await?;
            let tokens = oidc.refresh(tokens.refresh()?).await?.map_err(anyhow::Error::msg)?;
            let claims = oidc.verify(&tokens.id).await?;
            ensure!(
                claims["groups"] == json!(["after"]) && claims["sub"] == user.subject.as_str(),
                "{claims}"
            );
            // Claims of any shape, for tests of bad input.
            for odd in [json!("one"), json!(7), Value::Null] {
                issuer.set_claim("greta", "groups", odd.clone()).await?;
                let tokens = oidc.login(browser().await?, &user).await?;
                let claims = oidc.verify(&tokens.id).await?;
                ensure!(claims["groups"] == odd, "{claims}");
            }
        }
        Ok(())
    })
}

#[test]
fn a_refresh_token_that_is_used_twice_ends_all_that_descend_from_the_login() -> Result<()> {
    run(async {
        for issuer in shared().await? {
            let user = IssuerUser::new("ralf", &[]);
            issuer.set_user(user.clone()).await?;
            let oidc = Oidc::of(issuer, CLIENT)?;
            let first = oidc.login(browser().await?, &user).await?;
            let second = oidc.refresh(first.refresh()?).await?.map_err(anyhow::Error::msg)?;
            for token in [first.refresh()?, second.refresh()?] {
                let refused = oidc.refresh(token).await?.err();
                let name = issuer.make().name();
                ensure!(refused.as_deref() == Some("invalid_grant"), "{name}: {refused:?}");
            }
        }
        Ok(())
    })
}

#[test]
fn a_revoked_refresh_token_is_refused() -> Result<()> {
    run(async {
        for issuer in shared().await? {
            let user = IssuerUser::new("rita", &[]);
            issuer.set_user(user.clone()).await?;
            let oidc = Oidc::of(issuer, CLIENT)?;
            let tokens = oidc.login(browser().await?, &user).await?;
            oidc.revoke(tokens.refresh()?).await?;
            let refused = oidc.refresh(tokens.refresh()?).await?.err();
            let name = issuer.make().name();
            ensure!(refused.as_deref() == Some("invalid_grant"), "{name}: {refused:?}");
        }
        Ok(())
    })
}
