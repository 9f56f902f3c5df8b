//! The checksums of all files of a release, as `sha256sum --check` reads them.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io,
    path::Path,
};

use anyhow::{Context as _, Result};
use sha2::{Digest as _, Sha256};

/// The name of the file with the checksums.
pub const CHECKSUMS: &str = "SHA256SUMS";

/// Returns a line for each file below a folder, sorted by path.
pub(super) fn of(folder: &Path) -> Result<String> {
    let lines = files(folder)?.into_iter().map(|path| {
        let mut hash = Sha256::new();
        let mut file = File::open(folder.join(&path)).with_context(|| format!("cannot read {path}"))?;
        io::copy(&mut file, &mut hash)?;
        Ok(format!("{:x}  {path}\n", hash.finalize()))
    });
    lines.collect()
}

/// Returns the paths in lines of [`of`].
pub(super) fn paths(checksums: &str) -> BTreeSet<&str> {
    checksums
        .lines()
        .filter_map(|line| Some(line.split_once("  ")?.1))
        .collect()
}

/// Returns the paths of all files below a folder, sorted.
pub(super) fn files(folder: &Path) -> Result<Vec<String>> {
    let mut files = Vec::new();
    add(folder, "", &mut files)?;
    files.sort();
    Ok(files)
}

/// Adds the path of each file below `folder`, whose own path begins with `prefix`.
fn add(folder: &Path, prefix: &str, files: &mut Vec<String>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_name().and_then(|it| it.to_str());
        let name = format!(
            "{prefix}{}",
            name.with_context(|| format!("{} is not UTF-8", path.display()))?
        );
        if path.is_dir() {
            add(&path, &format!("{name}/"), files)?;
        } else {
            files.push(name);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_has_a_line_in_the_order_of_paths() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("b/c")).unwrap();
        fs::write(folder.path().join("b/c/d"), "").unwrap();
        fs::write(folder.path().join("a"), "abc").unwrap();
        // FIPS 180-2, appendix B.1, and the checksum of nothing.
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  a\n\
             e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  b/c/d\n";
        let lines = of(folder.path()).unwrap();
        assert_eq!(lines, expected);
        assert_eq!(paths(&lines), BTreeSet::from(["a", "b/c/d"]));
    }
}
