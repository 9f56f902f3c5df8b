//! Objects change all the time while each Pod is killed or deleted in turn, and while the releases are upgraded and rolled back.

use std::{env, time::Duration};

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::{
    ControlPlane,
    charts::{self, KONNECTOR, Release, SERVER},
    eventually,
    offer::Offer,
    run,
    wildwest::SOON,
};
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Pod};
use kube::{
    Api, ResourceExt as _,
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
        Box::pin(world.during(SERVER, changes(&world))).await
    })
}

async fn changes(world: &World) -> Result<()> {
    let releases = [(&world.provider, SERVER), (&world.consumer, KONNECTOR)];
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
    make_namespace(&world.consumer, NAMESPACE).await?;
    world
        .bind(&bindery_e2e::process::Programs::default(), offer.name, &[])
        .await?;

    let load = Load::new(world, offer).await?;
    let work = async {
        let before = load.in_sync().await?;
        tokio::select! {
            failed = load.change() => failed,
            outcome = disrupt(world, &load, releases) => outcome,
        }?;
        let after = load.in_sync().await?;
        ensure!(before == after, "an object was made anew: {before:?} became {after:?}");
        Ok(())
    };
    tokio::select! {
        failed = load.follow() => failed,
        outcome = work => outcome,
    }
}

#[expect(clippy::print_stdout, reason = "how long nothing was in sync is of interest")]
async fn disrupt(world: &World, load: &Load, releases: [(&ControlPlane, Release<'_>); 2]) -> Result<()> {
    let begin = Instant::now();
    let show = |what: &str, gap: Duration| println!("{what}: a change took at most {:.3} s", gap.as_secs_f64());
    // How long changes take while nothing happens, and not while the first objects were made.
    load.settled().await?;
    load.goes_on().await?;
    show("undisturbed", load.settled().await?);
    let rounds = env::var(ROUNDS).map_or(Ok(1), |rounds| rounds.parse())?;
    for round in 0..rounds {
        let ends = if round % 2 == 0 {
            [End::Killed, End::Deleted]
        } else {
            [End::Deleted, End::Killed]
        };
        for (plane, release) in releases {
            for ((name, leads), end) in pods(plane, release).await?.into_iter().zip(ends) {
                end_pod(plane, release, &name, end).await?;
                let role = if leads { "leader" } else { "other Pod" };
                show(&format!("{} {role} {end:?}", release.name), load.settled().await?);
            }
        }
    }
    for (plane, release) in releases {
        let roll = ["--reuse-values", "--set", "podAnnotations.rolled=once", "--wait"];
        world.apply(plane, "upgrade", release, &roll).await?;
        show(&format!("{} upgraded", release.name), load.settled().await?);
    }
    for (plane, release) in releases {
        let args = ["rollback", release.name, "--namespace", release.namespace, "--wait"];
        world.helm(plane, &args).await?;
        show(&format!("{} rolled back", release.name), load.settled().await?);
    }
    println!("{} changes in {:.0} s", load.count(), begin.elapsed().as_secs_f64());
    Ok(())
}

/// Names of the Pods of a release, the leader's first, and whether they lead.
async fn pods(plane: &ControlPlane, release: Release<'_>) -> Result<Vec<(String, bool)>> {
    let leases = Api::<Lease>::namespaced(plane.client(), release.namespace);
    let leases = leases.list(&ListParams::default()).await?.items;
    let holders: Vec<_> = leases.into_iter().filter_map(|it| it.spec?.holder_identity).collect();
    let names = list(plane, release).await?.into_iter().map(|pod| pod.name_any());
    let leads = |name: &str| holders.iter().any(|holder| holder.starts_with(&format!("{name}_")));
    let mut pods: Vec<_> = names.map(|name| (name.clone(), leads(&name))).collect();
    pods.sort_by_key(|(_, leads)| !leads);
    ensure!(
        pods.len() == 2 && pods[0].1 && !pods[1].1,
        "one of two Pods leads: {pods:?}, {holders:?}"
    );
    Ok(pods)
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
