//! Rounds of work in which server and konnector are killed.

use anyhow::Result;

use crate::cargo::{TESTED, step};

pub(crate) fn run(rounds: u64, seed: Option<u64>) -> Result<()> {
    step("programs", &[&["build", "--locked"], &TESTED[..]].concat(), &[])?;
    let rounds = rounds.to_string();
    let seed = seed.map(|seed| seed.to_string());
    let mut env = vec![("BINDERY_SOAK_ROUNDS", rounds.as_str())];
    env.extend(seed.as_deref().map(|seed| ("BINDERY_SOAK_SEED", seed)));
    let test = [
        "test",
        "--locked",
        "--workspace",
        "--test",
        "faults",
        "killed_at_random_moments",
        "--",
        "--nocapture",
    ];
    step("soak", &test, &env)
}
