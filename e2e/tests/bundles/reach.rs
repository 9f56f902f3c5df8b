//! A provider that cannot be reached, in part or at all.

use anyhow::{Context as _, Result, bail, ensure};
use bindery_api::{Conditions as _, Severity, conditions::ConditionStatus};
use bindery_e2e::{Liar, Lie, Provider, Proxy, bundle::Bundle, holds_for, offer::Offer, wildwest::SOON};
use futures::{StreamExt as _, TryStreamExt as _};
use kube::{
    ResourceExt as _,
    api::{WatchEvent, WatchParams},
};
use serde_json::json;
use tokio::time::timeout;

use crate::{
    pair::Pair,
    world::{A_WHILE, case},
};

const FIRST: Offer = Offer { name: "rea-first" };
const STREAMLESS: Offer = Offer { name: "rea-streamless" };
const AFTER: Offer = Offer { name: "rea-after" };
const LATER: Offer = Offer { name: "rea-later" };
const EARLY: Offer = Offer { name: "rea-early" };
const REFUSED: Offer = Offer { name: "rea-refused" };

/// Two lines to a provider: to its API server, and to its backend.
struct Lines {
    kubernetes: Proxy,
    backend: Proxy,
}

// === impl Lines ===

impl Lines {
    async fn start(provider: &Provider) -> Result<Self> {
        let backend = provider.address();
        let backend = backend.strip_prefix("https://").context("no https")?.parse()?;
        Ok(Self {
            kubernetes: provider.plane.proxy().await?,
            backend: Proxy::start(backend).await?,
        })
    }
}

pub(crate) async fn without_backend_api_server_or_both_nothing_is_lost() -> Result<()> {
    case("reach", async |case| {
        let contract = case.contract(&case.world.p, &[FIRST, STREAMLESS, AFTER, LATER]).await?;
        let lines = Lines::start(&case.world.p).await?;
        let credential = contract.export(FIRST).await?;
        let credential = credential
            .through(lines.kubernetes.address())
            .backend_through(lines.backend.address());
        let bundle = case.bundle("");
        bundle.give(&credential.yaml()?).await?;
        // Two pauses between three failures are longer than statuses are held back, so that the warning is written.
        let spec = json!({"pollingInterval": "3s", "maxRetries": 3, "backoffMultiplier": 1.0});
        bundle.apply(spec).await?;
        bundle.binds(&[FIRST.name]).await?;
        let pair = case.object(&contract, FIRST, "one").await?;

        // Kubernetes is asked instead.
        lines.backend.block();
        pair.works("streamless").await?;
        contract.export(STREAMLESS).await?;
        bundle.binds(&[FIRST.name, STREAMLESS.name]).await?;

        fails_and_then_errs(&bundle, &pair, &lines.kubernetes).await?;
        contract.export(AFTER).await?;
        lines.kubernetes.unblock();
        recovers(&bundle).await?;
        bundle.binds(&[AFTER.name, FIRST.name, STREAMLESS.name]).await?;
        pair.works("both were away").await?;
        lines.backend.unblock();

        // The API server alone: the stream lives, and proves nothing.
        fails_and_then_errs(&bundle, &pair, &lines.kubernetes).await?;
        contract.remove(AFTER.name).await?;
        holds_for("nothing to be unbound", A_WHILE, async || {
            let binding = bundle.all_bindings.get(AFTER.name).await?;
            ensure!(binding.metadata.deletion_timestamp.is_none(), "it goes");
            pair.is_here().await
        })
        .await?;
        lines.kubernetes.unblock();
        recovers(&bundle).await?;
        bundle.unbound(AFTER.name).await?;
        contract.export(LATER).await?;
        bundle.binds(&[FIRST.name, LATER.name, STREAMLESS.name]).await?;
        pair.works("all is well").await
    })
    .await
}

/// Blocks the line to the API server. The bundle has a warning at first, and an error after some retries; nothing is taken away.
async fn fails_and_then_errs(bundle: &Bundle, pair: &Pair, kubernetes: &Proxy) -> Result<()> {
    let before = bundle.bound().await?;
    // Followed from before the failure on: a poll may miss the warning.
    let version = bundle.get().await?.resource_version().context("no resource version")?;
    let own = WatchParams::default().fields(&format!("metadata.name={}", bundle.name));
    let mut events = bundle.bundles.watch(&own, &version).await?.boxed();
    kubernetes.block();
    let errs = async {
        let mut warned = false;
        while let Some(event) = events.try_next().await? {
            let WatchEvent::Modified(changed) = event else {
                continue;
            };
            let reachable = changed.condition("ProviderReachable");
            let Some(reachable) = reachable.filter(|condition| condition.status == ConditionStatus::False) else {
                continue;
            };
            ensure!(reachable.reason == "ProviderUnreachable", "{reachable:?}");
            warned |= reachable.severity == Severity::Warning;
            if reachable.severity == Severity::Error {
                ensure!(warned, "an error from the start: {reachable:?}");
                return Ok(reachable.clone());
            }
        }
        bail!("the watch of the bundle ended");
    };
    let erred = timeout(SOON, errs).await.context("the bundle has no error")??;
    ensure!(erred.last_probe_time.is_some(), "{erred:?}");
    ensure!(!bundle.condition("Ready").await?.is_true(), "ready all the same");
    holds_for("nothing to be deleted", A_WHILE, async || {
        ensure!(bundle.bound().await? == before, "bindings changed");
        pair.is_here().await
    })
    .await
}

async fn recovers(bundle: &Bundle) -> Result<()> {
    bundle.is("ProviderReachable", bindery_api::Condition::is_true).await?;
    bundle.is("Ready", bindery_api::Condition::is_true).await.map(drop)
}

pub(crate) async fn a_provider_that_is_away_from_the_start_is_bound_when_it_comes() -> Result<()> {
    case("early", async |case| {
        let contract = case.contract(&case.world.p, &[EARLY]).await?;
        let lines = Lines::start(&case.world.p).await?;
        let credential = contract.export(EARLY).await?;
        let credential = credential
            .through(lines.kubernetes.address())
            .backend_through(lines.backend.address());
        lines.kubernetes.block();
        lines.backend.block();
        let bundle = case.bundle("");
        bundle.give(&credential.yaml()?).await?;
        // At once an error, where no retry is wanted.
        bundle.apply(json!({"pollingInterval": "1s", "maxRetries": 0})).await?;
        bundle
            .complains(
                "ProviderReachable",
                Severity::Error,
                "ProviderUnreachable",
                &["127.0.0.1"],
            )
            .await?;
        let valid = bundle.condition("SecretValid").await?;
        ensure!(valid.status == ConditionStatus::Unknown, "{valid:?}");
        bundle
            .is("Synced", |synced| synced.reason == "ListExportsFailed")
            .await?;
        lines.kubernetes.unblock();
        lines.backend.unblock();
        bundle.binds(&[EARLY.name]).await?;
        recovers(&bundle).await
    })
    .await
}

pub(crate) async fn a_provider_that_refuses_deletes_nothing() -> Result<()> {
    case("refused", async |case| {
        let contract = case.contract(&case.world.p, &[REFUSED]).await?;
        let liar = Liar::start(&case.world.p.plane).await?;
        let line = Proxy::start(liar.address()).await?;
        let credential = contract.export(REFUSED).await?.without_backend();
        let bundle = case.bundle("");
        bundle.give(&credential.through(line.address()).yaml()?).await?;
        bundle
            .apply(json!({"pollingInterval": "1s", "backoffMultiplier": 1.0}))
            .await?;
        bundle.binds(&[REFUSED.name]).await?;
        let pair = case.object(&contract, REFUSED, "one").await?;
        let before = bundle.bound().await?;
        let refusals = [
            (403, "ProviderForbidden"),
            (500, "ProviderUnreachable"),
            (404, "ContractNotFound"),
        ];
        for (code, reason) in refusals {
            liar.lie(move |_, _| Some(Lie::Status(code)));
            line.sever();
            bundle
                .is("ProviderReachable", |found| !found.is_true() && found.reason == reason)
                .await?;
            holds_for("nothing to be deleted", A_WHILE, async || {
                ensure!(bundle.bound().await? == before, "bindings changed");
                pair.is_here().await
            })
            .await?;
            liar.repent();
            line.sever();
            recovers(&bundle).await?;
            pair.works(reason).await?;
        }
        // A token that was refused is not tried again, for nobody renews it here.
        liar.lie(|_, _| Some(Lie::Status(401)));
        line.sever();
        let reason = "CredentialExpired";
        bundle.complains("SecretValid", Severity::Error, reason, &[]).await?;
        pair.is_here().await?;
        liar.repent();
        line.sever();
        let next = contract.export(REFUSED).await?.without_backend();
        bundle.give(&next.through(line.address()).yaml()?).await?;
        recovers(&bundle).await?;
        pair.works(reason).await
    })
    .await
}
