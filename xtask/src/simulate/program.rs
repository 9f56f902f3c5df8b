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

/// What a run that stops at the first violation has found.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SeedsRun {
    /// The first violation that the track record does not list.
    pub(super) violation: Option<Violation>,
    /// The number of seeds that ran.
    pub(super) seeds: u64,
    pub(super) time: Duration,
}

/// An invariant that a seed violates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Violation {
    pub(super) seed: u64,
    pub(super) invariant: String,
    pub(super) sentence: String,
}

// === impl Simulator ===

impl Simulator {
    /// How many seeds `cargo xtask test` runs: two minutes of two cores at most.
    pub(super) const SEEDS_OF_TEST: u64 = 2_000;

    /// Builds the program of this tree, with the features that all builds for tests share.
    pub(super) fn build() -> Result<Self> {
        // With examples, as all builds for tests: what they depend on decides features.
        let build = ["build", "--locked", "--workspace", "--examples", "--bin", "simulator"];
        step("simulator", &build, &[])?;
        Ok(Self {
            path: root().join("target/debug/simulator"),
        })
    }

    /// Builds the program of a copy of the tree, in a build folder that all copies share. What cargo says is in `log`.
    pub(super) fn build_in(tree: &Path, target: &Path, log: &Path) -> Result<Self> {
        let log = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        let status = Command::new(cargo::program())
            .args(["build", "--locked", "-p", "bindery-simulator", "--bin", "simulator"])
            .arg("--target-dir")
            .arg(target)
            .current_dir(tree)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .status()
            .context("cannot run cargo")?;
        ensure!(status.success(), "it does not compile");
        Ok(Self {
            path: target.join("debug/simulator"),
        })
    }

    /// A copy of the program, which stays when another one is built.
    pub(super) fn keep(&self, path: PathBuf) -> Result<Self> {
        fs::copy(&self.path, &path).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self { path })
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

    /// Runs seeds from `first` on, and stops at the first violation that the track record does not list. All that the program prints is
    /// in `log`.
    pub(super) fn run_until_violation(&self, first: u64, seeds: u64, log: &Path) -> Result<SeedsRun> {
        let start = Instant::now();
        let output = Command::new(&self.path)
            .args(["--first", &first.to_string(), "--seeds", &seeds.to_string()])
            .arg("--until-violation")
            .current_dir(root())
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("cannot run {}", self.path.display()))?;
        let text = String::from_utf8_lossy(&output.stdout);
        fs::write(log, [&output.stdout[..], &output.stderr].concat())?;
        let run = SeedsRun::read(&text, start.elapsed());
        run.with_context(|| format!("the simulator ended with {}; see {}", output.status, log.display()))
    }
}

// === impl SeedsRun ===

impl SeedsRun {
    /// Reads what the program printed: a line for each violation, and at the end the number of seeds. `None` if that number is missing,
    /// because the program did not come to its end.
    fn read(text: &str, time: Duration) -> Option<Self> {
        let seeds = text.lines().rev().find_map(|line| line.strip_prefix("seeds: "))?;
        Some(Self {
            violation: text.lines().find_map(Violation::read),
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_violation_of_a_run_that_ended_is_read() {
        let text =
            "some summary\nviolation: seed 17: evidence: a copy ended\nviolation: seed 18: quiet: x\nseeds: 19\n";
        let run = SeedsRun::read(text, Duration::ZERO).unwrap();
        let violation = run.violation.unwrap();
        assert_eq!((run.seeds, violation.seed), (19, 17));
        assert_eq!(
            (&*violation.invariant, &*violation.sentence),
            ("evidence", "a copy ended")
        );
        assert_eq!(SeedsRun::read("seeds: 2\n", Duration::ZERO).unwrap().violation, None);
        assert_eq!(SeedsRun::read("violation: seed 1: a: b\n", Duration::ZERO), None);
    }
}
