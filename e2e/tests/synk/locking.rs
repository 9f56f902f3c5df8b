//! Two applies of one set: one works, the other learns who that is, and one that crashed is passed.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::{Process, eventually, eventually_ok};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    case::{Case, SOON},
    config_map, look,
    world::case,
};

const LEASES: &str = "coordination.k8s.io/v1/leases";

#[test]
fn one_that_is_at_work_is_named_to_the_next() -> Result<()> {
    case("lock-alive", async |case| {
        let (gate, mut first) = case.start_paused(&many("first"), 1, &[]).await?;
        let holder = holder(case).await?;
        // As whom the other process is known.
        ensure!(holder.contains(&format!("-{}-", first.id())), "{holder}");
        let second = many("second");
        let (said, told, deletion) = tokio::try_join!(
            case.apply(&second),
            case.apply_with(&second, &["-o", "json"]),
            case.delete()
        )?;
        said.expect(1, &["lock-alive", "is being changed by", &holder])?;
        deletion.expect(1, &["is being changed by", &holder])?;
        ensure!(told.code == 1, "{}", told.all());
        ensure!(told.json()?["error"]["reason"] == "Held", "{}", told.stdout);

        gate.open();
        ended(&mut first, 0).await?;
        ensure!(case.whole(1).await? == many("").len(), "not all");
        for at in [0, 20, 39] {
            let live = case.get("configmaps", &format!("m{at}")).await?;
            ensure!(live["data"]["key"] == "first", "m{at} is not of the first: {live:#}");
        }
        free(case).await?;
        case.apply(&many("second")).await?.done()?;
        case.whole(2).await?;
        case.delete().await?.done()?;
        case.nothing_left(&[]).await
    })
}

#[test]
fn of_some_at_once_one_does_it() -> Result<()> {
    case("lock-race", async |case| {
        let set = many("same");
        let since = case.now()?;
        let runs = futures::future::try_join_all((0..4).map(|_| case.apply(&set))).await?;
        ensure!(runs.iter().any(|run| run.code == 0), "{runs:#?}");
        for run in runs {
            // Who looks when it is done finds nothing to do.
            if run.code != 0 {
                run.expect(1, &["is being changed by"])?;
            }
        }
        ensure!(case.whole(1).await? == set.len(), "not all");
        let writes = case.asked(since)?.writes;
        let made = writes
            .iter()
            .filter(|asked| asked.resource == "resourcesets" && asked.verb == "create");
        ensure!(made.count() == 1, "{writes:#?}");
        let applied = writes.iter().filter(|asked| asked.resource == "configmaps");
        ensure!(applied.count() == set.len(), "{writes:#?}");
        free(case).await?;
        case.delete().await?.done().map(drop)
    })
}

#[test]
fn one_that_was_killed_is_passed_and_its_work_finished() -> Result<()> {
    case("lock-killed", async |case| {
        let (_gate, mut first) = case.start_paused(&many("first"), 2, &[]).await?;
        let killed = holder(case).await?;
        first.kill9()?;
        first.hush();
        ensure!(holder(case).await? == killed, "it gave the Lease back");
        let begun = Instant::now();
        case.apply(&many("first")).await?.expect(0, &[&killed])?;
        ensure!(
            begun.elapsed() > Duration::from_secs(5),
            "passed before it could be known to be dead"
        );
        ensure!(case.whole(2).await? == many("").len(), "not finished");
        free(case).await?;
        case.delete().await?.done()?;
        case.nothing_left(&[]).await
    })
}

#[test]
fn clocks_do_not_matter() -> Result<()> {
    case("lock-clocks", async |case| {
        // Of a machine that is years ahead, and crashed.
        case.plane
            .apply(&lease(case, "ada@ahead-1-a", "2040-01-01T00:00:00.000000Z").to_string())
            .await?;
        case.apply(&many("1")).await?.expect(0, &["ada@ahead-1-a"])?;
        case.whole(1).await?;
        free(case).await?;
        // Of one that is years behind, and alive.
        let renew = async {
            for at in 0_u32.. {
                let mut lease = lease(case, "bob@behind-1-b", "2001-01-01T00:00:00.000000Z");
                lease["spec"]["leaseTransitions"] = json!(at);
                // On a busy machine one renewal may come long after the other.
                lease["spec"]["leaseDurationSeconds"] = json!(SOON.as_secs());
                case.plane.apply(&lease.to_string()).await?;
                tokio::time::sleep(Duration::from_secs(2)).await;
            }
            anyhow::Ok(())
        };
        let apply = async {
            eventually("the Lease", SOON, async || {
                Ok(case.find(LEASES, "synk-lock-clocks").await?.map(drop))
            })
            .await?;
            case.apply(&many("2"))
                .await?
                .expect(1, &["bob@behind-1-b", "2001-01-01T00:00:00Z"])
        };
        tokio::select! {
            renewed = renew => renewed.context("it ended")?,
            refused = apply => refused.map(drop)?,
        }
        ensure!(case.settled(1).await.is_ok(), "something was applied");
        // It is not one's own to take away.
        ensure!(
            holder(case).await? == "bob@behind-1-b",
            "the Lease of another was taken"
        );
        case.forget_lease(case.name).await?;
        case.delete().await?.done()?;
        case.nothing_left(&[]).await
    })
}

#[test]
fn one_that_loses_its_lease_stops() -> Result<()> {
    case("lock-lost", async |case| {
        // Retried, it would pass whoever took the Lease and does not renew it.
        let flags = ["--retries=0", "--concurrency=1"];
        let (_gate, mut first) = case.start_paused(&many("first"), 1, &flags).await?;
        holder(case).await?;
        let taken = json!({"spec": {"holderIdentity": "eve@elsewhere-1-e"}}).to_string();
        let patch = [
            "patch",
            "lease",
            "synk-lock-lost",
            "-n",
            case.name,
            "--type=merge",
            "-p",
            &taken,
        ];
        case.kubectl(&patch, "").await?;
        ended(&mut first, 1).await?;
        let log = first.log();
        ensure!(log.contains("was lost"), "{log}");
        ensure!(holder(case).await? == "eve@elsewhere-1-e", "it took the Lease away");
        let set = case.sets().await?.pop().context("no version")?;
        ensure!(set["status"]["phase"] != "Settled", "it went on: {:#}", set["status"]);
        ensure!(case.find("configmaps", "m39").await?.is_none(), "it went on");
        case.kubectl(&["delete", "lease", "synk-lock-lost", "-n", case.name], "")
            .await?;
        case.apply(&many("first")).await?.done()?;
        case.whole(2).await?;
        case.delete().await?.done().map(drop)
    })
}

#[test]
fn what_has_nothing_to_do_needs_no_lease() -> Result<()> {
    case("lock-idle", async |case| {
        case.apply(&[config_map("a", "1")]).await?.done()?;
        case.plane
            .apply(&lease(case, "ada@elsewhere-1-a", "2026-01-01T00:00:00.000000Z").to_string())
            .await?;
        let since = case.now()?;
        case.apply(&[config_map("a", "1")]).await?.done()?.without(&["ada"])?;
        case.plan(&[config_map("a", "2")], &[])
            .await?
            .expect(3, &["configmap/a"])?
            .without(&["ada"])?;
        case.run(&["status", case.name]).await?.done()?;
        case.wrote_nothing(since)?;
        case.delete().await?.done()?;
        case.nothing_left(&[]).await
    })
}

fn many(value: &str) -> Vec<Value> {
    (0..40).map(|at| config_map(&format!("m{at}"), value)).collect()
}

/// Who holds the Lease, as soon as somebody does.
async fn holder(case: &Case) -> Result<String> {
    let name = format!("synk-{}", case.name);
    eventually("a holder of the Lease", SOON, async || {
        let lease = case.find(LEASES, &name).await?;
        Ok(lease.and_then(|lease| Some(lease["spec"]["holderIdentity"].as_str()?.to_owned())))
    })
    .await
}

/// That there is no Lease any more.
async fn free(case: &Case) -> Result<()> {
    let path = format!("{}/synk-{}", look::path(LEASES, Some(case.name)), case.name);
    eventually_ok("no Lease", SOON, async || {
        let lease = case.read(&path).await?;
        ensure!(lease.is_none(), "{lease:#?}");
        Ok(())
    })
    .await
}

fn lease(case: &Case, holder: &str, time: &str) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": format!("synk-{}", case.name), "namespace": case.name},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "acquireTime": time, "renewTime": time},
    })
}

async fn ended(run: &mut Process, code: i32) -> Result<()> {
    let status = run.wait(SOON).await?;
    ensure!(status.code() == Some(code), "{status}:\n{}", run.log());
    Ok(())
}
