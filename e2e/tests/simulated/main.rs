//! The in-memory API server of the simulator against a real control plane: the same seeded requests, the same answers, watch
//! events and states in the end. What differs by nature is listed in `compare/nature.rs`.
//!
//! `BINDERY_SIMULATED_SEQUENCES=N` runs N sequences, `BINDERY_SIMULATED_SEED=S` begins with seed S and runs one sequence if no
//! number is given, `BINDERY_SIMULATED_SUBJECT=NAME` runs sequences about one subject, and `BINDERY_SIMULATED_DIFFERENCES=N` goes
//! on until a sequence has N differences.
#![expect(
    clippy::print_stderr,
    reason = "the figures and the differences are what the run is for"
)]

mod all;
mod compare;
mod generate;
mod plane;
mod report;
mod run;
mod sides;
mod start;

use anyhow::Result;

#[test]
fn both_api_servers_answer_alike() -> Result<()> {
    bindery_e2e::run(async {
        let plane = plane::start().await?;
        let report = all::run_all(plane.admin()?, &plane.url(), &plane::manifests()?, "s").await?;
        eprintln!("{report}");
        report.check()
    })
}

#[test]
fn a_seed_names_a_sequence() {
    for seed in 1..50 {
        let [one, other] = [0, 1].map(|_| format!("{:?}", generate::sequence(seed, "s", None)));
        assert_eq!(one, other);
        assert!(generate::requests(&generate::sequence(seed, "s", None)) >= 10);
    }
}
