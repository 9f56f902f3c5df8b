//! Tokens that are genuine and not for the server: each is refused with its reason.

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::{
    Kubeconfig, Provider, User, call, eventually_ok,
    issuers::{CLIENT, IssuerUser, OTHER_CLIENT},
    wildwest::SOON,
};
use bindery_proto::v1alpha2::{ErrorReason, ListContractsRequest};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, api::ListParams};

use crate::{
    developer::Developer,
    oidc::Oidc,
    world::{RANCHERS, World, reason, with_world},
};

/// Why the server refuses a token, and its words.
async fn refusal(world: &World, token: &str) -> Result<(ErrorReason, String)> {
    let outcome = world.client(token)?.get_caller().await;
    let text = outcome.as_ref().err().map(ToString::to_string).unwrap_or_default();
    ensure!(!text.contains(token), "the refusal shows the token");
    Ok((reason(outcome)?, text))
}

#[test]
fn only_the_id_token_of_the_own_client_is_accepted() -> Result<()> {
    with_world(async |world| {
        for issuer in &world.issuers {
            let name = issuer.make().name();
            let ida = IssuerUser::new(&format!("ida-{name}"), &[RANCHERS]);
            issuer.set_user(ida.clone()).await?;
            let own = Oidc::of(issuer, CLIENT)?.login(&world.browser, &ida).await?;
            world.kept([own.id.clone(), own.access.clone()]);
            let caller = world.client(&own.id)?.get_caller().await?;
            ensure!(caller.username == format!("{}@example.com", ida.name), "{caller:?}");

            // Opaque at one issuer; at the other one, a JWT of the same key with the same audience.
            let (why, text) = refusal(world, &own.access).await?;
            ensure!(why == ErrorReason::TokenInvalid, "{name}: {text}");
            if own.access.contains('.') {
                ensure!(text.contains("access token"), "{name}: {text}");
            }
            let other = Oidc::of(issuer, OTHER_CLIENT)?.login(&world.browser, &ida).await?;
            world.kept([other.id.clone(), other.access]);
            let (why, text) = refusal(world, &other.id).await?;
            ensure!(why == ErrorReason::TokenAudienceWrong, "{name}: {text}");

            // To the API server of the provider, the person is nobody.
            let kubeconfig = Kubeconfig {
                user: User::Token(own.id.clone()),
                ..world.provider.plane.kubeconfig().clone()
            };
            let listed = Api::<Namespace>::all(kubeconfig.client().await?)
                .list(&ListParams::default())
                .await;
            let Err(kube::Error::Api(status)) = listed else {
                anyhow::bail!("{name}: the API server takes the ID token: {listed:?}");
            };
            ensure!(status.code == 401, "{name}: {status:?}");

            eventually_ok("the token to expire", SOON, async || {
                let (why, text) = refusal(world, &own.id).await?;
                ensure!(why == ErrorReason::TokenExpired, "{name}: {text}");
                Ok(())
            })
            .await?;
        }
        Ok(())
    })
}

#[test]
fn a_name_that_comes_from_another_issuer_is_another_person() -> Result<()> {
    with_world(async |world| {
        let user = IssuerUser::new("twin", &[RANCHERS]);
        let [first, second] = &world.issuers;
        let first = Developer::named(world, first, user.clone()).await?;
        let second = Developer::named(world, second, user).await?;
        first.log_in().await?;
        second.log_in().await?;
        let client = world.client(&first.token().await?)?;
        let identity = "cluster-of-twin";
        client
            .bind(call::wish("cowboys", "cowboys", identity), SOON, |_| ())
            .await?;
        let contract = Provider::contract(identity);
        let list = async |developer: &Developer| -> Result<Vec<String>> {
            let client = world.client(&developer.token().await?)?;
            let contracts = client.list_contracts(ListContractsRequest::default()).await?;
            Ok(contracts.into_iter().map(|contract| contract.name).collect())
        };
        ensure!(
            list(&first).await? == [contract.as_str()],
            "the owner does not see the contract"
        );
        ensure!(list(&second).await?.is_empty(), "another person sees the contract");
        let who = second.whoami().await?;
        ensure!(who["username"] == first.username().as_str(), "{who}");
        let client = world.client(&second.token().await?)?;
        ensure!(reason(client.get_contract(&contract).await)? == ErrorReason::ContractDenied);
        ensure!(reason(client.renew_kubeconfig(&contract).await)? == ErrorReason::ContractDenied);
        let again = client
            .bind(call::wish("riders", "cowboys", identity), SOON, |_| ())
            .await;
        ensure!(reason(again)? == ErrorReason::ClusterIdentityTaken);
        let said = second.ok(&["provider", "contracts", "-o", "name"]).await?;
        ensure!(said.trim().is_empty(), "{said}");
        let said = first.ok(&["provider", "contracts", "-o", "name"]).await?;
        said.contains(&contract).then_some(()).context(said)
    })
}
