//! Two replicas of each: the leaders are killed during work, and the others take over.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::{
    Process, Provider,
    bound::{self, Bound, copies, names},
    eventually, run,
    wildwest::SOON,
};
use bindery_proto::v1alpha2::ListTemplatesRequest;

use super::{
    calls,
    picture::{self, becomes, settled},
};

/// What a replica logs when it begins to lead.
const LEADING: &str = "lease: leading";

/// Short for a test, and long enough for a busy machine.
const LEASE: [&str; 6] = [
    "--lease-duration",
    "10",
    "--lease-renew-deadline",
    "8",
    "--lease-retry-period",
    "1",
];

const LOAD: usize = 120;

#[test]
fn leaders_killed_during_work() -> Result<()> {
    run(async {
        let mut bound = Bound::start("replicas", &LEASE).await?;
        bound.provider.start_server().await?;
        bound.consumer.start_konnector().await?;
        both_answer(&bound.provider, &bound.token).await?;
        let admin = bound.provider.plane.client();
        let first = calls::client(&bound.provider, &bound.provider.replica_address(0), &bound.token)?;
        calls::bind(&first, "one-replica").await?;
        let once = settled(&admin, "one-replica").await?;
        picture::has_one_of_each(&once)?;

        let burst: Vec<_> = names("burst", 0..LOAD).collect();
        let creating = tokio::spawn({
            let (cowboys, burst) = (bound.cowboys.clone(), burst.clone());
            async move { bound::create(&cowboys, burst).await }
        });
        bound
            .expected
            .extend(burst.into_iter().map(|name| (name, "ride".to_owned())));
        copies(&bound.cowboys, 20).await?;
        let (led, follows) = kill_leader(&mut bound.consumer.konnectors)?;
        let (server_led, server_follows) = kill_leader(&mut bound.provider.servers)?;
        // The replica that is left answers at once, also while nobody leads.
        let left = bound.provider.replica_address(server_follows);
        let left = calls::client(&bound.provider, &left, &bound.token)?;
        ensure!(!left.list_templates(ListTemplatesRequest::default()).await?.is_empty());
        let other = async {
            calls::bind(&left, "other-replica")
                .await
                .context("over the replica that is left")
        };
        let (others, (), ()) = tokio::try_join!(
            other,
            leads(&bound.consumer.konnectors[follows]),
            leads(&bound.provider.servers[server_follows])
        )?;
        ensure!(others.kubeconfig.is_some(), "bound without a kubeconfig");
        becomes(&admin, "other-replica", &once).await?;
        creating.await??;
        bound.converged().await?;
        bound.status_flows("caught").await?;

        // The dead come back, and follow.
        if server_led == 0 {
            bound.provider.restart_server().await?;
        }
        bound.consumer.start_konnector().await?;
        ensure!(!bound.consumer.konnectors[led].is_running());
        bound.create(names("late", 0..5)).await?;
        bound.converged().await?;
        bound.bound_once().await?;
        ensure!(leaders(&mut bound.consumer.konnectors) == 1 && leaders(&mut bound.provider.servers) == 1);
        bound.bind(&["cowboys"]).await?;
        bound.unbind().await
    })
}

async fn both_answer(provider: &Provider, token: &Path) -> Result<()> {
    for index in 0..2 {
        let client = calls::client(provider, &provider.replica_address(index), token)?;
        let templates = client.list_templates(ListTemplatesRequest::default()).await?;
        ensure!(templates.len() == 1, "replica {index} lists {templates:?}");
    }
    Ok(())
}

/// Kills the one that leads; answers its number and the other's.
fn kill_leader(processes: &mut [Process]) -> Result<(usize, usize)> {
    let leader = processes.iter().position(|process| process.log().contains(LEADING));
    let leader = leader.context("nobody leads")?;
    ensure!(
        !processes[1 - leader].log().contains(LEADING),
        "two lead at the same time"
    );
    processes[leader].kill9()?;
    Ok((leader, 1 - leader))
}

/// How many lead now.
fn leaders(processes: &mut [Process]) -> usize {
    let running = processes
        .iter_mut()
        .map(|process| process.is_running() && process.log().contains(LEADING));
    running.filter(|leads| *leads).count()
}

async fn leads(process: &Process) -> Result<()> {
    eventually(format!("{} to lead", process.name()), SOON, async || {
        Ok(process.log().contains(LEADING).then_some(()))
    })
    .await
}
