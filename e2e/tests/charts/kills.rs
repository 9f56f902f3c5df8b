//! Objects change all the time while each Pod is killed or deleted in turn, and while the releases are upgraded and rolled back.

use std::env;

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::{
    ControlPlane,
    charts::{self, KONNECTOR, Release, SERVER},
    eventually,
    offer::Offer,
    process::Programs,
    run,
    wildwest::SOON,
};
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Pod};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams},
};
use tokio::time::Instant;

use crate::{
    load::Load,
    world::{NAMESPACE, World, make_namespace},
};

/// Set by `cargo xtask soak`.
const ROUNDS: &str = "BINDERY_SOAK_POD_ROUNDS";
/// What is the same for all releases of this test.
const HA: [&str; 3] = ["--set", "replicas=2", "--wait"];

/// How a Pod is ended.
#[derive(Clone, Copy, Debug)]
enum End {
    /// With SIGKILL.
    Killed,
    /// With SIGTERM.
    Deleted,
}

#[test]
fn no_object_is_lost_while_pods_are_killed_and_releases_change() -> Result<()> {
    run(async {
        let world = Box::pin(World::start("kills")).await?;
        world.during(SERVER, changes(&world)).await
    })
}

async fn changes(world: &World) -> Result<()> {
    let releases = [
        (&world.clusters.provider, SERVER),
        (&world.clusters.consumer, KONNECTOR),
    ];
    let addresses = world.server_values();
    for (plane, release) in releases {
        let file = charts::folder(release.chart).join("values-ha.yaml");
        let file = file.to_str().context("a path in UTF-8")?;
        let mut args = vec!["--create-namespace", "--values", file];
        if release == SERVER {
            args.extend(["--set", &addresses]);
        }
        world
            .apply(plane, "install", release, &[&args[..], &HA].concat())
            .await?;
    }
    let offer = Offer::new("kills");
    world.offer(offer).await?;
    make_namespace(&world.clusters.consumer, NAMESPACE).await?;
    world.bind(&Programs::default(), offer.name, &[]).await?;

    let load = Load::new(world, offer).await?;
    let work = async {
        let before = load.in_sync().await?;
        let disrupted = async {
            disrupt(world, &load, releases).await?;
            load.stop();
            Ok(())
        };
        tokio::try_join!(load.change(), disrupted)?;
        let after = load.in_sync().await?;
        ensure!(before == after, "an object was made anew: {before:?} became {after:?}");
        Ok(())
    };
    tokio::select! {
        failed = load.follow() => failed,
        outcome = work => outcome,
    }
}

async fn disrupt(world: &World, load: &Load, releases: [(&ControlPlane, Release<'_>); 2]) -> Result<()> {
    let begin = Instant::now();
    // How long changes take while nothing happens, and not while the first objects were made.
    load.settled().await?;
    load.goes_on().await?;
    report(load, "undisturbed").await?;
    let rounds = env::var(ROUNDS).map_or(Ok(1), |rounds| rounds.parse())?;
    for round in 0..rounds {
        for (plane, release) in releases {
            end_each(plane, release, round, load).await?;
        }
    }
    for (plane, release) in releases {
        let roll = ["--reuse-values", "--set", "podAnnotations.rolled=once", "--wait"];
        world.apply(plane, "upgrade", release, &roll).await?;
        report(load, &format!("{} upgraded", release.name)).await?;
    }
    for (plane, release) in releases {
        let args = ["rollback", release.name, "--namespace", release.namespace, "--wait"];
        world.helm(plane, &args).await?;
        report(load, &format!("{} rolled back", release.name)).await?;
    }
    let seconds = begin.elapsed().as_secs();
    say(&format!("{} changes in {seconds} s", load.count()));
    Ok(())
}

/// Kills one Pod of a release, the one that leads first, and deletes the other one; in every other round the other way round.
async fn end_each(plane: &ControlPlane, release: Release<'_>, round: u64, load: &Load) -> Result<()> {
    let what = format!("a Pod of {} to lead", release.name);
    let first = eventually(what, SOON, async || leader(plane, release).await).await?;
    let mut names: Vec<_> = list(plane, release).await?.iter().map(ResourceExt::name_any).collect();
    names.sort_by_key(|name| *name != first);
    let ends = if round.is_multiple_of(2) {
        [End::Killed, End::Deleted]
    } else {
        [End::Deleted, End::Killed]
    };
    for (name, end) in names.into_iter().zip(ends) {
        let leads = leader(plane, release).await?.as_ref() == Some(&name);
        end_pod(plane, release, &name, end).await?;
        let role = if leads { "the leader" } else { "one that did not lead" };
        report(load, &format!("{} {end:?}: {role}", release.name)).await?;
    }
    Ok(())
}

/// Waits until everything has arrived, and prints how long that took.
async fn report(load: &Load, what: &str) -> Result<()> {
    let longest = load.settled().await?.as_secs_f64();
    say(&format!("{what}: a change arrived after {longest:.3} s at the latest"));
    Ok(())
}

#[expect(clippy::print_stdout, reason = "how long nothing was in sync is of interest")]
fn say(line: &str) {
    println!("{line}");
}

/// The Pod of a release that leads, if there is one.
async fn leader(plane: &ControlPlane, release: Release<'_>) -> Result<Option<String>> {
    let leases = Api::<Lease>::namespaced(plane.client(), release.namespace);
    let leases = leases.list(&ListParams::default()).await?.items;
    let holders: Vec<_> = leases.into_iter().filter_map(|it| it.spec?.holder_identity).collect();
    let leads = |name: &String| holders.iter().any(|holder| holder.starts_with(&format!("{name}_")));
    Ok(list(plane, release)
        .await?
        .iter()
        .map(ResourceExt::name_any)
        .find(leads))
}

async fn list(plane: &ControlPlane, release: Release<'_>) -> Result<Vec<Pod>> {
    let pods = Api::<Pod>::namespaced(plane.client(), release.namespace);
    let of_release = ListParams::default().labels(&format!("app.kubernetes.io/name={}", release.name));
    Ok(pods.list(&of_release).await?.items)
}

/// Ends a Pod, and waits until another one is ready in its place.
async fn end_pod(plane: &ControlPlane, release: Release<'_>, name: &str, end: End) -> Result<()> {
    let params = DeleteParams {
        grace_period_seconds: match end {
            End::Killed => Some(0),
            End::Deleted => None,
        },
        ..DeleteParams::default()
    };
    let pods = Api::<Pod>::namespaced(plane.client(), release.namespace);
    pods.delete(name, &params).await?;
    eventually(format!("another Pod in place of {name}"), SOON, async || {
        let pods = list(plane, release).await?;
        let states: Vec<_> = pods.iter().map(|pod| (pod.name_any(), is_ready(pod))).collect();
        let is_whole = states.len() == 2 && states.iter().all(|(other, is_ready)| other != name && *is_ready);
        ensure!(is_whole, "{states:?}");
        Ok(Some(()))
    })
    .await
}

fn is_ready(pod: &Pod) -> bool {
    let mut conditions = pod.status.iter().flat_map(|it| it.conditions.iter().flatten());
    conditions.any(|it| it.type_ == "Ready" && it.status == "True")
}
