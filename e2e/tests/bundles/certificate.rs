//! A provider may give a contract a client certificate in place of a token.

use anyhow::Result;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use bindery_e2e::offer::Offer;
use serde_json::json;

use crate::{contract::user, world::case};

const OFFER: Offer = Offer { name: "crt-api" };

pub(crate) async fn a_kubeconfig_with_a_client_certificate_is_served() -> Result<()> {
    case("certificate", async |case| {
        let contract = case.contract(&case.world.p, &[OFFER]).await?;
        let authority = case.world.p.plane.authority();
        let identity = authority.client(&contract.binder(), "system:serviceaccounts")?;
        // Without the backend, nobody replaces it by a token.
        let credential = contract.export(OFFER).await?.without_backend().with(|config| {
            *user(config) = json!({
                "client-certificate-data": BASE64_STANDARD.encode(&identity.certificate),
                "client-key-data": BASE64_STANDARD.encode(&identity.key),
            });
        });
        let bundle = case.bundle("");
        bundle.give(&credential.yaml()?).await?;
        bundle.apply(json!({})).await?;
        bundle.binds(&[OFFER.name]).await?;
        case.object(&contract, OFFER, "one").await?.works("green").await
    })
    .await
}
