//! The command line: runs one seed in this process, or many seeds in processes of their own.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};

use crate::{
    history::{History, STEPS_DEFAULT, generate},
    invariants::Invariant,
    play::Player,
    report::TrackRecord,
    scenarios, world,
};

mod broken;
mod forks;
mod many;
mod one;

/// Runs konnectors and servers as they are against in-memory API servers, under faults, and checks what must hold.
#[derive(Clone, Debug, clap::Parser)]
#[command(
    name = "simulator",
    after_help = "\
Examples:
  simulator --seeds 1000             1,000 seeds; fails on a violation that track-record.json does not list as open
  simulator --seed 17                one seed: its history in words, and what was violated
  simulator --seed 17 --trace        the same, with every step
  simulator --seed 17 --shrink       the same, with the shortest history that still violates the same
  simulator --scenario D1            a history that was written down
  simulator --history FILE           a history that was stored

The same seed gives the same trace, byte for byte. docs/simulator.md says how to read it."
)]
pub struct Args {
    /// How many seeds to run.
    #[arg(long, value_name = "N", default_value_t = 1_000, conflicts_with_all = ["seed", "scenario", "history"])]
    pub seeds: u64,
    /// The first of them.
    #[arg(long, value_name = "F", default_value_t = 1)]
    pub first: u64,
    /// Runs this seed alone.
    #[arg(long, value_name = "S", conflicts_with_all = ["scenario", "history"])]
    pub seed: Option<u64>,
    /// Runs the scenario of this name.
    #[arg(long, value_name = "NAME", conflicts_with = "history")]
    pub scenario: Option<String>,
    /// Runs the history in this file, as JSON.
    #[arg(long, value_name = "FILE")]
    pub history: Option<PathBuf>,
    /// Ends each seed after this many steps of its world, before everything has converged.
    #[arg(long, value_name = "M")]
    pub steps: Option<u64>,
    /// The number of user actions of a drawn history.
    #[arg(long, value_name = "N", default_value_t = STEPS_DEFAULT)]
    pub actions: u32,
    /// Prints every step of one seed, scenario or history.
    #[arg(long)]
    pub trace: bool,
    /// Shortens the history of one seed that violates something.
    #[arg(long)]
    pub shrink: bool,
    /// How many seeds run at the same time; as many as there are cores if not given.
    #[arg(long, value_name = "J")]
    pub jobs: Option<usize>,
    /// Stops at the first violation that is not known, and of one of these invariants if some are named. Violations from before the
    /// history do not count.
    #[arg(long, value_name = "INVARIANT", num_args = 0.., value_delimiter = ',', value_parser = invariant)]
    pub until_violation: Option<Vec<Invariant>>,
    /// Reads ranges of seeds from standard input, one per line, and prints what became of each seed as a line of JSON.
    #[arg(long, hide = true, conflicts_with_all = ["seed", "scenario", "history"])]
    pub seeds_of_stdin: bool,
    /// `json` prints one JSON document instead of words.
    #[arg(short, long, value_name = "FORMAT")]
    pub output: Option<Format>,
}

/// The form of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// One JSON document.
    Json,
}

/// Runs what the command line says. Returns whether nothing was violated but what is known to be open.
pub fn run(args: &Args, print: &mut dyn FnMut(&str)) -> Result<bool> {
    if args.seeds_of_stdin {
        return forks::serve(args);
    }
    let record = TrackRecord::read().context("simulator/track-record.json is not as it has to be")?;
    match history(args)? {
        Some(history) => one::run(args, &record, &history, print),
        None => many::run(args, &record, print),
    }
}

/// The one history that the command line names; `None` if it asks for many seeds.
fn history(args: &Args) -> Result<Option<History>> {
    if let Some(path) = &args.history {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let history = serde_json::from_str(&text).with_context(|| format!("{} is no history", path.display()))?;
        return Ok(Some(history));
    }
    if let Some(name) = &args.scenario {
        let Some(scenario) = scenarios::find(name) else {
            let names: Vec<_> = scenarios::all().map(|scenario| scenario.name).collect();
            bail!("there is no scenario {name:?}; choose of: {}", names.join(", "));
        };
        return Ok(Some(scenario.history()));
    }
    Ok(args.seed.map(|seed| generate(seed, args.actions)))
}

/// Parses the name of an invariant.
fn invariant(name: &str) -> Result<Invariant, serde_json::Error> {
    serde_json::from_value(name.into())
}

/// Plays a history in this operating-system process, which must not have played another. The process is killed if that takes longer than
/// a seed may take.
fn play_here(history: &History, steps: Option<u64>) -> Result<(crate::play::Outcome, crate::world::Trace)> {
    broken::limit_time();
    let play = || Player::begin(history.beginning, &history.topology, steps).play(history);
    match world::alone(history.beginning, play)? {
        Ok(played) => Ok(played),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}
