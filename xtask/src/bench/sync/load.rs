//! The driver (`bindery-bench load`): a program that changes objects on both clusters and measures when the results are
//! seen.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Result, ensure};
use bindery_e2e::process::Programs;

use super::{
    api::BenchApi,
    order::{Answer, Order},
};
use crate::bench::program::Program;

/// A consumer cluster whose objects the driver changes.
pub(super) struct Cluster {
    /// Kubeconfig of an admin of the consumer.
    pub(super) kubeconfig: PathBuf,
    /// The consumer's contract namespace on the provider.
    pub(super) contract: String,
}

/// A running driver, which watches both clusters.
#[derive(Debug)]
pub(super) struct Load {
    program: Program,
}

impl Load {
    /// Starts a driver for some resources of a provider and its consumers; it writes its log to a folder.
    pub(super) async fn start(
        programs: &Programs,
        (provider, consumers): (&Path, &[Cluster]),
        apis: &[BenchApi],
        folder: &Path,
    ) -> Result<Self> {
        let mut command = programs.command("bindery-bench")?;
        command.arg("load").arg("--provider").arg(provider);
        for cluster in consumers {
            command.arg("--consumer").arg(&cluster.kubeconfig);
            command.args(["--contract", &cluster.contract]);
        }
        command.args(apis.iter().flat_map(|api| api.flags()));
        Ok(Self {
            program: Program::start("load", command, folder).await?,
        })
    }

    /// Gives an order, and waits until the results of all its changes were seen.
    pub(super) async fn order(&mut self, order: &Order) -> Result<Answer> {
        self.give(order).await?;
        let answer = self.next(order.limit()).await?;
        ensure!(answer.label == order.label, "an answer to {}", answer.label);
        Ok(answer)
    }

    /// Gives an order. Several may be under way at once, with labels of their own.
    pub(super) async fn give(&mut self, order: &Order) -> Result<()> {
        self.program.tell(order).await
    }

    /// The next answer.
    pub(super) async fn next(&mut self, limit: Duration) -> Result<Answer> {
        self.program.hear::<Answer>(limit).await?.check()
    }
}
