//! The same seed gives the same trace, byte for byte, in every operating-system process.

use std::{
    io::Write as _,
    process::{Command, Stdio},
};

fn trace(seed: u64) -> Vec<u8> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_simulator"));
    let output = command
        .args(["--seed", &seed.to_string(), "--trace"])
        .output()
        .expect("a run");
    assert!(!output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let seeds = [1, 3, 17];
    for seed in seeds {
        let (first, second) = (trace(seed), trace(seed));
        let differs = first
            .split(|byte| *byte == b'\n')
            .zip(second.split(|byte| *byte == b'\n'))
            .find(|(a, b)| a != b);
        let differs = differs.map(|(a, b)| (String::from_utf8_lossy(a), String::from_utf8_lossy(b)));
        assert!(first == second, "seed {seed}: {differs:?}");
    }
    assert_ne!(trace(seeds[0]), trace(seeds[1]), "another seed gives another trace");
}

/// Many seeds go on in forks of one beginning: each has the trace that it has alone.
#[test]
fn a_seed_that_forks_from_a_beginning_has_the_same_trace() {
    let many = forked(40, 45);
    for seed in [40, 43, 44] {
        let alone = String::from_utf8(trace(seed)).expect("text");
        let told = alone.lines().last().expect("a line");
        let hash = told.rsplit(' ').next().expect("a hash");
        let outcome = many.iter().find(|outcome| outcome["seed"] == seed).expect("an outcome");
        assert_eq!(outcome["trace_hash"], hash, "seed {seed}");
    }
}

/// The outcomes of seeds of one beginning.
fn forked(first: u64, end: u64) -> Vec<serde_json::Value> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_simulator"));
    command
        .arg("--seeds-of-stdin")
        .env("_RJEM_MALLOC_CONF", "background_thread:false");
    let mut process = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a start");
    let mut seeds = process.stdin.take().expect("standard input");
    writeln!(seeds, "{first} {end}").expect("it reads");
    drop(seeds);
    let output = process.wait_with_output().expect("an end");
    let lines = String::from_utf8(output.stdout).expect("text");
    // Each outcome is followed by the time that it took.
    let outcomes = lines.lines().step_by(2);
    outcomes.map(|line| serde_json::from_str(line).expect("JSON")).collect()
}
