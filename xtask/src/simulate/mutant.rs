//! The mutants: patches of `simulator/mutants`, each of which breaks shipped code in one way.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail, ensure};

use crate::cargo::root;

/// The folder of the patches.
const FOLDER: &str = "simulator/mutants";
/// What the lines in front of a patch begin with: what it breaks, and which invariants have to find that.
const HEADS: [&str; 2] = ["# Broken: ", "# Found by: "];
/// The folders of code that users run. A mutant of anything else shows nothing.
const SHIPPED: [&str; 5] = [
    "agent/src/",
    "runtime/src/",
    "sdk/api/src/",
    "sdk/rust/src/",
    "server/src/",
];

/// A patch of shipped code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mutant {
    pub(super) name: String,
    path: PathBuf,
}

/// All mutants, or those of these names, in the order of names, by which those of one crate mostly follow one another.
pub(super) fn find(names: &[String]) -> Result<Vec<Mutant>> {
    let folder = root().join(FOLDER);
    let mut all = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        if path.extension() == Some(OsStr::new("patch")) {
            let name = path.file_stem().and_then(OsStr::to_str);
            let name = name.context("a mutant has a name that is not UTF-8")?.to_owned();
            all.push(Mutant { name, path });
        }
    }
    all.sort_by(|one, other| one.name.cmp(&other.name));
    if let Some(unknown) = names.iter().find(|name| all.iter().all(|mutant| mutant.name != **name)) {
        let known: Vec<_> = all.iter().map(|mutant| mutant.name.as_str()).collect();
        bail!("there is no mutant {unknown:?}; choose of: {}", known.join(", "));
    }
    all.retain(|mutant| names.is_empty() || names.contains(&mutant.name));
    Ok(all)
}

/// Checks that every mutant applies to this tree, says what it breaks, and changes shipped code alone.
pub(crate) fn check_all() -> Result<()> {
    let all = find(&[])?;
    ensure!(!all.is_empty(), "{FOLDER} has no mutants");
    let broken: Vec<_> = all.iter().filter_map(|mutant| mutant.check().err()).collect();
    let broken: Vec<_> = broken.iter().map(|error| format!("{error:#}")).collect();
    ensure!(broken.is_empty(), "{}", broken.join("\n"));
    eprintln!("==> mutants: {} apply", all.len());
    Ok(())
}

// === impl Mutant ===

impl Mutant {
    /// Applies the patch in a copy of the tree.
    pub(super) fn apply(&self, tree: &Path) -> Result<()> {
        self.git(tree, &[])
    }

    fn check(&self) -> Result<()> {
        let name = &self.name;
        let text = fs::read_to_string(&self.path).with_context(|| format!("cannot read mutant {name}"))?;
        for head in HEADS {
            ensure!(
                text.lines().any(|line| line.starts_with(head)),
                "mutant {name} has no line {head:?}"
            );
        }
        let mut changed = text.lines().filter_map(|line| line.strip_prefix("+++ b/")).peekable();
        ensure!(changed.peek().is_some(), "mutant {name} changes no file");
        if let Some(other) = changed.find(|path| !SHIPPED.iter().any(|folder| path.starts_with(folder))) {
            bail!("mutant {name} changes {other}, which is not shipped");
        }
        self.git(&root(), &["--check"])
    }

    fn git(&self, tree: &Path, options: &[&str]) -> Result<()> {
        // In a repository git would take paths from its top, and skip what is outside of the folder.
        let above = tree.parent().unwrap_or(tree);
        let output = Command::new("git")
            .args(["apply", "--whitespace=nowarn"])
            .args(options)
            .arg(&self.path)
            .env("GIT_CEILING_DIRECTORIES", above)
            .env_remove("GIT_DIR")
            .current_dir(tree)
            .output()
            .context("cannot run git")?;
        ensure!(
            output.status.success(),
            "mutant {} does not apply any more; write {} anew: {}",
            self.name,
            self.path.display(),
            String::from_utf8_lossy(&output.stderr).trim_end()
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mutants_are_known_by_name() {
        let all = find(&[]).unwrap();
        assert!(all.len() >= 20, "{}", all.len());
        let one = find(&["guard-off".to_owned()]).unwrap();
        assert_eq!(one.len(), 1);
        let unknown = find(&["guard".to_owned()]).unwrap_err().to_string();
        assert!(
            unknown.starts_with("there is no mutant \"guard\"") && unknown.contains("guard-off"),
            "{unknown}"
        );
    }

    #[test]
    fn each_mutant_applies() {
        check_all().unwrap();
    }
}
