//! `cargo xtask bench`: what something costs, beside the least that it could cost, measured in the same run.
//!
//! Counts are asserted in every run. Times are judged here alone, by a ratio to the least possible of the same run, and by
//! no test.

mod measure;
mod metrics;
mod plot;
mod proc;
mod program;
mod quiet;
mod sdks;
mod server;
mod spread;
mod sync;
mod synk;
pub(crate) mod table;
mod times;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use clap::{Subcommand, ValueEnum};
use serde::Serialize;

use crate::{cargo::step, say::show};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    subject: Subject,
    /// How the result is printed.
    #[arg(long, short, global = true, value_enum, default_value_t)]
    output: Output,
    /// Measures the programs as they were built before.
    #[arg(long, global = true)]
    no_build: bool,
}

/// The result of a benchmark.
trait Report: Serialize {
    /// For people.
    fn table(&self) -> String;

    /// Why it is not good enough.
    fn missed(&self) -> Option<String>;
}

#[derive(Debug, Subcommand)]
enum Subject {
    /// Holds thousands of agents on one server, each on a connection of its own: memory, binds and lists per second, and the
    /// time for a change to arrive and to be served again after a restart. Exits with 1 where a bar is missed.
    Server(server::Args),
    /// Binds an API and has objects created, changed, reported and deleted: the konnector beside a client that only sends
    /// the writes that have to be. Exits with 1 where a bar is missed.
    Sync(sync::Args),
    /// Calls and watches with the client of each SDK, beside the bare stubs of its language. Exits with 1 if calls take more than
    /// 1.2 times as long, or 1,000 watches more than 1.2 times the memory (median of the ratios within a run).
    Sdks(sdks::Args),
    /// Applies ConfigMaps as a set: first, unchanged, one changed, half pruned. Exits with 1 if the first apply of 1,000
    /// objects or more takes over 1.3 times as long as the bare client (median of the ratios within a round).
    Synk(synk::Args),
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Output {
    /// For people.
    #[default]
    Table,
    /// For programs.
    Json,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    match &args.subject {
        Subject::Sdks(subject) => print(&sdks::run(args, *subject)?, args.output),
        Subject::Server(subject) => print(&server::run(args, *subject)?, args.output),
        Subject::Sync(subject) => print(&sync::run(args, subject)?, args.output),
        Subject::Synk(subject) => print(&synk::run(args, *subject)?, args.output),
    }
}

fn print(report: &impl Report, output: Output) -> Result<()> {
    show(&match output {
        Output::Table => report.table(),
        Output::Json => serde_json::to_string_pretty(&report)? + "\n",
    })?;
    match report.missed() {
        Some(missed) => bail!(missed),
        None => Ok(()),
    }
}

impl Args {
    /// Builds programs of a package as they are released, and returns the folder that they are in.
    fn release(&self, package: &str, targets: &[&str]) -> Result<PathBuf> {
        if !self.no_build {
            let args = ["build", "--release", "--locked", "-p", package];
            step("release build", &[&args, targets].concat(), &[])?;
        }
        let executable = std::env::current_exe()?;
        let target = executable.parent().and_then(Path::parent);
        Ok(target.context("xtask is in no target folder")?.join("release"))
    }
}

/// Runs a benchmark until it ends, or until Ctrl-C.
fn until_interrupted<T>(bench: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        tokio::select! {
            outcome = bench => outcome,
            _ = tokio::signal::ctrl_c() => bail!("interrupted"),
        }
    })
}
