//! `cargo xtask simulate --planners`: cargo-mutants over the pure planners, whose unit tests have to notice each change.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::binaries;

use super::{survivors, tree::TreeCopy};
use crate::cargo::{program, root, step};

/// The version of cargo-mutants, which is installed from crates.io once per user.
const VERSION: &str = "27.1.0";
/// The planners: pure functions from what was seen to what is to be done.
const PLANNERS: [&str; 14] = [
    "agent/src/binding/plan.rs",
    "agent/src/bound/plan.rs",
    "agent/src/bundle/plan.rs",
    "agent/src/claims/plan.rs",
    "agent/src/drain/plan.rs",
    "agent/src/namespaces/mapped.rs",
    "server/src/controllers/cluster_binding/plan.rs",
    "server/src/controllers/contract/plan.rs",
    "server/src/controllers/export/plan.rs",
    "server/src/controllers/export_request/plan.rs",
    "server/src/controllers/request/plan.rs",
    "server/src/controllers/service_namespace/end.rs",
    "server/src/controllers/service_namespace/plan.rs",
    "server/src/controllers/template/plan.rs",
];
/// The exit codes of cargo-mutants where it came to its end: all is noticed, some is not, some takes too long.
const ENDED: [i32; 3] = [0, 2, 3];

/// Changes the planners whose path contains `only`, or all, and runs the unit tests of their crates after each change. Fails if a change
/// goes unnoticed that the list does not explain, or the list explains one that is noticed.
pub(super) fn run(only: Option<&str>) -> Result<()> {
    let cargo_mutants = install()?;
    let planners: Vec<_> = PLANNERS
        .into_iter()
        .filter(|path| only.is_none_or(|only| path.contains(only)))
        .collect();
    ensure!(
        !planners.is_empty(),
        "no planner has {:?} in its path",
        only.unwrap_or_default()
    );
    let folder = root().join("target/mutants");
    let tree = TreeCopy::open(folder.join("planners"))?;
    for (package, crate_folder) in [("bindery-agent", "agent/"), ("bindery-server", "server/")] {
        let files: Vec<_> = planners.iter().filter(|path| path.starts_with(crate_folder)).collect();
        if files.is_empty() {
            continue;
        }
        let out = folder.join(format!("planners-of-{package}"));
        mutate(&cargo_mutants, tree.folder(), package, &files, &out)?;
    }
    // A change that was under way when it was stopped is still there.
    tree.restore()?;
    let mut missed = Vec::new();
    for package in ["bindery-agent", "bindery-server"] {
        let path = folder.join(format!("planners-of-{package}/mutants.out/missed.txt"));
        missed.push(fs::read_to_string(path).unwrap_or_default());
    }
    survivors::check(&missed.concat(), &planners)
}

/// Runs cargo-mutants on files of one crate.
fn mutate(cargo_mutants: &Path, tree: &Path, package: &str, files: &[&&str], out: &Path) -> Result<()> {
    fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    let mut command = Command::new(cargo_mutants);
    command
        .args([
            "mutants",
            "--in-place",
            "--no-shuffle",
            "--colors",
            "never",
            "--package",
            package,
        ])
        .args(files.iter().flat_map(|file| ["--file", file]))
        .args(["--minimum-test-timeout", "60", "--cargo-test-arg", "--lib"])
        .arg("--output")
        .arg(out)
        .env("CARGO", program())
        .env("CARGO_TARGET_DIR", root().join("target/mutants/target"))
        .env("CARGO_PROFILE_DEV_DEBUG", "false")
        .current_dir(tree);
    let status = command.status().context("cannot run cargo-mutants")?;
    let code = status.code().unwrap_or(-1);
    ensure!(ENDED.contains(&code), "cargo-mutants failed: {status}");
    Ok(())
}

/// Installs cargo-mutants if it is not there, and returns its path.
fn install() -> Result<PathBuf> {
    let folder = binaries::cache_folder()?.join("cargo-mutants").join(VERSION);
    let path = folder.join("bin/cargo-mutants");
    if !path.is_file() {
        let folder = folder.to_str().context("the path of the cache folder is not UTF-8")?;
        let install = [
            "install",
            "--locked",
            "--debug",
            "--root",
            folder,
            "cargo-mutants",
            "--version",
            VERSION,
        ];
        step("cargo-mutants, installed once", &install, &[])?;
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_planner_exists() {
        for planner in PLANNERS {
            assert!(root().join(planner).is_file(), "{planner}");
        }
    }
}
