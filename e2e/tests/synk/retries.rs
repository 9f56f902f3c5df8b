//! What fails is tried again: objects until nothing changes any more, and everything when it may pass.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::{Proxy, eventually, eventually_ok, process::Signal};
use serde_json::{Value, json};

use crate::{
    case::{Case, SOON},
    config_map,
    document::{actions, invalid},
    look,
    world::{alone, case},
};

#[test]
fn what_fails_is_told_and_what_was_there_stays_until_all_is_well() -> Result<()> {
    case("failed", async |case| {
        let first = ["a", "b", "c", "leaves"].map(|name| config_map(name, "1"));
        case.apply(&first).await?.done()?;
        case.whole(1).await?;

        let same = [config_map("b", "1"), config_map("c", "1")];
        let broken = [config_map("a", "2"), invalid("wrong"), config_map("z", "1")];
        let broken = [&broken[..], &same].concat();
        let since = case.now()?;
        case.apply(&broken).await?.expect(1, &["configmap/wrong"])?;
        let tries = case
            .asked(since)?
            .writes
            .iter()
            .filter(|asked| asked.name == "wrong")
            .count();
        ensure!((2..=10).contains(&tries), "tried {tries} times");
        ensure!(case.versions().await? == [1, 2], "{:?}", case.versions().await?);
        let second = case.sets().await?.pop().context("no version")?;
        let status = &second["status"];
        ensure!(
            status["phase"] == "Failed" && status["finishedAt"].is_string(),
            "{status:#}"
        );
        let expect = ["a Update", "b None", "c None", "z Create"];
        ensure!(actions(&second) == expect, "{status:#}");
        let failed = look::objects_in(&status["failed"]);
        ensure!(failed.len() == 1 && failed[0]["name"] == "wrong", "{failed:#?}");
        ensure!(
            failed[0]["error"]
                .as_str()
                .is_some_and(|error| error.contains("no key")),
            "{failed:#?}"
        );
        // The rest is applied, and nothing is pruned.
        ensure!(case.get("configmaps", "a").await?["data"]["key"] == "2", "not applied");
        case.get("configmaps", "leaves").await?;

        // Of those that failed only the last is kept.
        case.apply(&broken).await?.expect(1, &["wrong"])?;
        let kept = async || {
            let versions = case.versions().await?;
            ensure!(versions == [1, 3], "{versions:?}");
            Ok(())
        };
        eventually_ok("versions 1 and 3", SOON, kept).await?;
        case.get("configmaps", "leaves").await?;

        let mended = [config_map("a", "2"), config_map("wrong", "1")];
        case.apply(&[&mended[..], &same].concat()).await?.done()?;
        ensure!(case.whole(4).await? == 4, "not all four");
        case.gone("configmaps", "leaves").await?;
        case.gone("configmaps", "z").await?;
        case.delete().await?.done().map(drop)
    })
}

#[test]
fn what_needs_a_later_one_is_tried_again() -> Result<()> {
    case("rounds", async |case| {
        // Pods come before the classes that admission looks for.
        let pod = |name: &str| {
            json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
                "spec": {"priorityClassName": "rounds-high", "containers": [{"name": "a", "image": "example.com/a:1"}]},
            })
        };
        let class = json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "rounds-high"},
            "value": 1000, "description": "",
        });
        // Pods are only made where their account is.
        case.kubectl(&["create", "serviceaccount", "default", "-n", case.name], "")
            .await
            .ok();
        let since = case.now()?;
        case.apply_with(&[pod("one"), class], &["--retries=0", "--concurrency=1"])
            .await?
            .done()?;
        ensure!(case.whole(1).await? == 2, "not both");
        let asks = case.asked(since)?;
        let tries = asks.writes.iter().filter(|asked| asked.name == "one").count();
        ensure!(tries >= 2, "it was not refused: {:#?}", asks.writes);
        case.delete().await?.done().map(drop)
    })
}

#[test]
fn a_refusal_of_admission_fails_until_it_is_lifted() -> Result<()> {
    case("admission", async |case| {
        let policy = json!({"apiVersion": "v1", "kind": "List", "items": [
            {
                "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
                "metadata": {"name": "synk-e2e-admission"},
                "spec": {
                    "failurePolicy": "Fail",
                    "matchConstraints": {"resourceRules": [
                        {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["configmaps"]},
                    ]},
                    "validations": [{"expression": "!('key' in object.data) || object.data.key != 'forbidden'", "message": "not in this house"}],
                },
            },
            {
                "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
                "metadata": {"name": "synk-e2e-admission"},
                "spec": {
                    "policyName": "synk-e2e-admission", "validationActions": ["Deny"],
                    "matchResources": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": case.name}}},
                },
            },
        ]});
        case.plane.apply(&policy.to_string()).await?;
        let mut probe = config_map("probe", "forbidden");
        probe["metadata"]["namespace"] = json!(case.name);
        let probe = probe.to_string();
        let in_force = async || {
            let refused = case
                .kubectl(&["create", "--dry-run=server", "-f", "-"], &probe)
                .await
                .err();
            Ok(refused
                .filter(|refused| format!("{refused:#}").contains("not in this house"))
                .map(drop))
        };
        eventually("the policy to be in force", SOON, in_force).await?;

        let set = [config_map("fine", "1"), config_map("bad", "forbidden")];
        let since = case.now()?;
        case.plan(&set, &[])
            .await?
            .expect(1, &["configmap/bad", "not in this house"])?;
        case.wrote_nothing(since)?;
        case.apply(&set)
            .await?
            .expect(1, &["configmap/bad", "not in this house"])?;
        case.get("configmaps", "fine").await?;
        case.kubectl(
            &["delete", "validatingadmissionpolicybinding", "synk-e2e-admission"],
            "",
        )
        .await?;
        eventually("it to be lifted", SOON, async || {
            let made = case.kubectl(&["create", "--dry-run=server", "-f", "-"], &probe).await;
            Ok(made.ok().map(drop))
        })
        .await?;
        case.apply(&set).await?.done()?;
        ensure!(case.whole(2).await? == 2, "not both");
        case.delete().await?.done().map(drop)
    })
}

#[test]
fn an_api_server_that_comes_later_is_waited_for() -> Result<()> {
    case("later", async |case| {
        let (proxy, synk) = case.proxied().await?;
        proxy.block();
        let set = [config_map("a", "1"), config_map("b", "1")];
        let mut never = case.start_apply(&synk, &set, &["--retries=0"])?;
        let status = never.wait(SOON).await?;
        never.hush();
        ensure!(status.code() == Some(1), "{status}: {}", never.log());
        ensure!(case.versions().await?.is_empty(), "a version was made");

        let mut run = case.start_apply(&synk, &set, &["--retries=20"])?;
        run.wait_for_line("starting over", SOON).await?;
        proxy.unblock();
        let status = run.wait(SOON).await?;
        ensure!(status.success(), "{status}: {}", run.log());
        run.hush();
        ensure!(case.whole(1).await? == 2, "not both");
        case.delete().await?.done().map(drop)
    })
}

#[test]
fn an_api_server_that_goes_away_in_the_middle_is_waited_for() -> Result<()> {
    case("middle", async |case| {
        let (gate, _) = case.gated().await?;
        let proxy = Proxy::start(gate.url().trim_start_matches("http://").parse()?).await?;
        let synk = case.through(&format!("http://{}", proxy.address()))?;
        let set = many(120);
        let mut run = case.pause(&gate, &synk, &set, 20, &[]).await?;
        proxy.block();
        run.wait_for_line("starting over", SOON).await?;
        gate.open();
        proxy.unblock();
        let status = run.wait(SOON).await?;
        ensure!(status.success(), "{status}: {}", run.log());
        run.hush();
        all_there(case, 120).await?;
        case.delete().await?.done().map(drop)
    })
}

#[test]
fn an_api_server_that_is_killed_in_the_middle_leaves_work_that_the_next_apply_finishes() -> Result<()> {
    alone("outage", async |case| {
        let set = many(120);
        let (gate, mut run) = case.start_paused(&set, 20, &["--retries=0"]).await?;
        case.plane.stop_api_server()?;
        gate.open();
        let status = run.wait(SOON).await?;
        run.hush();
        ensure!(status.code() == Some(1), "{status}: {}", run.log());
        case.plane.start_api_server().await?;
        case.forget_lease(case.name).await?;
        case.apply(&set).await?.done()?;
        all_there(case, 120).await?;

        // One that is stopped for a moment is noticed by nobody but by the time it takes.
        let next: Vec<_> = set.into_iter().map(changed).collect();
        let (gate, mut run) = case.start_paused(&next, 20, &[]).await?;
        case.plane.pause_api_server()?;
        gate.open();
        tokio::time::sleep(Duration::from_secs(1)).await;
        case.plane.resume_api_server()?;
        let status = run.wait(SOON).await?;
        ensure!(status.success(), "{status}: {}", run.log());
        run.hush();
        all_there(case, 120).await?;
        case.delete().await?.done().map(drop)
    })
}

#[test]
fn one_that_is_asked_to_stop_stops_and_the_next_goes_on() -> Result<()> {
    case("stopped", async |case| {
        let set = many(120);
        let (_gate, mut run) = case.start_paused(&set, 10, &[]).await?;
        run.signal(Signal::SIGINT)?;
        let status = run.wait(SOON).await?;
        run.hush();
        ensure!(status.code() == Some(130), "{status}: {}", run.log());
        // Nobody has to wait for a Lease that it left behind.
        let lease = case.find("coordination.k8s.io/v1/leases", "synk-stopped").await?;
        ensure!(lease.is_none(), "it left its Lease: {lease:?}");
        case.apply(&set).await?.done()?;
        all_there(case, 120).await?;
        case.delete().await?.done().map(drop)
    })
}

/// As many ConfigMaps.
pub(crate) fn many(count: usize) -> Vec<Value> {
    (0..count)
        .map(|number| config_map(&format!("map-{number:03}"), "1"))
        .collect()
}

fn changed(mut map: Value) -> Value {
    map["data"]["key"] = json!("2");
    map
}

/// Whether the newest version owns so many objects, and all of them.
async fn all_there(case: &Case, count: usize) -> Result<()> {
    let version = case.versions().await?.pop().context("no version")?;
    ensure!(case.whole(version).await? == count, "not all");
    Ok(())
}
