//! `cargo xtask soak`: what takes too long for every change.

use anyhow::Result;

use crate::cargo::{build_binaries, step};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Rounds of work, in each of which server and konnector are killed at random moments.
    #[arg(long, default_value_t = 50)]
    rounds: u64,
    /// The seed of an earlier run, to have the same moments again.
    #[arg(long)]
    seed: Option<u64>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    build_binaries()?;
    let rounds = args.rounds.to_string();
    let seed = args.seed.map(|seed| seed.to_string());
    let mut env = vec![("BINDERY_SOAK_ROUNDS", rounds.as_str())];
    env.extend(seed.as_deref().map(|seed| ("BINDERY_SOAK_SEED", seed)));
    let test = [
        "test",
        "--locked",
        "-p",
        "bindery-e2e",
        "--test",
        "faults",
        "killed_at_random_moments",
        "--",
        "--nocapture",
    ];
    step("soak", &test, &env)
}
