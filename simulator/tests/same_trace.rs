//! The same seed gives the same trace, byte for byte, in every operating-system process.

use std::process::Command;

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
