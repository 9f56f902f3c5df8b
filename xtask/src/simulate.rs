//! `cargo xtask simulate`: konnectors and servers against in-memory API servers, under faults, and the mutants that this has to find.

mod invariants;
mod mutant;
mod mutants;
mod planners;
mod program;
mod report;
mod survivors;

use std::path::PathBuf;

use anyhow::{Context as _, Result};

pub(crate) use self::mutant::check_all;
use self::program::Simulator;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask simulate                           2,000 seeds, as `cargo xtask test` runs them
  cargo xtask simulate --seeds 50000             as many as `cargo xtask soak` runs
  cargo xtask simulate --seed 17 --trace         one seed, with every step of it
  cargo xtask simulate --seed 17 --shrink        one seed, with the shortest history that still violates the same
  cargo xtask simulate --history FILE --trace    a history that was stored, with every step of it
  cargo xtask simulate --mutants                 all mutants, each until it is found
  cargo xtask simulate --mutants guard-off       one mutant
  cargo xtask simulate --planners                what the unit tests find of cargo-mutants' changes to the plans")]
pub(crate) struct Args {
    /// How many seeds to run, from 1 on: 2,000 if nothing else is said, and with --mutants 10,000 at most for each.
    #[arg(long, value_name = "N", conflicts_with_all = ["seed", "scenario"])]
    seeds: Option<u64>,
    /// Runs this seed alone.
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// Ends each seed after this many steps of its world.
    #[arg(long, value_name = "M")]
    steps: Option<u64>,
    /// Prints each step: requests, answers, events, faults.
    #[arg(long)]
    trace: bool,
    /// Shortens the history of one seed that violates something.
    #[arg(long)]
    shrink: bool,
    /// Runs this scenario instead of random histories.
    #[arg(long, value_name = "NAME", conflicts_with = "seed")]
    scenario: Option<String>,
    /// Runs the history in this file, such as a shortened one in `target/simulator`.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["seeds", "seed", "scenario"])]
    history: Option<PathBuf>,
    /// Runs the mutants of `simulator/mutants`, or those of these names, each until one of the invariants that it names finds it.
    #[arg(
        long,
        value_name = "NAME",
        num_args = 0..,
        conflicts_with_all = ["seed", "steps", "trace", "shrink", "scenario", "history", "planners"]
    )]
    mutants: Option<Vec<String>>,
    /// Has cargo-mutants change the pure planners, and checks what their unit tests do not notice against the list of what is explained.
    #[arg(long, conflicts_with_all = ["seeds", "seed", "steps", "trace", "shrink", "scenario", "history"])]
    planners: bool,
    /// With --planners: only files whose path contains this text. Also those planners that --planners alone leaves out.
    #[arg(long, value_name = "TEXT", requires = "planners")]
    file: Option<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if args.planners {
        return planners::run(args.file.as_deref());
    }
    if let Some(names) = &args.mutants {
        return mutants::run(names, args.seeds.unwrap_or(mutants::SEEDS));
    }
    let mut given = Vec::new();
    let history = args.history.as_deref().map(std::path::absolute).transpose();
    let history = history.context("cannot find the history")?;
    let options = [
        ("--seeds", args.seeds.map(|seeds| seeds.to_string())),
        ("--seed", args.seed.map(|seed| seed.to_string())),
        ("--steps", args.steps.map(|steps| steps.to_string())),
        ("--scenario", args.scenario.clone()),
        ("--history", history.map(|path| path.display().to_string())),
    ];
    for (option, value) in options {
        given.extend(value.into_iter().flat_map(|value| [option.to_owned(), value]));
    }
    let flags = [("--trace", args.trace), ("--shrink", args.shrink)];
    given.extend(
        flags
            .iter()
            .filter(|(_, given)| *given)
            .map(|(flag, _)| (*flag).to_owned()),
    );
    Simulator::build()?.show(&given)
}

/// Runs that many seeds, and fails on a violation that `simulator/track-record.json` does not list.
pub(crate) fn seeds(count: u64) -> Result<()> {
    Simulator::build()?.show(&["--seeds".to_owned(), count.to_string()])
}

/// Runs the seeds of `cargo xtask test`.
pub(crate) fn seeds_of_test() -> Result<()> {
    seeds(Simulator::SEEDS_OF_TEST)
}
