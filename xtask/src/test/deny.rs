//! What the project depends on: its lock files are complete, and `cargo deny` permits each crate, licence and source.

use std::{path::PathBuf, process::Command};

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::binaries;

use crate::cargo::{program, root, step};

/// The version of cargo-deny, which is installed from crates.io once per user.
const VERSION: &str = "0.20.2";
/// Crates that stand outside of the workspace have dependencies and a lock file of their own.
const MANIFESTS: [&str; 2] = ["Cargo.toml", "synk/fuzz/Cargo.toml"];
/// What is checked. Advisories are not: their database is no crate, and may be out of reach.
const CHECKS: [&str; 3] = ["bans", "licenses", "sources"];

/// Checks the dependencies of the workspace and of the fuzz targets.
pub(super) fn run() -> Result<()> {
    let cargo_deny = install()?;
    for manifest in MANIFESTS {
        eprintln!("==> dependencies of {manifest}: cargo deny check {}", CHECKS.join(" "));
        let status = Command::new(&cargo_deny)
            .args(["--locked", "--manifest-path", manifest])
            .args(["check", "--config", "deny.toml", "--hide-inclusion-graph"])
            .args(["--allow", "duplicate"])
            .args(CHECKS)
            .env("CARGO", program())
            .current_dir(root())
            .status()
            .context("cannot run cargo-deny")?;
        ensure!(
            status.success(),
            "cargo-deny does not permit a dependency of {manifest}"
        );
    }
    Ok(())
}

/// Installs cargo-deny if it is not there, and returns its path.
fn install() -> Result<PathBuf> {
    let folder = binaries::cache_folder()?.join("cargo-deny").join(VERSION);
    let path = folder.join("bin/cargo-deny");
    if !path.is_file() {
        let folder = folder.to_str().context("the cache folder has no name in UTF-8")?;
        // Not optimised: it builds in half the time, and runs for seconds.
        let install = [
            "install",
            "--locked",
            "--debug",
            "--root",
            folder,
            "cargo-deny",
            "--version",
            VERSION,
        ];
        step("cargo-deny, once", &install, &[])?;
    }
    Ok(path)
}
