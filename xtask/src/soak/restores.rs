//! Rounds of work in which the etcd of one side is restored from a backup.

use anyhow::Result;

use crate::cargo::{TESTED, step};

pub(crate) fn run(rounds: u64, seed: Option<u64>) -> Result<()> {
    step("programs", &[&["build", "--locked"], &TESTED[..]].concat(), &[])?;
    let rounds = rounds.to_string();
    let seed = seed.map(|seed| seed.to_string());
    let mut env = vec![("BINDERY_SOAK_RESTORES", rounds.as_str())];
    env.extend(seed.as_deref().map(|seed| ("BINDERY_SOAK_SEED", seed)));
    let test = [
        "test",
        "--locked",
        "--workspace",
        "--test",
        "faults",
        "no_object_is_lost_and_no_spec_goes_back",
        "--",
        "--nocapture",
    ];
    step("restores", &test, &env)
}
