//! Many seeds of the simulator, and many sequences of requests by which its API server is compared with a real one.

use anyhow::Result;

use crate::{
    cargo::{TESTED, step},
    simulate,
};

pub(crate) fn run(seeds: u64, sequences: u64) -> Result<()> {
    simulate::check_all()?;
    simulate::seeds(seeds)?;
    step("programs", &[&["build", "--locked"], &TESTED[..]].concat(), &[])?;
    let test = [
        "test",
        "--locked",
        "--workspace",
        "--test",
        "simulated",
        "--",
        "--nocapture",
    ];
    step(
        "comparison with a real control plane",
        &test,
        &[("BINDERY_SIMULATED_SEQUENCES", &sequences.to_string())],
    )
}
