//! Files that their owner alone can read: checked when they are read, replaced as a whole when they are written.

use std::{
    fs::{self, DirBuilder, File, Metadata, OpenOptions, TryLockError},
    io::{self, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::Path,
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

/// Rights that nobody but the owner may have on a file with tokens or on their folder.
const OF_OTHERS: u32 = 0o077;
/// Rights that nobody but the owner may have on the folder of the configuration: to write.
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

/// Reads a file; none if it does not exist.
pub(super) fn read(path: &Path) -> Result<Option<String>, StoreError> {
    open(path)?.map(|file| text(path, file)).transpose()
}

/// Reads a file that only its owner may read; none if it does not exist.
pub(super) fn read_secret(path: &Path) -> Result<Option<String>, StoreError> {
    let Some(file) = open(path)? else { return Ok(None) };
    // Of the open file, so that it cannot be replaced after this check.
    let metadata: Metadata = file.metadata().map_err(|error| read_error(path, &error))?;
    judge(path, (metadata.uid(), metadata.mode()), own_id(), OF_OTHERS)?;
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

/// Replaces a file at once: readers see the former content or the new one. Only its owner can read it.
pub(super) fn replace(path: &Path, content: &[u8]) -> Result<(), StoreError> {
    let written = write_beside(path, content).and_then(|beside| fs::rename(beside, path));
    written.map_err(|error| write_error(path, &error))
}

/// Whether a file could be replaced now.
pub(super) fn check_replaceable(path: &Path) -> Result<(), StoreError> {
    let tried = write_beside(path, b"").and_then(fs::remove_file);
    tried.map_err(|error| write_error(path, &error))
}

fn write_beside(path: &Path, content: &[u8]) -> io::Result<std::path::PathBuf> {
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

/// Deletes a file, which may be missing. Returns whether it existed.
pub(super) fn delete(path: &Path) -> Result<bool, StoreError> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(write_error(path, &error)),
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
