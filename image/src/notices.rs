//! Collects the license texts of the crates that a program is made of, which have to be handed on with the program.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

use crate::{dependencies::Crate, workspace::read};

/// The name of the file in images and archives.
pub(crate) const NOTICES: &str = "THIRD-PARTY-NOTICES";

/// How the names of files with licenses begin, in capital letters.
const NAMES: [&str; 6] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"];

/// Lines up the parts of the file.
const RULE: &str = "--------------------------------------------------------------------------------";

/// Returns the license texts of all crates that come from crates.io. A text that several crates share stands there once.
pub(crate) fn of(crates: &[Crate]) -> Result<Vec<u8>> {
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut without = Vec::new();
    for it in crates.iter().filter(|it| it.is_published) {
        let name = format!("{} {}", it.name, it.version);
        let found = texts_of(&it.folder)?;
        if found.is_empty() {
            let license = it.license.as_deref();
            let license = license.with_context(|| format!("crate {name} has neither a license nor a text of one"))?;
            without.push(format!("{name}: {license}"));
        }
        for text in found {
            let users = texts.entry(text).or_default();
            if users.last() != Some(&name) {
                users.push(name.clone());
            }
        }
    }
    let mut by_users: Vec<_> = texts.into_iter().collect();
    by_users.sort_by(|a, b| (&a.1, &a.0).cmp(&(&b.1, &b.0)));
    let mut notices = "The licenses of the crates that this program is made of.\n\n\
        The standard library of Rust is under Apache-2.0 or MIT; the text of Apache-2.0 is in LICENSE.\n"
        .to_owned();
    if !without.is_empty() {
        writeln!(notices, "\nCrates without a text of their own:\n{}", without.join("\n"))?;
    }
    for (text, users) in by_users {
        write!(
            notices,
            "\n{RULE}\n{}\n{RULE}\n\n{}\n",
            users.join(", "),
            text.trim_end()
        )?;
    }
    Ok(notices.into_bytes())
}

/// Reads the files with licenses in the folder of a crate, sorted by path.
fn texts_of(folder: &Path) -> Result<Vec<String>> {
    let mut paths = Vec::new();
    add(folder, &mut paths)?;
    paths.sort();
    let texts = paths
        .iter()
        .map(|path| Ok(String::from_utf8_lossy(&read(path)?).replace("\r\n", "\n")));
    texts.collect()
}

fn add(folder: &Path, paths: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
        if !NAMES.iter().any(|it| name.starts_with(it)) {
            continue;
        }
        if path.is_dir() {
            let inside = fs::read_dir(&path)?.map(|entry| Ok(entry?.path()));
            let inside: Vec<PathBuf> = inside.collect::<Result<_>>()?;
            paths.extend(inside.into_iter().filter(|path| path.is_file()));
        } else if path.extension().is_none_or(|it| it != "rs") {
            paths.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn published(root: &Path, name: &str, license: Option<&str>, files: &[(&str, &str)]) -> Crate {
        let folder = root.join(name);
        for (path, text) in files {
            let path = folder.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        fs::create_dir_all(&folder).unwrap();
        Crate {
            name: name.to_owned(),
            version: "1.0.0".to_owned(),
            license: license.map(str::to_owned),
            folder,
            is_published: true,
            uses: Vec::new(),
        }
    }

    #[test]
    fn a_text_stands_there_once_with_all_crates_that_have_it() {
        let root = tempfile::tempdir().unwrap();
        let crates = [
            published(
                root.path(),
                "alpha",
                None,
                &[("LICENSE-MIT", "be nice\r\n"), ("src/lib.rs", "code")],
            ),
            published(
                root.path(),
                "beta",
                None,
                &[("license", "be nice\n"), ("LICENSES/zlib.txt", "say so")],
            ),
            published(root.path(), "gamma", Some("MIT"), &[("license.rs", "code")]),
        ];
        let notices = String::from_utf8(of(&crates).unwrap()).unwrap();
        assert_eq!(notices.matches("be nice").count(), 1, "{notices}");
        assert!(notices.contains("alpha 1.0.0, beta 1.0.0\n"), "{notices}");
        assert!(
            notices.contains("say so") && notices.contains("gamma 1.0.0: MIT"),
            "{notices}"
        );
        assert!(!notices.contains("code"), "{notices}");
    }

    #[test]
    fn a_crate_without_any_license_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let error = of(&[published(root.path(), "alpha", None, &[])])
            .unwrap_err()
            .to_string();
        assert!(error.contains("crate alpha 1.0.0"), "{error}");
    }
}
