use std::{path::Path, time::Duration};

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::{eventually, process};
use kube::api::DeleteParams;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::world::{Node, SOON, container, konnector, short};

pub(crate) async fn a_container_that_is_killed_or_not_alive_is_started_again(node: &Node<'_>) -> Result<()> {
    let mut spec = konnector()?;
    node.create("killed", &spec).await?;
    let first = node.ready("killed").await?;
    signal("KILL", &first).await?;
    let again = |status: &_| was_restarted(status) && container(status)["ready"] == true;
    let status = node.status("killed", "to be ready once more", again).await?;
    assert_eq!(container(&status)["lastState"]["terminated"]["exitCode"], 128 + 9);
    ensure!(node.ready("killed").await? != first, "it is the same process");

    // Until the program listens, it may not have heard of SIGTERM yet either.
    spec["containers"][0]["startupProbe"] = json!({
        "httpGet": {"path": "/healthz", "port": "admin"}, "periodSeconds": 1, "failureThreshold": 120,
    });
    spec["containers"][0]["livenessProbe"] = json!({
        "httpGet": {"path": "/nothing-is-here", "port": "admin"}, "periodSeconds": 1, "failureThreshold": 2,
    });
    node.create("dead", &spec).await?;
    let status = node.status("dead", "to be started again", was_restarted).await?;
    // The konnector ends as SIGTERM asks it to.
    assert_eq!(container(&status)["lastState"]["terminated"]["exitCode"], 0, "{status}");
    node.pods.delete("dead", &DeleteParams::default()).await?;
    Ok(())
}

pub(crate) async fn a_container_that_ends_is_started_again(node: &Node<'_>) -> Result<()> {
    let mut spec = short("synk:0.1.0", &["--version"]);
    spec["restartPolicy"] = json!("Always");
    node.create("short", &spec).await?;
    let status = node.status("short", "to be started again", was_restarted).await?;
    assert_eq!(container(&status)["lastState"]["terminated"]["exitCode"], 0);
    Ok(())
}

/// Whether the container was started again. It may be again and again, so that nobody can count on seeing the first time.
fn was_restarted(status: &Value) -> bool {
    container(status)["restartCount"].as_u64() >= Some(1)
}

/// A program that stands still does not hear SIGTERM.
pub(crate) async fn a_pod_has_its_grace_period_to_end(node: &Node<'_>) -> Result<()> {
    // Longer than the period of a Pod that states none.
    deleted("patient", 35, None, node).await?;
    // Without the grace period of the Pod, for which nobody waits here.
    deleted("impatient", 600, Some(0), node).await
}

async fn deleted(name: &str, seconds: u32, on_deletion: Option<u32>, node: &Node<'_>) -> Result<()> {
    let mut spec = konnector()?;
    spec["terminationGracePeriodSeconds"] = json!(seconds);
    node.create(name, &spec).await?;
    let process = node.ready(name).await?;
    signal("STOP", &process).await?;
    let begin = Instant::now();
    let delete = DeleteParams {
        grace_period_seconds: on_deletion,
        ..DeleteParams::default()
    };
    node.pods.delete(name, &delete).await?;
    eventually(format!("{name}: to be gone"), SOON, async || {
        let is_gone = node.pods.get_opt(name).await?.is_none() && !process.exists();
        Ok(is_gone.then_some(()))
    })
    .await?;
    let at_least = Duration::from_secs(on_deletion.unwrap_or(seconds).into());
    ensure!(
        begin.elapsed() >= at_least,
        "{name} was killed after {:?}",
        begin.elapsed()
    );
    Ok(())
}

/// Sends a signal to a process, given by its folder in `/proc`.
async fn signal(name: &str, process: &Path) -> Result<()> {
    let id = process.file_name().context("no process id")?;
    let mut command = std::process::Command::new("kill");
    command.arg("-s").arg(name).arg(id);
    process::stdout(&process::run(command, SOON).await?).map(drop)
}
