//! `cargo xtask simulate --planners`: cargo-mutants over the pure planners, whose unit tests have to notice each change.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::binaries;

use super::survivors;
use crate::{
    cargo::{program, root, step},
    tree::TreeCopy,
};

/// The version of cargo-mutants, which is installed from crates.io once per user.
const VERSION: &str = "27.1.0";
/// The planners that decide about users' data: pure functions from what was observed to operations.
const PLANNERS: [&str; 26] = [
    "agent/src/binding/acceptance.rs",
    "agent/src/binding/claims.rs",
    "agent/src/binding/claims/namespaces.rs",
    "agent/src/binding/plan.rs",
    "agent/src/binding/unbind.rs",
    "agent/src/binding/unbind/export.rs",
    "agent/src/binding/unbind/objects.rs",
    "agent/src/bound/plan.rs",
    "agent/src/bound/plan/retained.rs",
    "agent/src/bundle/plan.rs",
    "agent/src/claims/descent.rs",
    "agent/src/claims/plan.rs",
    "agent/src/claims/reach.rs",
    "agent/src/drain/plan.rs",
    "agent/src/holder/rule.rs",
    "agent/src/namespaces/mapped.rs",
    "server/src/controllers/cluster_binding/plan.rs",
    "server/src/controllers/contract/plan.rs",
    "server/src/controllers/export/deletion.rs",
    "server/src/controllers/export/plan.rs",
    "server/src/controllers/export_request/plan.rs",
    "server/src/controllers/request/plan.rs",
    "server/src/controllers/retention/plan.rs",
    "server/src/controllers/service_namespace/end.rs",
    "server/src/controllers/service_namespace/plan.rs",
    "server/src/controllers/template/plan.rs",
];
/// Planners that run only if `--file` names them, since each takes long and none decides that a user's object is deleted.
const ON_REQUEST: [&str; 7] = [
    "agent/src/binding/crd.rs",
    "agent/src/engine/budget/turns.rs",
    "runtime/src/events/aggregate.rs",
    "runtime/src/policy/force.rs",
    "server/src/controllers/service_namespace/rights.rs",
    "server/src/tls/managed/decide.rs",
    "server/src/tls/managed/plan.rs",
];
/// The exit codes of cargo-mutants where it came to its end: all is noticed, some is not, some takes too long.
const ENDED: [i32; 3] = [0, 2, 3];

/// Changes the planners, or all files of the two lists whose path contains `only`, and runs the unit tests of their crates after each
/// change. Fails if a change goes unnoticed that the list of survivors does not explain, or if that list explains one that is noticed.
pub(super) fn run(only: Option<&str>) -> Result<()> {
    let planners = chosen(only);
    ensure!(
        !planners.is_empty(),
        "no planner has {:?} in its path",
        only.unwrap_or_default()
    );
    let cargo_mutants = install()?;
    let folder = root().join("target/mutants");
    let tree = TreeCopy::open(folder.join("planners"))?;
    let mut missed = String::new();
    for (package, crate_folder) in [
        ("bindery-agent", "agent/"),
        ("bindery-runtime", "runtime/"),
        ("bindery-server", "server/"),
    ] {
        let files: Vec<_> = planners.iter().filter(|path| path.starts_with(crate_folder)).collect();
        if files.is_empty() {
            continue;
        }
        let out = folder.join(format!("planners-of-{package}"));
        missed += &mutate(&cargo_mutants, tree.folder(), package, &files, &out)?;
    }
    // A change that was under way when it was stopped is still there.
    tree.restore()?;
    survivors::check(&missed, &planners)
}

/// The planners whose path contains this text; those of the first list if no text is given.
fn chosen(only: Option<&str>) -> Vec<&'static str> {
    match only {
        None => PLANNERS.to_vec(),
        Some(only) => {
            let all = PLANNERS.into_iter().chain(ON_REQUEST);
            all.filter(|path| path.contains(only)).collect()
        }
    }
}

/// Runs cargo-mutants on files of one crate. Returns the lines of the changes that no test noticed.
fn mutate(cargo_mutants: &Path, tree: &Path, package: &str, files: &[&&str], out: &Path) -> Result<String> {
    // What an earlier run wrote must not be taken for the outcome of this one.
    if out.exists() {
        fs::remove_dir_all(out).with_context(|| format!("cannot remove {}", out.display()))?;
    }
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
    let missed = out.join("mutants.out/missed.txt");
    fs::read_to_string(&missed).with_context(|| format!("cargo-mutants did not write {}", missed.display()))
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

    /// Files whose first line says that they decide or plan, and which are no planners.
    const EXCEPTIONS: [(&str, &str); 3] = [
        ("agent/src/bound/tests/plan/adoption.rs", "tests of a planner"),
        ("agent/src/bound/tests/plan/retained.rs", "tests of a planner"),
        (
            "agent/src/namespaces.rs",
            "sends requests too; what it decides is in namespaces/mapped.rs",
        ),
    ];

    /// The sources of a folder, as paths of the tree.
    fn sources(folder: &str) -> Vec<String> {
        let mut found = Vec::new();
        for entry in fs::read_dir(root().join(folder)).unwrap() {
            let entry = entry.unwrap();
            let path = format!("{folder}/{}", entry.file_name().to_str().unwrap());
            if entry.file_type().unwrap().is_dir() {
                found.extend(sources(&path));
            } else if entry.path().extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
        found
    }

    #[test]
    fn each_planner_exists() {
        let exceptions = EXCEPTIONS.map(|(path, _)| path);
        for path in PLANNERS.into_iter().chain(ON_REQUEST).chain(exceptions) {
            assert!(root().join(path).is_file(), "{path}");
        }
    }

    #[test]
    fn each_file_that_decides_is_listed() {
        let exceptions = EXCEPTIONS.map(|(path, _)| path);
        let known: Vec<_> = chosen(Some("")).into_iter().chain(exceptions).collect();
        for path in [sources("agent/src"), sources("runtime/src"), sources("server/src")].concat() {
            let text = fs::read_to_string(root().join(&path)).unwrap();
            let decides = text.starts_with("//! Decides") || text.starts_with("//! Plans");
            assert!(
                !decides || known.contains(&&*path),
                "{path} says that it decides: list it among the planners, or as an exception"
            );
        }
    }

    #[test]
    fn a_file_that_is_named_is_chosen_from_both_lists() {
        assert_eq!(chosen(None).len(), PLANNERS.len());
        assert_eq!(
            chosen(Some("binding/c")),
            [
                "agent/src/binding/claims.rs",
                "agent/src/binding/claims/namespaces.rs",
                "agent/src/binding/crd.rs"
            ]
        );
        assert!(chosen(Some("nothing")).is_empty());
    }
}
