//! Fills a cache folder in one process of the user at a time.

use std::{
    fmt,
    fs::{self, File},
    io::{self, Write},
    path::Path,
};

use anyhow::{Context as _, Result};
use sha2::{Digest as _, Sha256};

/// The name of a cache folder: a hash of all that decides what is in it.
pub(super) fn key<'a>(texts: impl IntoIterator<Item = &'a str>, arguments: impl IntoIterator<Item = String>) -> String {
    let mut hash = Sha256::new();
    for text in texts {
        hash.update(text);
        hash.update([0]);
    }
    for argument in arguments {
        hash.update(argument);
    }
    let number = hash.finalize()[..6]
        .iter()
        .fold(0, |number, byte| number << 8 | u64::from(*byte));
    format!("{number:012x}")
}

/// Calls `make` unless all `is_there`. Other processes wait meanwhile for the lock file of the cache folder. `what` is what is made, in
/// messages.
pub(super) fn make(
    what: &str,
    cache: &Path,
    is_there: impl Fn() -> bool,
    make: impl FnOnce() -> Result<()>,
) -> Result<()> {
    if is_there() {
        return Ok(());
    }
    fs::create_dir_all(cache).with_context(|| format!("cannot create the cache folder {}", cache.display()))?;
    let lock = File::create(cache.join(".lock"))?;
    if lock.try_lock().is_err() {
        progress(format_args!("another process builds {what}; waiting for it\n"));
        lock.lock()
            .with_context(|| format!("cannot lock {}", cache.display()))?;
    }
    // Asked again under the lock: another process may have made it meanwhile.
    if is_there() { Ok(()) } else { make() }
}

/// Prints progress to the terminal at once: libtest holds back what macros print until a test has failed.
pub(super) fn progress(message: fmt::Arguments<'_>) {
    let mut stderr = io::stderr().lock();
    // Progress that cannot be shown is no reason to fail.
    let _ = stderr.write_fmt(message).and_then(|()| stderr.flush());
}
