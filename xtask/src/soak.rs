//! `cargo xtask soak`: the tests that take too long to run for every change.

mod alerts;
mod faults;
mod fuzz;
mod mends;
mod minors;
mod pods;
mod restores;
mod simulate;

use anyhow::Result;

pub(crate) use self::mends::check_all as check_mends;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only one of the eight.
    #[arg(long)]
    only: Option<Part>,
    /// Rounds of work, in each of which server and konnector are killed at random moments.
    #[arg(long, default_value_t = 50)]
    rounds: u64,
    /// Rounds of work, in each of which the etcd of one side is restored from a backup.
    #[arg(long, default_value_t = 50)]
    restore_rounds: u64,
    /// Rounds in each of which every Pod of an installation is killed or deleted in turn.
    #[arg(long, default_value_t = 10)]
    pod_rounds: u64,
    /// The seed of an earlier run, to have the same moments again.
    #[arg(long)]
    seed: Option<u64>,
    /// For how many seconds the fuzz targets run in all; each gets the same share.
    #[arg(long, default_value_t = 300)]
    fuzz_seconds: u64,
    /// How many seeds the simulator runs.
    #[arg(long, default_value_t = 50_000)]
    seeds: u64,
    /// How many sequences of requests are sent to the simulator's API server and to a real one.
    #[arg(long, default_value_t = 1_000)]
    sequences: u64,
    /// Only on this minor of Kubernetes, such as `1.30`.
    #[arg(long)]
    minor: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// A fuzzer makes up input for each program part that reads bytes of strangers.
    Fuzz,
    /// Server and konnector are killed at random moments.
    Faults,
    /// The etcd of either side is restored from a backup: in place, beside its origin, or with bumped revisions.
    Restores,
    /// Every Pod of an installation is killed or deleted while objects change.
    Pods,
    /// Konnectors and servers run in one process under faults, seed by seed, against API servers that are compared with a real one.
    Simulate,
    /// The main job, the policies and the upgrade run on the oldest and the newest minor of Kubernetes.
    Minors,
    /// Every alert is made to fire by its fault, on a Prometheus in which time runs faster.
    Alerts,
    /// What mends a finding is taken back in a copy of the tree, one after the other: the test that holds it has to fail.
    Mends,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let runs = |part: Part| args.only.is_none_or(|only| only == part);
    if runs(Part::Fuzz) {
        fuzz::run(args.fuzz_seconds)?;
    }
    if runs(Part::Faults) {
        faults::run(args.rounds, args.seed)?;
    }
    if runs(Part::Restores) {
        restores::run(args.restore_rounds, args.seed)?;
    }
    if runs(Part::Pods) {
        pods::run(args.pod_rounds)?;
    }
    if runs(Part::Simulate) {
        simulate::run(args.seeds, args.sequences)?;
    }
    if runs(Part::Minors) {
        minors::run(args.minor.as_deref())?;
    }
    if runs(Part::Alerts) {
        alerts::run()?;
    }
    if runs(Part::Mends) {
        mends::run()?;
    }
    Ok(())
}
