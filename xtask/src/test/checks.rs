//! Checks that run no suite: lints, documentation and its examples, the book, and what concerns the SDKs alone.

use std::process::Command;

use super::job::Job;
use crate::cargo::{SHIPPED, program, root};

/// The checks get about a sixth of two cores beside the suites, and so end before them.
const NICENESS: &str = "5";

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
    // Packs the crates that others use as `cargo publish` does, and builds the program of the README from them in a project of its own.
    let publishable = [
        "test",
        "--locked",
        "--workspace",
        "--test",
        "sdk",
        "--",
        "--ignored",
        "readme",
    ];
    vec![
        job("lints", &lints),
        job("shipped programs", &shipped),
        job("docs", &docs),
        job("examples in docs", &examples),
        job("publishable crates", &publishable),
        own("book", &["book"]),
        own("sdk generated", &["sdk", "--check"]),
        own("sdk tests", &["sdk", "--test"]),
    ]
}

/// A command of this program.
fn own(name: &str, args: &[&str]) -> Job {
    let mut command = Command::new("nice");
    command
        .args(["-n", NICENESS])
        .arg(std::env::current_exe().unwrap_or_else(|_| "xtask".into()))
        .args(args)
        .current_dir(root());
    Job {
        name: name.to_owned(),
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
