//! `cargo xtask sdk --test`: the tests that each SDK brings, in its own language.

use std::{process::Command, time::Instant};

use anyhow::Result;
use bindery_e2e::sdks;

use super::call;
use crate::cargo::root;

/// Runs them one after the other.
pub(super) fn run() -> Result<()> {
    let sdk = root().join("sdk");
    timed("Go", Command::new("sh").arg(sdk.join("go/check.sh")))?;
    timed("Python", Command::new("python3").arg(sdk.join("python/tools/check.py")))?;
    let copy = sdks::typescript_copy("typescript-test")?;
    timed(
        "TypeScript",
        Command::new("npm")
            .arg("test")
            .current_dir(&copy)
            .env("BINDERY_GOLDEN", sdk.join("contract/manifests")),
    )?;
    // It runs npm, which on a busy machine takes longer than a unit test may.
    timed(
        "TypeScript's package",
        Command::new("npm").args(["run", "test:package"]).current_dir(&copy),
    )
}

fn timed(language: &str, command: &mut Command) -> Result<()> {
    let start = Instant::now();
    call(command)?;
    eprintln!("==> {language}: {} s", start.elapsed().as_secs());
    Ok(())
}
