//! Status, and waiting until all is healthy. No controllers run workloads here: what they would say is written by hand.

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::eventually;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::{
    case::{Case, SOON},
    config_map,
    world::case,
};

#[test]
fn status_says_how_each_object_is() -> Result<()> {
    case("status", async |case| {
        case.apply(&[deployment(), job(), claim(), config_map("a", "1")])
            .await?
            .done()?;
        let status = case.run(&["status", case.name, "-o", "json"]).await?.done()?.json()?;
        ensure!(
            status["set"] == "status" && status["namespace"] == "status",
            "{status:#}"
        );
        ensure!(status["versions"][0]["version"] == "status.v1", "{status:#}");
        ensure!(
            status["versions"][0]["phase"] == "Settled" && status["healthy"] == false,
            "{status:#}"
        );
        check(&status, "a", "Healthy", "")?;
        check(&status, "web", "Progressing", "newest generation")?;
        check(&status, "once", "Progressing", "0 of 1 pods have completed")?;
        check(&status, "disk", "Progressing", "not bound")?;
        let owners: Vec<_> = objects(&status).map(|object| object["owner"].as_str()).collect();
        ensure!(owners == [Some("status.v1"); 4], "{status:#}");

        say(case, "deployment", "web", &rolling_out(case, 1).await?).await?;
        say(case, "pvc", "disk", &json!({"phase": "Lost"})).await?;
        say(case, "job", "once", &job_failed()).await?;
        case.kubectl(&["delete", "configmap", "a", "-n", case.name], "").await?;
        let status = case.run(&["status", case.name, "-o", "json"]).await?.done()?.json()?;
        check(&status, "a", "Missing", "")?;
        check(&status, "web", "Progressing", "1 of 2 pods are ready")?;
        check(&status, "once", "Failed", "BackoffLimitExceeded")?;
        check(&status, "disk", "Failed", "does not exist any more")?;
        let text = case.run(&["status", case.name]).await?.done()?;
        text.expect(
            0,
            &[
                "deployment.apps/web",
                "1 of 2 pods are ready",
                "4 not healthy",
                "status.v1 Settled",
            ],
        )?;
        // What is missing is made again, and what is not healthy is no reason to write.
        case.apply(&[deployment(), job(), claim(), config_map("a", "1")])
            .await?
            .done()?;
        case.whole(2).await?;

        say(case, "deployment", "web", &rolling_out(case, 2).await?).await?;
        let status = case.run(&["status", case.name, "-o", "json"]).await?.done()?.json()?;
        check(&status, "web", "Healthy", "")?;
        check(&status, "a", "Healthy", "")?;
        let all = case.run(&["status"]).await?.done()?;
        all.expect(0, &["status.v2"])?;
        case.delete().await?.done()?;
        case.run(&["status", case.name])
            .await?
            .expect(1, &["there is no set status"])
            .map(drop)
    })
}

#[test]
fn an_apply_waits_until_all_is_healthy() -> Result<()> {
    case("wait", async |case| {
        let set = [deployment(), job(), claim(), config_map("a", "1")];
        let mut run = case.start_apply(&case.synk, &set, &["--wait", "--timeout=2m"])?;
        eventually("the set to be applied", SOON, async || {
            Ok(case.settled(1).await.ok().map(drop))
        })
        .await?;
        say(case, "deployment", "web", &rolling_out(case, 2).await?).await?;
        say(case, "pvc", "disk", &json!({"phase": "Bound"})).await?;
        // By now it has seen that the Job alone is left.
        run.wait_for_line("0 of 1 pods have completed", SOON).await?;
        ensure!(run.try_wait()?.is_none(), "it did not wait for the Job: {}", run.log());
        say(case, "job", "once", &job_done()).await?;
        let status = run.wait(SOON).await?;
        ensure!(status.success(), "{status}: {}", run.log());

        // All is as it is to be: it looks once and is done.
        case.apply_with(&set, &["--wait", "--timeout=2m"]).await?.done()?;
        case.delete().await?.done().map(drop)
    })
}

#[test]
fn what_does_not_get_healthy_in_time_is_named() -> Result<()> {
    case("wait-timeout", async |case| {
        let set = [deployment(), config_map("a", "1")];
        let late = case.apply_with(&set, &["--wait", "--timeout=3s"]).await?;
        late.expect(
            1,
            &[
                "timed out",
                "1 of 2 objects",
                "deployment.apps/web in namespace wait-timeout",
            ],
        )?;
        // It is applied all the same.
        ensure!(case.whole(1).await? == 2, "not both");
        let late = case.apply_with(&set, &["--wait", "--timeout=1s", "-o", "json"]).await?;
        ensure!(
            late.code == 1 && late.json()?["error"]["reason"] == "TimedOut",
            "{}",
            late.all()
        );
        case.delete().await?.done().map(drop)
    })
}

#[test]
fn what_has_failed_is_not_waited_for() -> Result<()> {
    case("wait-failed", async |case| {
        let set = [deployment(), config_map("a", "1")];
        case.apply(&set).await?.done()?;
        let mut status = rolling_out(case, 1).await?;
        status["conditions"] = json!([{
            "type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "it is stuck",
        }]);
        say(case, "deployment", "web", &status).await?;
        let run = case.apply_with(&set, &["--wait", "--timeout=10m"]);
        let failed = timeout(SOON, run).await.context("it waits for what has failed")??;
        failed.expect(1, &["deployment.apps/web", "ProgressDeadlineExceeded: it is stuck"])?;

        // A rollback can wait too; a new generation is a new chance.
        let mut next = set.clone();
        next[0]["spec"]["replicas"] = json!(3);
        case.apply(&next).await?.done()?;
        let back = ["rollback", "wait-failed.v1", "--wait", "--timeout=2s"];
        case.run(&back).await?.expect(1, &["timed out", "newest generation"])?;
        case.whole(3).await?;
        case.delete().await?.done().map(drop)
    })
}

fn pods() -> Value {
    json!({
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "web", "image": "example.org/web:1"}]},
    })
}

fn deployment() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": pods()},
    })
}

fn job() -> Value {
    let mut template = pods();
    template["spec"]["restartPolicy"] = json!("Never");
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "once"}, "spec": {"template": template}})
}

fn claim() -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "disk"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    })
}

/// What its controller says of the Deployment when so many of its two Pods are ready.
async fn rolling_out(case: &Case, ready: u32) -> Result<Value> {
    let live = case.get("apps/v1/deployments", "web").await?;
    Ok(json!({
        "observedGeneration": live["metadata"]["generation"], "replicas": 2, "updatedReplicas": 2,
        "readyReplicas": ready, "availableReplicas": ready,
    }))
}

fn job_done() -> Value {
    json!({
        "startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:01:00Z", "succeeded": 1,
        "conditions": conditions(&["SuccessCriteriaMet", "Complete"], "CompletionsReached"),
    })
}

fn job_failed() -> Value {
    json!({
        "startTime": "2026-01-01T00:00:00Z", "failed": 7,
        "conditions": conditions(&["FailureTarget", "Failed"], "BackoffLimitExceeded"),
    })
}

fn conditions(kinds: &[&str], reason: &str) -> Vec<Value> {
    let condition = |kind: &&str| {
        json!({
            "type": kind, "status": "True", "reason": reason, "message": "written by hand",
            "lastTransitionTime": "2026-01-01T00:01:00Z",
        })
    };
    kinds.iter().map(condition).collect()
}

/// Writes a status as the controller of its kind does.
async fn say(case: &Case, kind: &str, name: &str, status: &Value) -> Result<()> {
    let patch = json!({"status": status}).to_string();
    let args = [
        "patch",
        kind,
        name,
        "-n",
        case.name,
        "--subresource=status",
        "--type=merge",
        "-p",
        &patch,
    ];
    case.kubectl(&args, "").await.map(drop)
}

fn objects(status: &Value) -> impl Iterator<Item = &Value> {
    status["objects"].as_array().into_iter().flatten()
}

#[track_caller]
fn check(status: &Value, name: &str, state: &str, reason: &str) -> Result<()> {
    let mut objects = objects(status);
    let object = objects
        .find(|object| object["name"] == name)
        .with_context(|| format!("no {name}: {status:#}"))?;
    let health = &object["health"];
    let said = health["reason"].as_str().unwrap_or_default();
    ensure!(health["state"] == state && said.contains(reason), "{object:#}");
    Ok(())
}
