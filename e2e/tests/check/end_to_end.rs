//! `kubectl bind check --end-to-end` on the user's own clusters: it works, and leaves nothing, also after Ctrl-C.

use std::time::Duration;

use anyhow::{Result, ensure};
use bindery_e2e::{ControlPlane, Process, eventually_ok, process::Signal, remains::COLLECTED};

use crate::world::World;

const LIMIT: Duration = Duration::from_mins(3);

pub(crate) async fn an_object_travels(world: &World) -> Result<()> {
    let mut command = world.check_command()?;
    command.arg("--end-to-end");
    let says = [
        "the provider offers template check-",
        "an object of this cluster is on the provider",
        "the provider's status is on the object of this cluster",
        "nothing is left of the probe API",
        "All is well",
    ];
    world.run(command).await?.expect(0, &says)?;
    nothing_is_left(world).await
}

pub(crate) async fn a_stopped_run_leaves_nothing(world: &World) -> Result<()> {
    let mut command = world.check_command()?;
    command.arg("--end-to-end");
    let mut check = Process::spawn("check-stopped", &command)?;
    check.wait_for_line("offers template", LIMIT).await?;
    check.signal(Signal::SIGINT)?;
    let status = check.wait(LIMIT).await?;
    ensure!(status.code() == Some(130), "{status}: {}", check.tail());
    check.hush();
    nothing_is_left(world).await
}

pub(crate) async fn it_needs_the_provider(world: &World) -> Result<()> {
    world
        .bind(&["check", "--end-to-end"])
        .await?
        .expect(2, &["--provider-context or --provider-kubeconfig"])?;
    Ok(())
}

/// The API server ends namespaces and CustomResourceDefinitions in the background.
async fn nothing_is_left(world: &World) -> Result<()> {
    for plane in [&world.bound.consumer.plane, &world.bound.provider.plane] {
        eventually_ok("nothing to be left of the probe API", COLLECTED, async || {
            let left = named_check(plane).await?;
            ensure!(left.is_empty(), "left on {}: {left:?}", plane.name());
            Ok(())
        })
        .await?;
    }
    Ok(())
}

async fn named_check(plane: &ControlPlane) -> Result<Vec<String>> {
    let kinds = "namespaces,customresourcedefinitions,clusterroles,clusterrolebindings";
    let all = plane.kubectl(&["get", kinds, "-o", "name"]).await?;
    let secrets = plane
        .kubectl(&["get", "secrets", "-n", "kube-bind", "-o", "name"])
        .await?;
    let own = all
        .lines()
        .chain(secrets.lines())
        .filter(|name| name.contains("check-"));
    Ok(own.map(str::to_owned).collect())
}
