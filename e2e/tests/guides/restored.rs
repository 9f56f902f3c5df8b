//! The pages on backups. Whoever follows them has commands of their own for backups of etcd: here they ask the test for it.

use std::{collections::HashMap, fs, os::unix::fs::PermissionsExt as _, path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, bail};
use bindery_e2e::{ControlPlane, Workdir, control_plane::Backup, run};
use tokio::time::sleep;

use crate::world::World;

/// How often the test looks whether a page asks for something.
const LOOK: Duration = Duration::from_millis(100);
/// Hands its own name and its one argument over to the test, and waits until that has done it.
const COMMAND: &str = "#!/bin/sh
set -eu
desk=$(dirname \"$0\")
printf '%s %s' \"$(basename \"$0\")\" \"$1\" >\"$desk/asked.new\"
mv \"$desk/asked.new\" \"$desk/asked\"
until [ -e \"$desk/done\" ]; do sleep 0.1; done
rm \"$desk/done\"
";
/// How many resource versions a cluster gives out between a backup and what a page does next. Clients cannot tell that an API server
/// went back in time while it is no further back than it has come since.
const MEANWHILE: u64 = 1000;

/// Backs up and restores the etcd of a cluster when a page asks for it.
struct Backups {
    desk: Workdir,
    /// By name of the cluster.
    taken: HashMap<String, Backup>,
}

impl Backups {
    fn new() -> Result<Self> {
        let desk = Workdir::new("backups")?;
        for name in ["backup", "restore"] {
            let command = desk.write(name, COMMAND)?;
            fs::set_permissions(&command, fs::Permissions::from_mode(0o700))?;
        }
        Ok(Self {
            desk,
            taken: HashMap::new(),
        })
    }

    fn command(&self, name: &str) -> PathBuf {
        self.desk.path().join(name)
    }

    /// Does what the page asks for, until dropped.
    async fn serve(&mut self, world: &World) -> Result<()> {
        loop {
            let Ok(asked) = fs::read_to_string(self.command("asked")) else {
                sleep(LOOK).await;
                continue;
            };
            fs::remove_file(self.command("asked"))?;
            let done = match asked.split_once(' ') {
                Some(("backup", cluster)) => self.back_up(world, cluster).await,
                Some(("restore", cluster)) => self.restore(world, cluster).await,
                _ => bail!("the page asks for {asked:?}"),
            };
            done.with_context(|| asked.clone())?;
            self.desk.write("done", "")?;
        }
    }

    async fn back_up(&mut self, world: &World, cluster: &str) -> Result<()> {
        let plane = plane(world, cluster)?;
        self.taken.insert(cluster.to_owned(), plane.backup()?);
        plane.spend_revisions(MEANWHILE).await
    }

    async fn restore(&self, world: &World, cluster: &str) -> Result<()> {
        let plane = plane(world, cluster)?;
        let backup = self.taken.get(cluster).context("there is no backup")?;
        plane.stop_api_server()?;
        if cluster == "consumer" {
            // The konnector's Pods are others than in the backup, and a kubelet hears of them only from a watch that expires.
            plane.restore_bumped(backup).await?;
        } else {
            plane.restore(backup).await?;
        }
        plane.start_api_server().await
    }
}

fn plane<'a>(world: &'a World, cluster: &str) -> Result<&'a ControlPlane> {
    Ok(match cluster {
        "provider" => &world.provider.plane,
        "consumer" => &world.consumer,
        other => bail!("there is no cluster {other:?}"),
    })
}

async fn follow(name: &str, page: &str) -> Result<()> {
    let world = World::start(name).await?;
    let mut backups = Backups::new()?;
    let mut given = world.given();
    for (variable, name) in [("BACKUP", "backup"), ("RESTORE", "restore")] {
        given.insert(variable, backups.command(name).display().to_string());
    }
    let follow = world.follow_through_outages(page, given);
    tokio::select! {
        outcome = follow => outcome,
        failed = backups.serve(&world) => failed,
    }
}

#[test]
fn backup_and_restore_of_a_consumer() -> Result<()> {
    run(follow("guide-restore-c", "restore-a-consumer.md"))
}

#[test]
fn backup_and_restore_of_a_provider() -> Result<()> {
    run(follow("guide-restore-p", "restore-a-provider.md"))
}
