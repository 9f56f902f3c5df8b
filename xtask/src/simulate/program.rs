//! The program `simulator`: how it is built, and what it prints.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};

use crate::cargo::{self, root, step};

/// The program, built.
#[derive(Debug)]
pub(super) struct Simulator {
    path: PathBuf,
}

/// What a run over many seeds has found.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SeedsRun {
    /// The violations that the track record does not list, in the order of their seeds.
    pub(super) violations: Vec<Violation>,
    /// The number of seeds that ran.
    pub(super) seeds: u64,
    pub(super) time: Duration,
}

/// An invariant that a seed violates.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Violation {
    pub(super) seed: u64,
    pub(super) invariant: String,
    pub(super) sentence: String,
}

// === impl Simulator ===

impl Simulator {
    /// How many seeds `cargo xtask test` runs: less than two minutes of two cores.
    pub(super) const SEEDS_OF_TEST: u64 = 2_000;

    /// What cargo builds. With examples, as all builds for tests: what they depend on decides features.
    const BUILD: [&str; 6] = ["build", "--locked", "--workspace", "--examples", "--bin", "simulator"];

    /// Builds the program of this tree, with the features that all builds for tests share.
    pub(super) fn build() -> Result<Self> {
        step("simulator", &Self::BUILD, &[])?;
        Ok(Self {
            path: root().join("target/debug/simulator"),
        })
    }

    /// Builds the program of a copy of the tree, in a build folder that all copies share. What cargo says is in `log`. The build is
    /// incremental and without debug information: it runs once per mutant.
    pub(super) fn build_in(tree: &Path, target: &Path, log: &Path) -> Result<Self> {
        let log = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        let status = Command::new(cargo::program())
            .args(Self::BUILD)
            .arg("--target-dir")
            .arg(target)
            .env("CARGO_INCREMENTAL", "1")
            .env("CARGO_PROFILE_DEV_DEBUG", "false")
            .current_dir(tree)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .status()
            .context("cannot run cargo")?;
        ensure!(status.success(), "does not compile");
        Ok(Self {
            path: target.join("debug/simulator"),
        })
    }

    /// A copy of the program, which stays when another one is built.
    pub(super) fn keep(&self, path: PathBuf) -> Result<Self> {
        fs::copy(&self.path, &path).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self { path })
    }

    /// Removes the program.
    pub(super) fn remove(self) -> Result<()> {
        fs::remove_file(&self.path).with_context(|| format!("cannot remove {}", self.path.display()))
    }

    /// Runs the program with these options, and fails if it does.
    pub(super) fn show(&self, options: &[String]) -> Result<()> {
        let start = Instant::now();
        eprintln!("==> simulator {}", options.join(" "));
        let status = Command::new(&self.path)
            .args(options)
            .current_dir(root())
            .status()
            .with_context(|| format!("cannot run {}", self.path.display()))?;
        ensure!(status.success(), "the simulator failed: {status}");
        eprintln!("==> simulator: done in {:.0} s", start.elapsed().as_secs_f64());
        Ok(())
    }

    /// Whether this scenario violates something that the track record does not list as open. All that the program prints is in `log`.
    pub(super) fn is_violated_by(&self, scenario: &str, log: &Path) -> Result<bool> {
        let text = self.say(&["--scenario", scenario], log)?;
        let is_at_end = |line: &str| line.contains(" s of virtual time, trace ");
        let log = log.display();
        ensure!(
            text.lines().any(is_at_end),
            "scenario {scenario} did not come to its end; see {log}"
        );
        Ok(text.lines().any(|line| Violation::read(line).is_some()))
    }

    /// Runs the program with these options to its end, successful or not, and returns what it prints. All of that is in `log`.
    fn say(&self, options: &[&str], log: &Path) -> Result<String> {
        let output = Command::new(&self.path)
            .args(options)
            .current_dir(root())
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("cannot run {}", self.path.display()))?;
        fs::write(log, [&output.stdout[..], &output.stderr].concat())
            .with_context(|| format!("cannot write {}", log.display()))?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs the seeds from `first` to `last`. Stops at the first violation of one of the invariants `until` that the track record does
    /// not list; runs all if none are given. All that the program prints is in `log`.
    pub(super) fn run_seeds(&self, first: u64, last: u64, until: &[String], log: &Path) -> Result<SeedsRun> {
        let start = Instant::now();
        let seeds = (last + 1).saturating_sub(first);
        // With -o json, no history is shortened.
        let (first, seeds, until) = (first.to_string(), seeds.to_string(), until.join(","));
        let mut options = vec!["--first", &*first, "--seeds", &*seeds, "-o", "json"];
        if !until.is_empty() {
            options.extend(["--until-violation", &*until]);
        }
        let text = self.say(&options, log)?;
        let run = SeedsRun::read(&text, start.elapsed());
        run.with_context(|| format!("the simulator did not come to its end; see {}", log.display()))
    }
}

// === impl SeedsRun ===

impl SeedsRun {
    /// Reads what the program printed: a line for each violation, and at the end the number of seeds. `None` if that number is missing,
    /// because the program did not come to its end.
    fn read(text: &str, time: Duration) -> Option<Self> {
        let seeds = text.lines().rev().find_map(|line| line.strip_prefix("seeds: "))?;
        // Seeds run side by side, so their lines come in any order.
        let mut violations: Vec<_> = text.lines().filter_map(Violation::read).collect();
        violations.sort_unstable();
        Some(Self {
            violations,
            seeds: seeds.trim().parse().ok()?,
            time,
        })
    }
}

// === impl Violation ===

impl Violation {
    /// Reads a line such as `violation: seed 17: evidence: a copy ended`.
    fn read(line: &str) -> Option<Self> {
        let (seed, rest) = line.strip_prefix("violation: seed ")?.split_once(": ")?;
        let (invariant, sentence) = rest.split_once(": ")?;
        Some(Self {
            seed: seed.parse().ok()?,
            invariant: invariant.to_owned(),
            sentence: sentence.to_owned(),
        })
    }

    /// Whether a violation is of one of these invariants. One from before the history began is not: every seed would show it.
    pub(super) fn is_of(&self, invariants: &[String]) -> bool {
        invariants.contains(&self.invariant) && !self.sentence.contains("before the history began")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_violations_of_a_run_that_ended_are_read() {
        let text =
            "some summary\nviolation: seed 18: quiet: x\nviolation: seed 17: evidence: a copy ended\nseeds: 19\n";
        let run = SeedsRun::read(text, Duration::ZERO).unwrap();
        assert_eq!(run.seeds, 19);
        let seeds: Vec<_> = run.violations.iter().map(|violation| violation.seed).collect();
        assert_eq!(seeds, [17, 18], "in order");
        let first = &run.violations[0];
        assert_eq!((&*first.invariant, &*first.sentence), ("evidence", "a copy ended"));
        let none = SeedsRun::read("seeds: 2\n", Duration::ZERO).unwrap();
        assert!(none.violations.is_empty());
        assert_eq!(SeedsRun::read("violation: seed 1: a: b\n", Duration::ZERO), None);
    }
}
