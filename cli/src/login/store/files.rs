//! Files that their owner alone can read: checked when they are read, replaced as a whole when they are written.

use std::{
    ffi::OsStr,
    fs::{self, DirBuilder, File, Metadata, OpenOptions, TryLockError},
    io::{self, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::time::Instant;

use super::StoreError;

/// How long a process waits for a lock. A refresh takes at most three requests to the issuer.
pub(super) const LOCK_WAIT: Duration = Duration::from_secs(50);
/// How often a process tries to take a lock that another one holds.
const LOCK_EVERY: Duration = Duration::from_millis(50);
/// No file of a login is longer than this, in bytes.
const LENGTH_MAX: u64 = 1024 * 1024;

/// A file is taken for replaceable if there is room for at least this many bytes. Tokens with many groups have some 10 KiB.
const PROBE_LENGTH_MIN: u64 = 32 * 1024;

/// Rights that nobody but the owner may have on a file with tokens or on their folder.
const OF_OTHERS: u32 = 0o077;
/// Rights that nobody but the owner may have on the folder of the configuration and on `servers.yaml`: to write.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// A lock that other processes wait for; released on drop.
#[derive(Debug)]
pub(crate) struct Lock(#[expect(dead_code, reason = "the lock is released when the file is closed")] File);

/// Makes a folder with its parents, which only its owner can read, unless it exists. An existing folder must be the user's own
/// and nobody else's to write.
pub(super) fn own_folder(path: &Path) -> Result<(), StoreError> {
    make_folder(path)?;
    let metadata = fs::metadata(path).map_err(|error| read_error(path, &error))?;
    judge(path, (metadata.uid(), metadata.mode()), own_id(), WRITABLE_BY_OTHERS)
}

/// Makes a folder that holds tokens, as [`own_folder`] does. Nobody else may read an existing one.
pub(super) fn secret_folder(path: &Path) -> Result<(), StoreError> {
    make_folder(path)?;
    let metadata = fs::metadata(path).map_err(|error| read_error(path, &error))?;
    judge(path, (metadata.uid(), metadata.mode()), own_id(), OF_OTHERS)
}

fn make_folder(path: &Path) -> Result<(), StoreError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|error| write_error(path, &error))
}

/// Reads a file that only its owner may write; none if it does not exist.
pub(super) fn read_own(path: &Path) -> Result<Option<String>, StoreError> {
    read(path, WRITABLE_BY_OTHERS)
}

/// Reads a file that only its owner may read; none if it does not exist.
pub(super) fn read_secret(path: &Path) -> Result<Option<String>, StoreError> {
    read(path, OF_OTHERS)
}

/// Reads a file on which others have none of the rights in `forbidden`.
fn read(path: &Path, forbidden: u32) -> Result<Option<String>, StoreError> {
    let Some(file) = open(path)? else { return Ok(None) };
    // Of the open file, so that it cannot be replaced after this check.
    let metadata: Metadata = file.metadata().map_err(|error| read_error(path, &error))?;
    judge(path, (metadata.uid(), metadata.mode()), own_id(), forbidden)?;
    text(path, file).map(Some)
}

fn open(path: &Path) -> Result<Option<File>, StoreError> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(read_error(path, &error)),
    }
}

fn text(path: &Path, file: File) -> Result<String, StoreError> {
    let mut bytes = Vec::new();
    let read = file.take(LENGTH_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|error| read_error(path, &error))?;
    let fault = if bytes.len() as u64 > LENGTH_MAX {
        "it is longer than 1 MiB"
    } else {
        match String::from_utf8(bytes) {
            Ok(text) => return Ok(text),
            Err(_) => "it is no text",
        }
    };
    Err(StoreError::Damaged {
        path: path.to_owned(),
        fault: fault.to_owned(),
    })
}

/// Refuses a file or folder of another user, or one on which others have one of the rights in `forbidden`.
fn judge(path: &Path, (owner, mode): (u32, u32), own: u32, forbidden: u32) -> Result<(), StoreError> {
    let path = || path.to_owned();
    if owner != own {
        return Err(StoreError::OtherOwner {
            path: path(),
            owner,
            own,
        });
    }
    if mode & forbidden != 0 {
        return Err(StoreError::Exposed { path: path(), mode });
    }
    Ok(())
}

fn own_id() -> u32 {
    nix::unistd::geteuid().as_raw()
}

/// Replaces a file at once: readers see the former content or the new one, also after a loss of power. Only its owner can read it.
/// The caller holds a lock, so that no other process writes the file.
pub(super) fn replace(path: &Path, content: &[u8]) -> Result<(), StoreError> {
    // What cannot be deleted must not keep the new content from being written.
    let _ = delete_leftovers(path);
    let written = write_beside(path, content).and_then(|beside| {
        fs::rename(&beside, path).inspect_err(|_| {
            let _ = fs::remove_file(&beside);
        })
    });
    written.map_err(|error| write_error(path, &error))?;
    sync_folder(path);
    Ok(())
}

/// Whether a file could be replaced now: there are the rights to do so, and room for as much as the file holds.
pub(super) fn check_replaceable(path: &Path) -> Result<(), StoreError> {
    let present = fs::metadata(path).map_or(0, |metadata| metadata.len());
    let length = present.clamp(PROBE_LENGTH_MIN, LENGTH_MAX);
    // Random bytes also need their room on a file system that compresses.
    let mut probe = vec![0_u8; usize::try_from(length).unwrap_or_default()];
    rand::fill(&mut probe[..]);
    // A process that writes the file meanwhile may have deleted the probe.
    let tried = write_beside(path, &probe).and_then(|beside| remove(&beside));
    tried.map(drop).map_err(|error| write_error(path, &error))
}

/// Writes a file with a random name beside the file.
fn write_beside(path: &Path, content: &[u8]) -> io::Result<PathBuf> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{:016x}", rand::random::<u64>()));
    let beside = path.with_file_name(name);
    let written = (|| {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&beside)?;
        file.write_all(content)?;
        file.sync_all()
    })();
    if written.is_err() {
        // It may not have been made at all.
        let _ = fs::remove_file(&beside);
    }
    written.map(|()| beside)
}

/// Deletes what [`write_beside`] left when its process was killed.
fn delete_leftovers(path: &Path) -> io::Result<()> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Ok(());
    };
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if is_leftover(name, &entry.file_name()) {
            remove(&entry.path())?;
        }
    }
    Ok(())
}

/// Whether a file of this name is one that [`write_beside`] makes for file `name`.
fn is_leftover(name: &OsStr, found: &OsStr) -> bool {
    let suffix = found
        .as_encoded_bytes()
        .strip_prefix(name.as_encoded_bytes())
        .and_then(|suffix| suffix.strip_prefix(b"."));
    suffix.is_some_and(|suffix| suffix.len() == 16 && suffix.iter().all(u8::is_ascii_hexdigit))
}

/// Makes a rename or a deletion last. Some file systems cannot do that; the change is made all the same.
fn sync_folder(path: &Path) {
    if let Some(folder) = path.parent() {
        let _ = File::open(folder).and_then(|folder| folder.sync_all());
    }
}

/// Deletes a file, which may be missing, with what is left of its replacements. Returns whether it existed. The caller holds a lock.
pub(super) fn delete(path: &Path) -> Result<bool, StoreError> {
    let deleted = remove(path).map_err(|error| write_error(path, &error))?;
    match delete_leftovers(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(write_error(path, &error)),
        _ => {}
    }
    sync_folder(path);
    Ok(deleted)
}

/// Removes a file, which may be missing. Returns whether it existed.
fn remove(path: &Path) -> io::Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Takes the lock of this name as soon as no other process holds it, for at most `wait`. The file stays, for whoever deleted it
/// would let two processes lock two files of the same name.
pub(super) async fn lock(path: &Path, wait: Duration) -> Result<Lock, StoreError> {
    let options = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .clone();
    let file = options.open(path).map_err(|error| write_error(path, &error))?;
    let start = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(Lock(file)),
            Err(TryLockError::Error(error)) => return Err(write_error(path, &error)),
            Err(TryLockError::WouldBlock) if start.elapsed() >= wait => {
                return Err(StoreError::Locked {
                    path: path.to_owned(),
                    waited: wait,
                });
            }
            // A blocking wait could not be given up, and would keep the process from ending.
            Err(TryLockError::WouldBlock) => tokio::time::sleep(LOCK_EVERY).await,
        }
    }
}

fn read_error(path: &Path, error: &io::Error) -> StoreError {
    StoreError::Read {
        path: path.to_owned(),
        fault: error.to_string(),
    }
}

fn write_error(path: &Path, error: &io::Error) -> StoreError {
    StoreError::Write {
        path: path.to_owned(),
        fault: error.to_string(),
    }
}

#[cfg(test)]
mod tests;
