//! The suites of `e2e/`, several at once: they wait for their clusters more than they work.

use std::{
    collections::VecDeque,
    fs::{self, File},
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use parking_lot::Mutex;
use serde::Deserialize;

use crate::cargo::{self, root};

const PACKAGE: &str = "bindery-e2e";
/// So many run at once.
const AT_ONCE: usize = 2;
/// One that takes longer hangs: it is ended, so that what it said is seen.
const LIMIT: Duration = Duration::from_mins(25);
/// How often is looked whether it ended.
const POLL: Duration = Duration::from_millis(100);
/// The longest, which begin first so that none of them is left at the end.
const LONGEST: [&str; 6] = ["survival", "synk", "faults", "requests", "bundles", "adoption"];

/// A program with tests.
#[derive(Debug, PartialEq, Eq)]
struct Suite {
    name: String,
    executable: PathBuf,
}

/// What has still to be run, and what failed.
#[derive(Default)]
struct Progress {
    left: VecDeque<Suite>,
    failed: Vec<String>,
}

/// A line of what cargo says of a build.
#[derive(Deserialize)]
struct Message {
    target: Option<Target>,
    profile: Option<Profile>,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// Builds all of them and runs them. After one that failed no other begins.
pub(super) fn run() -> Result<()> {
    eprintln!("==> end-to-end tests: {AT_ONCE} suites at once");
    let start = Instant::now();
    let suites = build()?;
    ensure!(!suites.is_empty(), "there are no suites");
    let progress = Mutex::new(Progress {
        left: in_order(suites).into(),
        failed: Vec::new(),
    });
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| work(&progress));
        }
    });
    let failed = progress.into_inner().failed;
    if !failed.is_empty() {
        bail!("end-to-end tests failed: {}", failed.join(", "));
    }
    eprintln!("==> end-to-end tests: done in {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}

/// The programs, built if they are not.
fn build() -> Result<Vec<Suite>> {
    let output = Command::new(cargo::program())
        .args([
            "test",
            "--locked",
            "-p",
            PACKAGE,
            "--no-run",
            "--message-format=json-render-diagnostics",
        ])
        .current_dir(root())
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run cargo")?;
    ensure!(output.status.success(), "the end-to-end tests cannot be built");
    Ok(suites(&String::from_utf8(output.stdout)?))
}

/// The programs that cargo tells of.
fn suites(messages: &str) -> Vec<Suite> {
    let messages = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Message>(line).ok());
    let suite = |message: Message| {
        let is_test = message.profile.is_some_and(|profile| profile.test);
        Some(Suite {
            name: message.target?.name,
            executable: message.executable.filter(|_| is_test)?,
        })
    };
    messages.filter_map(suite).collect()
}

fn in_order(mut suites: Vec<Suite>) -> Vec<Suite> {
    suites.sort_by_key(|suite| {
        LONGEST
            .iter()
            .position(|name| *name == suite.name)
            .unwrap_or(LONGEST.len())
    });
    suites
}

fn work(progress: &Mutex<Progress>) {
    let next = || {
        let mut progress = progress.lock();
        let may_begin = progress.failed.is_empty();
        may_begin.then(|| progress.left.pop_front()).flatten()
    };
    while let Some(suite) = next() {
        let passed = suite.run().unwrap_or_else(|error| {
            eprintln!("==> {}: {error:#}", suite.name);
            false
        });
        if !passed {
            progress.lock().failed.push(suite.name);
        }
    }
}

// === impl Suite ===

impl Suite {
    /// Runs it and shows what it said, in one piece. Until then that is in a file: of one that hangs, too. False if a test
    /// failed.
    fn run(&self) -> Result<bool> {
        let start = Instant::now();
        let folder = root().join("target/e2e");
        let path = folder.join(format!("{}.log", self.name));
        fs::create_dir_all(&folder)?;
        let log = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        eprintln!("==> suite {} begins; what it says is in {}", self.name, path.display());
        let child = Command::new(&self.executable)
            .current_dir(root().join("e2e"))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot run {}", self.executable.display()))?;
        let status = end_of(child, LIMIT)?;
        let seconds = start.elapsed().as_secs_f64();
        let said = fs::read(&path)?;
        let said = String::from_utf8_lossy(&said);
        eprintln!("==> suite {}: {seconds:.0} s\n{said}", self.name);
        match status {
            Some(status) => Ok(status.success()),
            None => bail!("it has not ended after {LIMIT:?}"),
        }
    }
}

/// How a program ended. None if that took longer than it may; it is killed then.
fn end_of(mut child: Child, limit: Duration) -> Result<Option<ExitStatus>> {
    let end = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= end {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_with_tests_are_found_and_the_longest_come_first() {
        let artifact = |name: &str, test: bool, executable: Option<&str>| {
            let message = serde_json::json!({
                "reason": "compiler-artifact", "target": {"name": name}, "profile": {"test": test}, "executable": executable,
            });
            format!("{message}\n")
        };
        let messages = [
            artifact("anyhow", false, None),
            artifact("bindery_e2e", false, None),
            artifact("attack", true, Some("/target/attack-1")),
            artifact("some-program", false, Some("/target/some-program")),
            artifact("synk", true, Some("/target/synk-1")),
            artifact("survival", true, Some("/target/survival-1")),
            "{\"reason\":\"build-finished\",\"success\":true}\n".to_owned(),
        ];
        let found = in_order(suites(&messages.concat()));
        let names: Vec<_> = found.iter().map(|suite| suite.name.as_str()).collect();
        assert_eq!(names, ["survival", "synk", "attack"]);
    }

    #[test]
    fn a_program_that_hangs_is_ended() {
        let run = |program: &str, arg: &str| Command::new(program).arg(arg).spawn().unwrap();
        let ended = end_of(run("sleep", "0"), Duration::from_mins(1)).unwrap();
        assert!(ended.is_some_and(|status| status.success()));
        assert_eq!(end_of(run("sleep", "600"), Duration::ZERO).unwrap(), None);
    }
}
