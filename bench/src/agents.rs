//! `bindery-bench agents`: thousands of konnectors as the server sees them. Each is a TLS connection of its own, from an
//! address of its own, with a stream of exports that the SDK keeps up, as in a konnector; there is nothing behind it.
//!
//! One command per line comes on standard input, one answer per line goes out on standard output.

mod agent_client;
mod bare;
mod bind;
mod change;
mod crowd;
mod list;
mod renew;

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use bindery_runtime::{
    client::{self, Clients},
    descriptors,
};
use serde::{Deserialize, Serialize};

use self::{
    bind::{Contract, Owners},
    change::Load,
    crowd::Crowd,
    list::Listed,
};
use crate::{input, output, percentiles::Percentiles};

/// Flags.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Kubeconfig of an admin of the provider, who changes exports.
    #[arg(long)]
    provider: PathBuf,
    /// URL of the server.
    #[arg(long)]
    server: String,
    /// CA of the server's certificate, PEM.
    #[arg(long)]
    ca: PathBuf,
    /// File with the token of somebody who binds; may be given several times, for the server limits the calls per
    /// second of each.
    #[arg(long = "token", required = true)]
    tokens: Vec<PathBuf>,
    /// The template that is bound.
    #[arg(long)]
    template: String,
}

/// A command of the program.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(tag = "phase", rename_all = "snake_case")]
enum Command {
    /// Binds more clusters.
    Bind { count: usize, concurrency: usize },
    /// Opens the stream of each agent, and waits until all have a complete snapshot.
    Connect { timeout_s: u64 },
    /// Lists again and again for `seconds`.
    List {
        what: Listed,
        seconds: f64,
        concurrency: usize,
    },
    /// Changes exports, and waits until each change has arrived.
    Change(Load),
    /// Changes exports as [`Command::Change`] does, and renews credentials meanwhile so often a second for `seconds`.
    ChangeAndRenew { load: Load, renewals: f64, seconds: f64 },
    /// Sets the mark: notes the time, and how many streams are complete now.
    Mark,
    /// Waits until each agent has received a complete snapshot since the mark.
    Served { timeout_s: u64 },
}

/// The answer to a command.
#[derive(Debug, Default, Serialize)]
struct Answer {
    /// How many of the requested operations succeeded.
    count: usize,
    /// From the first request until the last result was seen.
    seconds: f64,
    /// From the first request until the last one was answered, for commands whose results are seen later.
    #[serde(skip_serializing_if = "Option::is_none")]
    load_seconds: Option<f64>,
    /// Number of operations that failed or timed out.
    errors: usize,
    /// The first error, as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// How long each operation took, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    percentiles: Option<Percentiles>,
    /// How long each change took to show on a bare watch of the API server, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    bare: Option<Percentiles>,
    /// How long each renewal took, in microseconds, and how many there were.
    #[serde(skip_serializing_if = "Option::is_none")]
    renewals: Option<Percentiles>,
    #[serde(skip_serializing_if = "Option::is_none")]
    renewed: Option<usize>,
}

/// The program at work.
struct Program {
    owners: Owners,
    admin: Clients,
    contracts: Vec<Contract>,
    crowd: Crowd,
    /// When the mark was set.
    mark: Instant,
}

pub(crate) async fn run(args: Args) -> Result<()> {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    descriptors::raise().context("cannot raise the limit of open files")?;
    let config = client::config(Some(&args.provider), None).await?;
    let mut program = Program {
        admin: Clients::new(&config, change::CONCURRENCY_MAX)?,
        owners: Owners::new(&args)?,
        contracts: Vec::new(),
        crowd: Crowd::default(),
        mark: Instant::now(),
    };
    output::line(&serde_json::json!({"ready": true}))?;
    let mut lines = input::lines();
    while let Some(line) = lines.recv().await {
        let line = line?;
        let command: Command = serde_json::from_str(&line).with_context(|| format!("not a command: {line}"))?;
        output::line(&program.execute(command).await?)?;
    }
    Ok(())
}

// === impl Program ===

impl Program {
    async fn execute(&mut self, command: Command) -> Result<Answer> {
        let limit = Duration::from_secs;
        match command {
            Command::Bind { count, concurrency } => {
                let (answer, mut bound) = self.owners.bind(self.contracts.len(), count, concurrency).await;
                self.contracts.append(&mut bound);
                Ok(answer)
            }
            Command::Connect { timeout_s } => {
                let start = Instant::now();
                self.crowd.connect(&self.contracts)?;
                Ok(self.crowd.whole(start, limit(timeout_s)).await)
            }
            Command::List {
                what,
                seconds,
                concurrency,
            } => {
                let time = Duration::from_secs_f64(seconds);
                Ok(list::run(what, time, concurrency, &self.owners, self.crowd.clients()).await)
            }
            Command::Change(load) => change::run(load, &self.admin, &self.contracts, &mut self.crowd).await,
            Command::ChangeAndRenew {
                load,
                renewals,
                seconds,
            } => {
                self.change_and_renew(load, renewals, Duration::from_secs_f64(seconds))
                    .await
            }
            Command::Mark => {
                self.mark = Instant::now();
                let count = self.crowd.mark();
                Ok(Answer {
                    count,
                    ..Answer::default()
                })
            }
            Command::Served { timeout_s } => Ok(self.crowd.whole(self.mark, limit(timeout_s)).await),
        }
    }

    async fn change_and_renew(&mut self, load: Load, renewals: f64, time: Duration) -> Result<Answer> {
        let tokens = self.crowd.tokens();
        let (changed, renewed) = tokio::join!(
            change::run(load, &self.admin, &self.contracts, &mut self.crowd),
            renew::run(renewals, time, &self.contracts, &tokens),
        );
        let changed = changed?;
        Ok(Answer {
            errors: changed.errors + renewed.errors,
            error: changed.error.or(renewed.error),
            renewals: renewed.percentiles,
            renewed: Some(renewed.count),
            ..changed
        })
    }
}
