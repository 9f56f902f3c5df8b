//! Tokens that are missing, malformed, forged, expired, or for somebody else.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::ServiceAccountClaims;
use bindery_proto::v1alpha2::ErrorReason;
use bindery_sdk::{Client, Code};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::{Api, ResourceExt as _};

use crate::{
    expect::refused,
    world::{Case, case, wish},
};

/// Every method that needs a caller answers such a token in the same way; these stand for them.
async fn check(client: &Client, reason: ErrorReason, says: &[&str]) -> Result<()> {
    let create = client
        .create_bindable_resources_request(wish("cowboys", "cowboys", "tokens"))
        .await;
    refused(create, Code::Unauthenticated, reason, says)?;
    refused(
        client.get_template("cowboys").await,
        Code::Unauthenticated,
        reason,
        says,
    )?;
    refused(client.renew_kubeconfig("").await, Code::Unauthenticated, reason, says)?;
    Ok(())
}

#[test]
fn only_a_token_for_this_server_is_let_in() -> Result<()> {
    case("tokens", async |case| {
        let provider = case.provider();
        let principal = case.principal("tokens", &["cowboys"]).await?;
        let good = std::fs::read_to_string(&principal.token)?;
        let token = async |audiences: &[&str]| provider.plane.token_for("tokens", "binder", audiences, 3600).await;

        let builder = Client::builder(provider.address()).ca_pem(provider.plane.ca_pem());
        check(
            &builder.build()?,
            ErrorReason::TokenMissing,
            &["authorization: Bearer <token>"],
        )
        .await?;
        for malformed in ["opaque", "a.b.c", &format!("{good}.more")] {
            check(&case.client(malformed)?, ErrorReason::TokenInvalid, &["no JWT"]).await?;
        }
        check(
            &case.client(&forged(&good)?)?,
            ErrorReason::TokenInvalid,
            &["refuses it"],
        )
        .await?;

        let own = provider.address();
        let slash = format!("{own}/");
        for audience in ["https://elsewhere.example.com", &slash, &provider.plane.server_url()] {
            let client = case.client(&token(&[audience]).await?)?;
            check(&client, ErrorReason::TokenAudienceWrong, &["audience", &own]).await?;
        }
        // A token without audiences is one for the API server.
        check(
            &case.client(&token(&[]).await?)?,
            ErrorReason::TokenAudienceWrong,
            &[&own],
        )
        .await?;

        for ago in [Duration::from_secs(30), Duration::from_hours(1)] {
            let client = case.client(&expired(case, ago).await?)?;
            check(&client, ErrorReason::TokenExpired, &["expired", "get a new one"]).await?;
        }
        case.nothing_written(&principal, "tokens").await?;
        // One of several audiences suffices, and nothing of the above stands in its way.
        let client = case.client(&token(&["https://elsewhere.example.com", &own]).await?)?;
        client.get_template("cowboys").await?;
        Ok(())
    })
}

/// The token with another signature.
fn forged(token: &str) -> Result<String> {
    let (signed, signature) = token.rsplit_once('.').context("no JWT")?;
    let flipped: String = signature.chars().rev().collect();
    ensure!(flipped != signature);
    Ok(format!("{signed}.{flipped}"))
}

/// A token that the cluster itself signed, and that ended a while ago.
async fn expired(case: &Case, ago: Duration) -> Result<String> {
    let plane = &case.provider().plane;
    let account = Api::<ServiceAccount>::namespaced(plane.client(), "tokens")
        .get("binder")
        .await?;
    let uid = account.uid().context("no UID")?;
    let mut claims =
        ServiceAccountClaims::new("tokens", "binder", &uid, Duration::ZERO).audiences(&[&case.provider().address()]);
    claims.expires_at -= ago + bindery_e2e::control_plane::LEEWAY;
    claims.issued_at = claims.expires_at - Duration::from_mins(10);
    plane.sign_service_account_token(&claims)
}
