//! Patches that break shipped code on purpose. Each begins with lines that say what it breaks, and what has to notice that.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail, ensure};

use crate::cargo::root;

/// What the first line of a patch begins with, which says what is broken.
const BROKEN: &str = "# Broken: ";

/// A patch of shipped code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Patch {
    pub(crate) name: String,
    /// The files that it changes.
    pub(crate) files: Vec<String>,
    text: String,
    path: PathBuf,
}

// === impl Patch ===

impl Patch {
    /// All patches of a folder of the project, in the order of their names.
    pub(crate) fn all(folder: &str) -> Result<Vec<Self>> {
        let path = root().join(folder);
        let mut all = Vec::new();
        for entry in fs::read_dir(&path).with_context(|| format!("cannot read {folder}"))? {
            let path = entry?.path();
            if path.extension() == Some(OsStr::new("patch")) {
                all.push(Self::read(path)?);
            }
        }
        ensure!(!all.is_empty(), "{folder} has no patches");
        all.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(all)
    }

    fn read(path: PathBuf) -> Result<Self> {
        let name = path.file_stem().and_then(OsStr::to_str);
        let name = name.context("a patch has a name that is not UTF-8")?.to_owned();
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let changed = text.lines().filter_map(|line| line.strip_prefix("+++ b/"));
        Ok(Self {
            name,
            files: changed.map(str::to_owned).collect(),
            text,
            path,
        })
    }

    /// The names in the line in front of the patch that begins with `head`, such as in `# Found by: NotConverged, LeftBehind.`
    pub(crate) fn named(&self, head: &str) -> Vec<String> {
        named(&self.text, head)
    }

    /// Applies the patch in a copy of the tree.
    pub(crate) fn apply(&self, tree: &Path) -> Result<()> {
        self.git(tree, &[])
    }

    /// Checks that the patch says what it breaks, changes shipped code alone, which is in these folders, and applies to this tree.
    pub(crate) fn check(&self, shipped: &[&str]) -> Result<()> {
        let name = &self.name;
        ensure!(
            self.text.starts_with(BROKEN),
            "patch {name} does not begin with {BROKEN:?}"
        );
        ensure!(!self.files.is_empty(), "patch {name} changes no file");
        let is_shipped = |file: &String| shipped.iter().any(|folder| file.starts_with(folder));
        if let Some(other) = self.files.iter().find(|file| !is_shipped(file)) {
            bail!(
                "patch {name} changes {other}, which is in none of {}",
                shipped.join(", ")
            );
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
            "patch {} does not apply any more; write {} anew: {}",
            self.name,
            self.path.display(),
            String::from_utf8_lossy(&output.stderr).trim_end()
        );
        Ok(())
    }
}

/// The names in the line of a text that begins with `head`.
fn named(text: &str, head: &str) -> Vec<String> {
    let line = text.lines().find_map(|line| line.strip_prefix(head));
    let names = line.unwrap_or_default().trim_end_matches('.').split(", ");
    names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_in_a_line_of_a_patch_are_read() {
        let text = "# Broken: A thing\n# of two lines.\n# Found by: NotConverged, LeftBehind.\n\ndiff\n";
        assert_eq!(named(text, "# Found by: "), ["NotConverged", "LeftBehind"]);
        assert!(named("# Broken: A thing.\n", "# Found by: ").is_empty());
    }

    #[test]
    fn a_patch_of_something_else_is_refused() {
        let mut patch = Patch::all("simulator/mutants").unwrap().remove(0);
        let shipped = ["agent/src/", "runtime/src/", "sdk/", "server/src/"];
        patch.check(&shipped).unwrap();
        patch.files.push("e2e/src/lib.rs".to_owned());
        let refused = patch.check(&shipped).unwrap_err().to_string();
        assert!(refused.contains("changes e2e/src/lib.rs"), "{refused}");
        patch.files.pop();
        patch.text.clear();
        assert!(patch.check(&shipped).is_err(), "it does not say what it breaks");
    }
}
