//! What calls cost: the issuer no request, and the API server no more than the SubjectAccessReviews that the cache lets through.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bindery_e2e::{Asked, eventually_ok, wildwest::SOON};
use bindery_proto::v1alpha2::{ErrorReason, ListContractsRequest, ListTemplatesRequest};
use futures::future::try_join_all;

use crate::{
    developer::Developer,
    world::{RANCHERS, reason, with_quiet_world},
};

/// The server, on the provider's cluster.
const SERVER: &str = "system:serviceaccount:kube-bind:bindery-server";
/// How long the server remembers that a caller may do something.
const ALLOWED_FOR: Duration = Duration::from_secs(10);
/// How long it remembers that a caller may not.
const DENIED_FOR: Duration = Duration::from_secs(1);
const ROUNDS: usize = 10;
/// Calls at the same time.
const CROWD: usize = 10;

#[test]
fn a_call_costs_the_issuer_nothing_and_the_api_server_one_review_per_right() -> Result<()> {
    with_quiet_world(async |world| {
        for issuer in &world.issuers {
            let cora = Developer::new(world, issuer, "cora", &[RANCHERS]).await?;
            cora.log_in().await?;
            let client = world.client(&cora.token().await?)?;
            let audit = world.provider.plane.audit()?;
            let (from, start) = (audit.now()?, Instant::now());
            issuer.forget_requests();
            for _ in 0..ROUNDS {
                let calls = (0..CROWD).map(|_| async {
                    client.get_caller().await?;
                    let templates = client.list_templates(ListTemplatesRequest::default()).await?;
                    ensure!(templates.len() == 1, "{templates:?}");
                    client.get_template("cowboys").await?;
                    let contracts = client.list_contracts(ListContractsRequest::default()).await?;
                    ensure!(contracts.is_empty(), "{contracts:?}");
                    anyhow::Ok(())
                });
                try_join_all(calls).await?;
            }
            let took = start.elapsed();
            let requests = issuer.requests();
            ensure!(requests.is_empty(), "{} calls cost {requests:?}", ROUNDS * CROWD * 4);
            let asked = audit.since(from)?;
            let of_server = |resource: &str| {
                let is_it = |asked: &&Asked| asked.by == SERVER && asked.resource == resource;
                asked.iter().filter(is_it).count()
            };
            ensure!(of_server("tokenreviews") == 0, "ID tokens are sent to the API server");
            // The person may bind one template: the rights on all of them, on each other one, and on all contracts are denied.
            let times = |each: Duration| usize::try_from(took.as_nanos() / each.as_nanos()).unwrap_or(usize::MAX) + 1;
            let templates = world.template_count().await?;
            let most = times(ALLOWED_FOR) + (templates + 1) * times(DENIED_FOR);
            let reviews = of_server("subjectaccessreviews");
            ensure!(
                (1..=most).contains(&reviews),
                "{reviews} reviews in {took:?}, and not at most {most}"
            );
        }
        Ok(())
    })
}

#[test]
fn a_new_key_of_the_issuer_is_found_by_one_request() -> Result<()> {
    with_quiet_world(async |world| {
        try_join_all(world.issuers.iter().map(async |issuer| {
            let kit = Developer::new(world, issuer, "kit", &[RANCHERS]).await?;
            kit.log_in().await?;
            issuer.rotate_keys(true).await?;
            // The next refresh is signed with the new key.
            let before = kit.token().await?;
            eventually_ok("a refresh", SOON, async || {
                ensure!(kit.token().await? != before, "the token is the former one");
                Ok(())
            })
            .await?;
            let token = kit.token().await?;
            issuer.forget_requests();
            let client = world.client(&token)?;
            let calls = (0..CROWD).map(|_| client.get_caller());
            try_join_all(calls).await?;
            for endpoint in ["discovery", "jwks_uri"] {
                let count = issuer.count(endpoint)?;
                ensure!(count == 1, "{}: {count} requests to {endpoint}", issuer.make().name());
            }
            // The former key is published, and so its tokens are as good as they were.
            let client = world.client(&before)?;
            match client.get_caller().await {
                Ok(_) => {}
                outcome => ensure!(reason(outcome)? == ErrorReason::TokenExpired),
            }
            anyhow::Ok(())
        }))
        .await
        .map(drop)
    })
}
