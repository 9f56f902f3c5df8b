//! What the project depends on: its lock files are complete, and cargo-deny permits each crate, license and source.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};

use crate::{
    cargo::{program, root},
    tool,
};

/// The version of cargo-deny, which is installed from crates.io once per user.
const VERSION: &str = "0.20.2";
/// What is checked. Advisories are not: their database is no crate, and may be out of reach.
const CHECKS: [&str; 3] = ["bans", "licenses", "sources"];
/// Findings that are no reason to fail, and are not shown: crates of two versions, and licenses that only some crates have.
const ALLOWED: [&str; 3] = [
    "duplicate",
    "license-not-encountered",
    "license-exception-not-encountered",
];
/// How deep in the tree lock files are: that of the workspace, and those of crates outside of it.
const DEPTH: usize = 3;

/// Checks the dependencies of the workspace, and of each crate that has a lock file of its own.
pub(super) fn run() -> Result<()> {
    let cargo_deny = tool::install("cargo-deny", VERSION, &[])?;
    for folder in locked(&root(), DEPTH)? {
        let manifest = folder.join("Cargo.toml");
        eprintln!(
            "==> dependencies: cargo deny check {} of {}",
            CHECKS.join(" "),
            manifest.display()
        );
        let status = Command::new(&cargo_deny)
            .args(["--locked", "--workspace", "--config", "deny.toml", "--manifest-path"])
            .arg(&manifest)
            .args(["check", "--hide-inclusion-graph"])
            .args(ALLOWED.iter().flat_map(|finding| ["--allow", finding]))
            .args(CHECKS)
            .env("CARGO", program())
            .current_dir(root())
            .status()
            .context("cannot run cargo-deny")?;
        ensure!(
            status.success(),
            "cargo-deny does not permit a dependency of {}; deny.toml says what is permitted",
            manifest.display()
        );
    }
    Ok(())
}

/// Returns the folders with a lock file, up to a depth in the tree.
fn locked(folder: &Path, depth: usize) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    if folder.join("Cargo.lock").is_file() {
        found.push(folder.to_owned());
    }
    if depth > 1 {
        let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
        for entry in entries {
            let path = entry?.path();
            // What is built, and what git keeps, is not of the project.
            let is_ours = !path.ends_with("target") && !path.ends_with(".git");
            if is_ours && path.is_dir() {
                found.extend(locked(&path, depth - 1)?);
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_outside_of_the_workspace_are_checked_too() {
        let found = locked(&root(), DEPTH).unwrap();
        assert_eq!(found.first(), Some(&root()));
        assert!(found.contains(&root().join("fuzz")), "{found:?}");
    }
}
