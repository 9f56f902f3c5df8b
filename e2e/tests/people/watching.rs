//! Tokens that expire while they are in use: a watch goes on, and whatever needs a new token at the same time asks the issuer once.

use std::sync::Arc;

use anyhow::{Context as _, Result, bail, ensure};
use bindery_e2e::{Provider, call, wildwest::SOON};
use bindery_proto::v1alpha2::{Contract, ShareContractRequest, WatchContractsRequest};
use bindery_sdk::{Client, TokenError, Watch, WatchEvent, token_fn};
use futures::{StreamExt as _, future::try_join_all};
use tokio::time::timeout;

use crate::{
    developer::Developer,
    world::{PREFIX, RANCHERS, World, with_quiet_world},
};

/// A client of a program that gets each token by `kubectl bind token`.
fn client(world: &World, developer: &Arc<Developer>) -> Result<Client> {
    let developer = Arc::clone(developer);
    let tokens = token_fn(move || {
        let developer = Arc::clone(&developer);
        async move {
            let token = developer.token().await;
            token.map(Into::into).map_err(|error| TokenError::Source(error.into()))
        }
    });
    let builder = Client::builder(world.provider.address()).ca_pem(world.provider.plane.ca_pem());
    Ok(builder.token_source(tokens).build()?)
}

/// The next event of a watch.
async fn next(watch: &mut Watch<Contract>) -> Result<WatchEvent<Contract>> {
    let event = timeout(SOON, watch.next()).await.context("the watch says nothing")?;
    Ok(event.context("the watch has ended")??)
}

#[test]
fn a_watch_outlives_the_token_that_opened_it() -> Result<()> {
    with_quiet_world(async |world| {
        try_join_all(world.issuers.iter().map(async |issuer| {
            let walt = Arc::new(Developer::new(world, issuer, "walt", &[RANCHERS]).await?);
            walt.log_in().await?;
            let client = client(world, &walt)?;
            let identity = format!("cluster-of-{}", walt.user.name);
            client
                .bind(call::wish("cowboys", "cowboys", &identity), SOON, |_| ())
                .await?;
            let contract = Provider::contract(&identity);

            let mut watch = client.watch_contracts(WatchContractsRequest::default());
            loop {
                match next(&mut watch).await? {
                    WatchEvent::SnapshotComplete => break,
                    WatchEvent::Disconnected { error, .. } => bail!("no snapshot: {error:?}"),
                    _ => {}
                }
            }
            issuer.forget_requests();
            // Nothing changes meanwhile, so that the next event is the end of the token.
            let end = loop {
                match next(&mut watch).await? {
                    WatchEvent::Disconnected { error, .. } => break error,
                    WatchEvent::Applied(_) => {}
                    other => bail!("{other:?}"),
                }
            };
            ensure!(end.is_none(), "the token's end is an error: {end:?}");
            let others = (0..4).map(|_| walt.whoami());
            let again = async {
                match next(&mut watch).await? {
                    WatchEvent::Connected { resumed } => anyhow::Ok(resumed),
                    other => bail!("{other:?}"),
                }
            };
            let (resumed, _) = tokio::try_join!(again, try_join_all(others))?;
            ensure!(resumed, "the watch does not go on where it was");
            let name = issuer.make().name();
            let refreshes = issuer.count("token_endpoint")?;
            ensure!(
                refreshes == 1,
                "{name} was asked for tokens {refreshes} times: {:?}",
                issuer.requests()
            );

            let group = format!("{PREFIX}{RANCHERS}");
            let share = ShareContractRequest {
                contract: contract.clone(),
                add_groups: vec![group.clone()],
                ..ShareContractRequest::default()
            };
            client.share_contract(share).await?;
            loop {
                match next(&mut watch).await? {
                    WatchEvent::Applied(seen) if seen.owner_groups == [group.as_str()] => break,
                    WatchEvent::Applied(_) => {}
                    other => bail!("{name}: {other:?}"),
                }
            }
            anyhow::Ok(())
        }))
        .await
        .map(drop)
    })
}
