//! Checks by cargo that run no program of the project: lints, documentation and its examples.

use std::process::Command;

use super::job::Job;
use crate::cargo::{SHIPPED, program, root};

/// The checks get about a sixth of two cores beside the suites, and so end before them.
const NICENESS: &str = "5";

/// Packs the crates that others use, as `cargo publish` does, from the files that are in the tree.
const PACKAGE: [&str; 10] = [
    "package",
    "--locked",
    "--allow-dirty",
    "--no-verify",
    "-p",
    "bindery-proto",
    "-p",
    "bindery-api",
    "-p",
    "bindery-sdk",
];

/// The checks, in the order in which they are most likely to fail.
///
/// They share cargo's build folder and would wait for each other, so they run one after the other.
pub(super) fn jobs() -> Vec<Job> {
    // With the features of shipped programs alone: those that tests add to dependencies may hide an error.
    let shipped = [&["check", "--locked"], &SHIPPED[..]].concat();
    let lints = [
        "clippy",
        "--locked",
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ];
    let docs = ["doc", "--locked", "--workspace", "--no-deps"];
    let examples = ["test", "--locked", "--workspace", "--doc"];
    vec![
        job("lints", &lints),
        job("shipped programs", &shipped),
        job("docs", &docs),
        job("examples in docs", &examples),
        job("publishable crates", &PACKAGE),
        generated(),
    ]
}

/// The check that the generated code of the SDKs is current, and that the .proto files break no client.
fn generated() -> Job {
    let mut command = Command::new("nice");
    command
        .args(["-n", NICENESS])
        .arg(std::env::current_exe().unwrap_or_else(|_| "xtask".into()))
        .args(["sdk", "--check"])
        .current_dir(root());
    Job {
        name: "sdk generated".to_owned(),
        command,
    }
}

fn job(name: &str, args: &[&str]) -> Job {
    let mut command = Command::new("nice");
    command.args(["-n", NICENESS]).arg(program()).args(args);
    command.env("RUSTDOCFLAGS", "-D warnings").current_dir(root());
    Job {
        name: name.to_owned(),
        command,
    }
}
