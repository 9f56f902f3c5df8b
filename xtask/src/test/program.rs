//! The test programs that cargo builds: the unit tests of each crate, and the suites of `e2e/`.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use super::job::Job;
use crate::cargo::{self, TESTED, root};

/// The suites that take longest, in the order in which they begin: none of them may be left alone at the end.
const LONGEST_SUITES: [&str; 9] = [
    "retention",
    "faults",
    "survival",
    "charts",
    "guides",
    "check",
    "synk",
    "adoption",
    "tls",
];

/// How many tests of one suite run at the same time. They wait for their clusters more than they work.
const SUITE_THREADS: &str = "3";

/// A program with tests.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TestProgram {
    /// The suite, or the crate and target of unit tests.
    pub(super) name: String,
    /// Whether it is a suite of `e2e/`.
    pub(super) is_suite: bool,
    executable: PathBuf,
    /// The folder of the crate, in which its tests run.
    folder: PathBuf,
}

/// A line of `cargo build --message-format=json`.
#[derive(Deserialize)]
struct Message {
    manifest_path: Option<PathBuf>,
    target: Option<Target>,
    profile: Option<Profile>,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// Builds the test programs of all crates, and what the suites run.
pub(super) fn build_all() -> Result<Vec<TestProgram>> {
    let programs = build(&["--tests"])?;
    ensure!(programs.iter().any(|program| program.is_suite), "cargo built no suite");
    Ok(programs)
}

/// Builds one suite of `e2e/`, and what it runs.
pub(super) fn build_suite(name: &str) -> Result<TestProgram> {
    let programs = build(&["--test", name])?;
    let suite = programs.into_iter().find(|program| program.name == name);
    suite.with_context(|| format!("cargo built no suite {name}"))
}

/// The jobs that run test programs: unit tests first, which fail soon, then the suites, the longest first.
pub(super) fn jobs(mut programs: Vec<TestProgram>) -> Vec<Job> {
    sort(&mut programs);
    let job = |program: TestProgram| Job {
        command: program.command(),
        name: program.name,
    };
    programs.into_iter().map(job).collect()
}

fn sort(programs: &mut [TestProgram]) {
    let rank = |program: &TestProgram| {
        let place = LONGEST_SUITES.iter().position(|name| *name == program.name);
        (program.is_suite, place.unwrap_or(LONGEST_SUITES.len()))
    };
    programs.sort_by_key(rank);
}

fn build(tests: &[&str]) -> Result<Vec<TestProgram>> {
    let start = Instant::now();
    let args = [
        &["build", "--locked", "--message-format=json-render-diagnostics"],
        &TESTED[..],
        tests,
    ]
    .concat();
    eprintln!("==> programs and tests: cargo {}", args.join(" "));
    let output = Command::new(cargo::program())
        .args(args)
        .current_dir(root())
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run cargo")?;
    ensure!(output.status.success(), "the build failed");
    eprintln!("==> programs and tests: done in {:.0} s", start.elapsed().as_secs_f64());
    Ok(test_programs(&String::from_utf8(output.stdout)?))
}

/// Reads the test programs from the messages of cargo.
fn test_programs(messages: &str) -> Vec<TestProgram> {
    let messages = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Message>(line).ok());
    messages.filter_map(TestProgram::from_message).collect()
}

// === impl TestProgram ===

impl TestProgram {
    fn from_message(message: Message) -> Option<Self> {
        let executable = message
            .executable
            .filter(|_| message.profile.is_some_and(|it| it.test))?;
        let target = message.target?;
        let folder = message.manifest_path?.parent()?.to_owned();
        let of_crate = folder.strip_prefix(root()).unwrap_or(&folder);
        let is_suite = of_crate == Path::new("e2e") && target.kind.iter().any(|kind| kind == "test");
        let name = if is_suite {
            target.name
        } else {
            format!("{} {}", of_crate.display().to_string().replace('/', "-"), target.name)
        };
        Some(Self {
            name,
            is_suite,
            executable,
            folder,
        })
    }

    /// The command that runs the tests as `cargo test` does, and tells how long each of them takes.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.executable);
        command
            .current_dir(&self.folder)
            .env("CARGO_MANIFEST_DIR", &self.folder);
        // The times of tests are an unstable option of the harness, which this variable permits.
        command.env("RUSTC_BOOTSTRAP", "1");
        command.args(["-Z", "unstable-options", "--report-time"]);
        if self.is_suite {
            command.args(["--test-threads", SUITE_THREADS]);
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_tests_run_before_suites_and_the_longest_suites_before_the_others() {
        let artifact = |folder: &str, name: &str, kind: &str, is_test: bool| {
            let message = serde_json::json!({
                "reason": "compiler-artifact", "manifest_path": root().join(folder).join("Cargo.toml"),
                "target": {"name": name, "kind": [kind]}, "profile": {"test": is_test},
                "executable": (kind != "rlib").then(|| format!("/target/{name}-1")),
            });
            format!("{message}\n")
        };
        let messages = [
            artifact("e2e", "attack", "test", true),
            artifact("e2e", "bindery_e2e", "rlib", false),
            artifact("e2e", "synk", "test", true),
            artifact("sdk/api", "wire", "test", true),
            artifact("server", "bindery-server", "bin", false),
            artifact("e2e", "survival", "test", true),
            artifact("e2e", "bindery_e2e", "lib", true),
            "{\"reason\":\"build-finished\",\"success\":true}\n".to_owned(),
        ];
        let mut found = test_programs(&messages.concat());
        sort(&mut found);
        let names: Vec<_> = found.iter().map(|program| program.name.as_str()).collect();
        assert_eq!(names, ["sdk-api wire", "e2e bindery_e2e", "survival", "synk", "attack"]);
    }
}
