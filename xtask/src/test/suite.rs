//! `cargo xtask test --suite NAME`: one suite of `e2e/`.

use std::{collections::BTreeSet, fs, path::Path};

use anyhow::{Context as _, Result, ensure};

use super::{program::build_suite, provide};
use crate::cargo::root;

/// Runs one suite, or those of its tests whose name contains `filter`.
pub(super) fn run(name: &str, filter: Option<&str>) -> Result<()> {
    let known = names(&root().join("e2e/tests"))?;
    ensure!(
        known.contains(name),
        "there is no suite {name:?}; choose one of: {}",
        known.into_iter().collect::<Vec<_>>().join(", ")
    );
    let suite = build_suite(name)?;
    provide()?;
    let status = suite
        .command()
        .args(filter)
        .status()
        .with_context(|| format!("cannot run the suite {name}"))?;
    ensure!(status.success(), "suite {name} failed");
    Ok(())
}

/// Names of the suites, as cargo finds them: files `NAME.rs`, and folders `NAME` with a `main.rs`.
fn names(folder: &Path) -> Result<BTreeSet<String>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let name = |path: &Path| {
        let is_suite = path.extension().is_some_and(|extension| extension == "rs") || path.join("main.rs").is_file();
        let stem = path.file_stem().filter(|_| is_suite)?;
        Some(stem.to_str()?.to_owned())
    };
    Ok(entries.flatten().filter_map(|entry| name(&entry.path())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suites_are_files_and_folders() {
        let names = names(&root().join("e2e/tests")).unwrap();
        assert!(names.contains("main_job") && names.contains("synk"), "{names:?}");
        // Beside `survival.rs` there is a folder of its modules.
        assert!(names.contains("survival"), "{names:?}");
    }
}
