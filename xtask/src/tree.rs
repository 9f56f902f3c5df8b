//! A copy of the tree in which mutants are built. The tree itself is never changed.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};

use crate::cargo::root;

/// A copy of the files of the tree that git tracks, as they are now. One process at a time has it.
#[derive(Debug)]
pub(crate) struct TreeCopy {
    folder: PathBuf,
    /// Locked, so that no other process puts its mutant into the copy.
    _lock: File,
}

// === impl TreeCopy ===

impl TreeCopy {
    /// Opens the copy in a folder, and brings it up to date.
    pub(crate) fn open(folder: PathBuf) -> Result<Self> {
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let path = folder.with_extension("lock");
        let lock = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        ensure!(
            lock.try_lock().is_ok(),
            "another process builds mutants in {}; wait until it is done",
            folder.display()
        );
        let copy = Self { folder, _lock: lock };
        copy.restore()?;
        Ok(copy)
    }

    /// The folder of the copy.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Makes each file of the copy what it is in the tree. Files that are so already keep their times, so that cargo builds no more
    /// than what has changed.
    pub(crate) fn restore(&self) -> Result<()> {
        let wanted = tracked()?;
        for path in &wanted {
            let content = fs::read(root().join(path)).with_context(|| format!("cannot read {}", path.display()))?;
            let copy = self.folder.join(path);
            if fs::read(&copy).is_ok_and(|old| old == content) {
                continue;
            }
            fs::create_dir_all(copy.parent().context("a file has a folder")?)?;
            fs::write(&copy, content).with_context(|| format!("cannot write {}", copy.display()))?;
        }
        self.remove_others(&self.folder, &wanted)
    }

    /// Removes what is in the copy and not in the tree.
    fn remove_others(&self, folder: &Path, wanted: &BTreeSet<PathBuf>) -> Result<()> {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                self.remove_others(&path, wanted)?;
                // Fails if it is not empty.
                let _ = fs::remove_dir(&path);
            } else if !wanted.contains(path.strip_prefix(&self.folder)?) {
                fs::remove_file(&path)?;
            }
        }
        Ok(())
    }
}

/// The files of the tree that git tracks and that exist.
fn tracked() -> Result<BTreeSet<PathBuf>> {
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached"])
        .current_dir(root())
        .output()
        .context("cannot run git, which tells the files of the tree")?;
    ensure!(output.status.success(), "git ls-files failed: {}", output.status);
    let names = String::from_utf8(output.stdout)?;
    let paths = names.split('\0').filter(|name| !name.is_empty()).map(PathBuf::from);
    Ok(paths.filter(|path| root().join(path).is_file()).collect())
}
