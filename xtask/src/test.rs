//! `cargo xtask test`: all checks, in the order in which they are most likely to fail soon.

mod suites;

use anyhow::{Context as _, Result};

use crate::cargo::{build_binaries, step};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only tests whose name contains this, and no other check.
    filter: Option<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if let Some(filter) = &args.filter {
        provide()?;
        return step("tests", &["test", "--locked", "--workspace", "--", filter], &[]);
    }
    step("format", &["fmt", "--all", "--check"], &[])?;
    // It stands outside of the workspace, and has dependencies and a lock file of its own.
    let fuzz = [
        "tree",
        "--locked",
        "--depth",
        "0",
        "--manifest-path",
        "synk/fuzz/Cargo.toml",
    ];
    step("lock file of the fuzz targets", &fuzz, &[])?;
    let clippy = [
        "clippy",
        "--locked",
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ];
    step("lints", &clippy, &[])?;
    let docs = ["doc", "--locked", "--workspace", "--no-deps"];
    step("docs", &docs, &[("RUSTDOCFLAGS", "-D warnings")])?;
    let unit = ["test", "--locked", "--workspace", "--exclude", "bindery-e2e"];
    step("unit tests", &unit, &[])?;
    provide()?;
    suites::run()?;
    eprintln!("==> all checks passed");
    Ok(())
}

/// What the end-to-end tests run. Control planes are built here and not in the first test, which would time out on a fresh
/// machine.
fn provide() -> Result<()> {
    build_binaries()?;
    bindery_e2e::binaries::Binaries::locate().context("cannot provide control planes")?;
    Ok(())
}
