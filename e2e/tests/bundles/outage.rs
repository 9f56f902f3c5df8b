//! A provider is killed and comes back: as it was, without its exports, and as it was some time ago.

use anyhow::{Result, ensure};
use bindery_e2e::{
    Provider, bound::free_lease, bundle::Bundle, eventually_ok, holds_for, lease, offer::Offer, wildwest::SOON,
};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::json;

use crate::{
    contract::Contract,
    pair::Pair,
    removed::shows_export_removed,
    world::{A_WHILE, Case, case},
};

const OLD: Offer = Offer { name: "out-old" };
const GONE: Offer = Offer { name: "out-gone" };
const NEW: Offer = Offer { name: "out-new" };
const BARE: Offer = Offer { name: "out-bare" };

const WRITES: u32 = 1000;
const WRITERS: u32 = 8;

/// What must survive, and how it is told.
struct Bench {
    contract: Contract,
    bundle: Bundle,
    old: Pair,
}

pub(crate) async fn a_provider_is_killed_and_restored_from_an_older_backup() -> Result<()> {
    case("outage", async |case| {
        let mut provider = Provider::start_with("bundles-o", &lease::PATIENT).await?;
        let bench = begin(case, &provider).await?;
        killed(&mut provider, &bench).await?;
        without_exports(&mut provider, &bench).await?;
        from_a_backup(case, &mut provider, &bench).await?;
        // So that nobody is blamed for its absence from now on.
        bench
            .bundle
            .bundles
            .delete(&bench.bundle.name, &DeleteParams::default())
            .await?;
        Ok(())
    })
    .await
}

async fn begin(case: &Case, provider: &Provider) -> Result<Bench> {
    let contract = case.contract(provider, &[OLD, GONE, NEW, BARE]).await?;
    let bundle = case.bundle("");
    contract.export(GONE).await?;
    bundle.give(&contract.export(OLD).await?.yaml()?).await?;
    bundle
        .apply(json!({"pollingInterval": "1s", "backoffMultiplier": 1.0}))
        .await?;
    bundle.binds(&[GONE.name, OLD.name]).await?;
    let old = case.object(&contract, OLD, "one").await?;
    Ok(Bench { contract, bundle, old })
}

/// Everything of the provider ends, without a farewell.
fn kill(provider: &mut Provider) -> Result<()> {
    provider.servers[0].kill9()?;
    provider.plane.stop_api_server()
}

async fn revive(provider: &mut Provider) -> Result<()> {
    provider.plane.start_api_server().await?;
    free_lease(provider.plane.client(), "bindery-server").await?;
    provider.keep_server_up().await
}

async fn killed(provider: &mut Provider, bench: &Bench) -> Result<()> {
    let before = bench.bundle.bound().await?;
    kill(provider)?;
    bench
        .bundle
        .is("ProviderReachable", |found| {
            found.reason == "ProviderUnreachable" && !found.is_true()
        })
        .await?;
    bench.old.paint("meanwhile").await?;
    holds_for("nothing to be lost", A_WHILE, async || {
        ensure!(bench.bundle.bound().await? == before, "bindings changed");
        bench.old.is_here().await
    })
    .await?;
    revive(provider).await?;
    bench.bundle.binds(&[GONE.name, OLD.name]).await?;
    bench.old.says("meanwhile").await?;
    bench.old.works("revived").await
}

/// What else a provider does between a backup and its loss: resource versions are far behind afterwards. If they were not,
/// no client of Kubernetes could tell that they began again.
async fn much_happens(provider: &Provider) -> Result<()> {
    let maps: Api<ConfigMap> = Api::namespaced(provider.plane.client(), "default");
    let write = async |turn: u32| {
        let name = format!("busy-{}", turn % WRITERS);
        let (metadata, data) = (json!({"name": name}), json!({"turn": turn.to_string()}));
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data});
        let apply = PatchParams::apply("bundles").force();
        maps.patch(&name, &apply, &Patch::Apply(map)).await
    };
    let writes = stream::iter(0..WRITES).map(write).buffer_unordered(WRITERS as usize);
    writes.try_for_each(async |_| Ok(())).await?;
    Ok(())
}

/// A provider that has lost its exports is reached and asked: what has no object is unbound, and no object goes.
async fn without_exports(provider: &mut Provider, bench: &Bench) -> Result<()> {
    let backup = provider.plane.backup()?;
    kill(provider)?;
    let prefix = format!("kube-bind.io/apiserviceexports/{}/", bench.contract.namespace);
    ensure!(provider.plane.lose(&prefix).await? == 2, "no exports to be lost");
    revive(provider).await?;
    shows_export_removed(&bench.bundle, OLD.name).await?;
    bench.bundle.unbound(GONE.name).await?;
    holds_for("no object to be deleted", A_WHILE, async || {
        bench.old.is_here().await?;
        let binding = bench.bundle.all_bindings.get(OLD.name).await?;
        ensure!(binding.metadata.deletion_timestamp.is_none(), "the binding goes");
        Ok(())
    })
    .await?;
    much_happens(provider).await?;
    kill(provider)?;
    provider.plane.restore(&backup).await?;
    revive(provider).await?;
    bench.bundle.binds(&[GONE.name, OLD.name]).await?;
    bench.old.works("they are back").await
}

/// Exports and objects that came since are unknown to the provider, and one that went since is there again.
async fn from_a_backup(case: &Case, provider: &mut Provider, bench: &Bench) -> Result<()> {
    let leaver = case.object(&bench.contract, OLD, "leaver").await?;
    leaver.works("not for long").await?;
    let backup = provider.plane.backup()?;
    let (contract, bundle) = (&bench.contract, &bench.bundle);
    contract.export(NEW).await?;
    contract.export(BARE).await?;
    contract.remove(GONE.name).await?;
    bundle.unbound(GONE.name).await?;
    bundle.binds(&[BARE.name, NEW.name, OLD.name]).await?;
    let since = [
        case.object(contract, OLD, "two").await?,
        case.object(contract, NEW, "one").await?,
    ];
    leaver.delete().await?;
    bench.old.works("since then").await?;

    much_happens(provider).await?;
    kill(provider)?;
    provider.plane.restore(&backup).await?;
    revive(provider).await?;
    // The provider's word counts, and no object of the consumer goes.
    shows_export_removed(bundle, NEW.name).await?;
    bundle.unbound(BARE.name).await?;
    eventually_ok("what is there again to be bound", SOON, async || {
        let bound = bundle.all_bindings.get(GONE.name).await?;
        ensure!(
            bindery_api::Conditions::is_condition_true(&bound, "Ready"),
            "{:?}",
            bound.status
        );
        Ok(())
    })
    .await?;
    bench.old.says("since then").await?;
    let [two, new] = &since;
    two.says("red").await?;
    for pair in [&bench.old, two, new] {
        pair.is_here().await?;
    }
    // It came back with the backup, and has no source any more.
    eventually_ok("the copy without a source to go", SOON, async || {
        let left = leaver.copies.get_opt(&leaver.name).await?;
        ensure!(left.is_none(), "{left:?}");
        Ok(())
    })
    .await?;
    bench.old.works("restored").await?;
    two.works("restored").await?;
    // Made again, it goes on with the objects that there are.
    contract.export(NEW).await?;
    contract.export(BARE).await?;
    bundle.binds(&[BARE.name, GONE.name, NEW.name, OLD.name]).await?;
    new.works("restored").await
}
