//! `cargo xtask soak`: the tests that take too long to run for every change.

mod faults;
mod fuzz;

use anyhow::Result;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only one of the two.
    #[arg(long)]
    only: Option<Part>,
    /// Rounds of work, in each of which server and konnector are killed at random moments.
    #[arg(long, default_value_t = 50)]
    rounds: u64,
    /// The seed of an earlier run, to have the same moments again.
    #[arg(long)]
    seed: Option<u64>,
    /// Seconds for which the parser of manifests is fuzzed.
    #[arg(long, default_value_t = 60)]
    fuzz_seconds: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// The parser of manifests gets input from a fuzzer.
    Fuzz,
    /// Server and konnector are killed at random moments.
    Faults,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if args.only != Some(Part::Faults) {
        fuzz::run(args.fuzz_seconds)?;
    }
    if args.only != Some(Part::Fuzz) {
        faults::run(args.rounds, args.seed)?;
    }
    Ok(())
}
