//! Writes the files of a volume so that all of them change at once, as kubelets do.
//!
//! The files are in a folder of their own, to which the link `..data` leads. Each name at the top of the volume is a link through
//! `..data`, so that one rename of this link replaces all files, and removes those that are no more.

use std::{
    collections::BTreeSet,
    fs, io,
    os::unix::fs::{PermissionsExt as _, chown, symlink},
    path::{Component, Path},
};

use anyhow::{Context as _, Result, ensure};

/// The link to the folder with the present files.
const DATA: &str = "..data";
/// The link that becomes [`DATA`].
const NEXT: &str = "..data_tmp";
const FOLDER_MODE: u32 = 0o755;

/// What the group of a Pod's volumes may do with files that are mounted for reading, and with their folders. These keep the group
/// for what is made in them.
const GROUP_READS: u32 = 0o440;
const GROUP_ENTERS: u32 = 0o2550;

/// A file of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct VolumeFile {
    /// Its path below the volume.
    pub(super) path: String,
    pub(super) content: Vec<u8>,
    pub(super) mode: u32,
}

/// Replaces the files of a volume. They belong to a group, if the Pod has one for its volumes.
pub(super) fn write(volume: &Path, files: &[VolumeFile], group: Option<u32>) -> Result<()> {
    make_folder(volume, group)?;
    let former = fs::read_link(volume.join(DATA)).ok();
    let data = tempfile::Builder::new().prefix("..").tempdir_in(volume)?;
    give(data.path(), FOLDER_MODE, GROUP_ENTERS, group)?;
    for file in files {
        write_file(data.path(), file, group).with_context(|| format!("file {:?}", file.path))?;
    }
    let data = data.keep();
    symlink(data.file_name().context("a folder without a name")?, volume.join(NEXT))?;
    fs::rename(volume.join(NEXT), volume.join(DATA))?;

    let names: BTreeSet<_> = files.iter().filter_map(|file| top(&file.path)).collect();
    for name in &names {
        match symlink(Path::new(DATA).join(name), volume.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error.into()),
            _ => {}
        }
    }
    for entry in fs::read_dir(volume)? {
        let name = entry?.file_name();
        let name = name.to_str().context("a name that is not UTF-8")?;
        if !name.starts_with("..") && !names.contains(name) {
            fs::remove_file(volume.join(name))?;
        }
    }
    if let Some(former) = former {
        fs::remove_dir_all(volume.join(former))?;
    }
    Ok(())
}

/// Gives a file or folder a mode, and to a group what it may do beside that.
pub(super) fn give(path: &Path, mode: u32, of_group: u32, group: Option<u32>) -> io::Result<()> {
    let mode = match group {
        Some(_) => mode | of_group,
        None => mode,
    };
    // In this order: a change of the owner takes bits away.
    chown(path, None, group)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

fn write_file(data: &Path, file: &VolumeFile, group: Option<u32>) -> Result<()> {
    let path = Path::new(&file.path);
    let is_below = path.components().all(|part| matches!(part, Component::Normal(_)));
    ensure!(is_below && top(&file.path).is_some(), "the path leaves the volume");
    let parents: Vec<_> = path.ancestors().skip(1).collect();
    for parent in parents.iter().rev() {
        make_folder(&data.join(parent), group)?;
    }
    let path = data.join(path);
    fs::write(&path, &file.content)?;
    give(&path, file.mode, GROUP_READS, group)?;
    Ok(())
}

/// Makes a folder that others may read whatever the umask is. Nothing happens if it is there.
fn make_folder(path: &Path, group: Option<u32>) -> io::Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        outcome => outcome.and_then(|()| give(path, FOLDER_MODE, GROUP_ENTERS, group)),
    }
}

/// The first name of a path.
fn top(path: &str) -> Option<&str> {
    path.split('/')
        .next()
        .filter(|name| !name.is_empty() && !name.starts_with(".."))
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, path::PathBuf};

    use super::*;

    fn files(files: &[(&str, &str)]) -> Vec<VolumeFile> {
        let file = |(path, content): &(&str, &str)| VolumeFile {
            path: (*path).to_owned(),
            content: content.as_bytes().to_vec(),
            mode: 0o640,
        };
        files.iter().map(file).collect()
    }

    /// What a program finds in a volume, by its paths, without the names that begin with two dots.
    fn found(folder: &Path) -> BTreeMap<PathBuf, String> {
        let mut found = BTreeMap::new();
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = PathBuf::from(path.file_name().unwrap());
            if name.to_str().unwrap().starts_with("..") {
                continue;
            }
            if path.is_dir() {
                let below = self::found(&path);
                found.extend(below.into_iter().map(|(path, content)| (name.join(path), content)));
            } else {
                found.insert(name, fs::read_to_string(&path).unwrap());
            }
        }
        found
    }

    #[track_caller]
    fn check(volume: &Path, expect: &[(&str, &str)]) {
        write(volume, &files(expect), None).unwrap();
        let expect = expect
            .iter()
            .map(|(path, content)| (path.into(), (*content).to_owned()));
        assert_eq!(found(volume), expect.collect());
        let kept = fs::read_dir(volume).unwrap().map(|it| it.unwrap().file_name());
        let dotted = kept.filter(|name| name.to_str().unwrap().starts_with(".."));
        assert_eq!(dotted.count(), 2, "the link and the folder that it leads to");
    }

    #[test]
    fn files_come_change_and_go() {
        let folder = tempfile::tempdir().unwrap();
        let volume = folder.path().join("volume");
        check(&volume, &[("tls.crt", "1"), ("tls.key", "1")]);
        check(&volume, &[("tls.crt", "2"), ("tls.key", "2"), ("ca/of/a.crt", "3")]);
        check(&volume, &[("tls.crt", "2")]);
        check(&volume, &[]);
        check(&volume, &[("tls.crt", "4")]);
    }

    #[test]
    fn all_files_change_by_one_link() {
        let folder = tempfile::tempdir().unwrap();
        let volume = folder.path().join("volume");
        write(&volume, &files(&[("a", "1"), ("in/b", "1")]), None).unwrap();
        assert_eq!(fs::read_link(volume.join("a")).unwrap(), Path::new("..data/a"));
        assert_eq!(fs::read_link(volume.join("in")).unwrap(), Path::new("..data/in"));
        let mode = |name: &str| fs::metadata(volume.join(name)).unwrap().permissions().mode() & 0o7777;
        assert_eq!(["a", "in/b", "in", "..data"].map(mode), [0o640, 0o640, 0o755, 0o755]);
    }

    #[test]
    fn no_path_leaves_the_volume() {
        let folder = tempfile::tempdir().unwrap();
        for path in ["../a", "a/../../b", "/etc/passwd", "..data", ""] {
            let outcome = write(&folder.path().join("volume"), &files(&[(path, "")]), None);
            let error = format!("{:#}", outcome.unwrap_err());
            assert!(error.contains("leaves the volume"), "{path:?}: {error}");
        }
    }
}
