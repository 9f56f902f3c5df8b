//! The program `bindery-bench agents`, which simulates all agents, and the commands for it.

use std::{path::PathBuf, time::Duration};

use anyhow::Result;
use bindery_e2e::{Provider, process::Programs};
use serde::{Deserialize, Serialize};

use crate::bench::program::Program;

/// Timeout of a command. The program itself has shorter timeouts for most of what it does.
const LIMIT: Duration = Duration::from_mins(30);

/// A command of the program; see `bindery-bench agents`.
#[derive(Debug, Serialize)]
#[serde(tag = "phase", rename_all = "snake_case")]
pub(super) enum Order {
    Bind {
        count: u32,
        concurrency: u16,
    },
    Connect {
        timeout_s: u64,
    },
    List {
        what: &'static str,
        seconds: f64,
        concurrency: u16,
    },
    Change(Load),
    ChangeAndRenew {
        load: Load,
        renewals: f64,
        seconds: f64,
    },
    Mark,
    Served {
        timeout_s: u64,
    },
}

/// How exports are changed.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Load {
    pub(super) count: u32,
    pub(super) rate: Option<f64>,
    pub(super) concurrency: u16,
    pub(super) seed: u64,
    pub(super) from: u64,
}

/// The answer to a command.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Answer {
    pub(super) count: usize,
    pub(super) seconds: f64,
    pub(super) load_seconds: Option<f64>,
    pub(super) errors: usize,
    pub(super) error: Option<String>,
    pub(super) percentiles: Option<Percentiles>,
    /// Latencies of the same changes on a bare watch of the API server.
    pub(super) bare: Option<Percentiles>,
    /// Latencies of renewals meanwhile, and how many there were.
    pub(super) renewals: Option<Percentiles>,
    pub(super) renewed: Option<usize>,
}

/// Percentiles of latencies, in microseconds.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct Percentiles {
    pub(super) p50: u64,
    pub(super) p90: u64,
    pub(super) p99: u64,
    pub(super) max: u64,
}

/// The running program. Dropping it ends the program.
pub(super) struct Agents(Program);

// === impl Agents ===

impl Agents {
    pub(super) async fn start(
        programs: &Programs,
        provider: &Provider,
        tokens: &[PathBuf],
        template: &str,
    ) -> Result<Self> {
        let mut command = programs.command("bindery-bench")?;
        command.arg("agents");
        command.arg("--provider").arg(provider.plane.kubeconfig_path());
        command.args(["--server", &provider.address(), "--template", template]);
        command.arg("--ca").arg(provider.ca_path());
        for token in tokens {
            command.arg("--token").arg(token);
        }
        let folder = provider.plane.workdir().path();
        Ok(Self(Program::start("agents", command, folder).await?))
    }

    /// Sends a command and waits for the answer.
    pub(super) async fn order(&mut self, order: &Order) -> Result<Answer> {
        self.0.tell(order).await?;
        self.0.hear(LIMIT).await
    }
}
