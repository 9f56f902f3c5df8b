//! A token source that reads a file which another program keeps fresh, such as a projected ServiceAccount token.

use std::fmt;
use std::fs::Metadata;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use secrecy::SecretString;
use tokio::time::Instant;

use super::{TokenError, TokenSource, same};

/// A file is read again after this long even if its metadata has not changed: not every file system updates it.
const REREAD_AFTER: Duration = Duration::from_mins(1);

/// Reads the token from a file: when the file has changed, every minute, and when the server says that the token has expired.
pub struct FileToken {
    path: PathBuf,
    cache: Mutex<FileCache>,
}

#[derive(Default)]
struct FileCache {
    read: Option<ReadToken>,
    /// The token that the server refused last, and how many different ones it has refused.
    refused: Option<SecretString>,
    refusals: u64,
}

/// The token that was read last, when, and the metadata of the file then.
#[derive(Clone)]
struct ReadToken {
    token: SecretString,
    stamp: FileStamp,
    at: Instant,
}

/// The metadata by which a change of a file is noticed.
#[derive(Clone, Copy, PartialEq, Eq)]
struct FileStamp {
    modified: Option<SystemTime>,
    length: u64,
}

impl FileToken {
    /// Makes a source for this file. White space around the token is dropped.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            cache: Mutex::default(),
        }
    }

    async fn read(&self) -> io::Result<SecretString> {
        loop {
            let at = Instant::now();
            let stamp = FileStamp::of(&tokio::fs::metadata(&self.path).await?);
            let (read, refusals) = {
                let cache = self.cache.lock();
                (cache.read.clone(), cache.refusals)
            };
            if let Some(read) = read
                && read.stamp == stamp
                && read.at.elapsed() < REREAD_AFTER
            {
                return Ok(read.token);
            }
            let text = tokio::fs::read_to_string(&self.path).await?;
            let token = SecretString::from(text.trim());
            let mut cache = self.cache.lock();
            let is_refused = cache.refused.as_ref().is_some_and(|refused| same(refused, &token));
            if is_refused && cache.refusals != refusals {
                // Read before the server refused it: the file may have another one by now.
                continue;
            }
            let token = cache.read.insert(ReadToken { token, stamp, at }).token.clone();
            return Ok(token);
        }
    }
}

impl FileStamp {
    fn of(metadata: &Metadata) -> Self {
        Self {
            modified: metadata.modified().ok(),
            length: metadata.len(),
        }
    }
}

impl TokenSource for FileToken {
    fn token(&self) -> BoxFuture<'_, Result<SecretString, TokenError>> {
        async {
            self.read().await.map_err(|source| TokenError::File {
                path: self.path.clone(),
                source,
            })
        }
        .boxed()
    }

    fn forget(&self, token: &SecretString) {
        let mut cache = self.cache.lock();
        if cache.read.as_ref().is_some_and(|read| same(&read.token, token)) {
            cache.read = None;
        }
        if !cache.refused.as_ref().is_some_and(|refused| same(refused, token)) {
            cache.refused = Some(token.clone());
            cache.refusals += 1;
        }
    }
}

impl fmt::Debug for FileToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileToken")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use secrecy::ExposeSecret as _;

    use super::*;

    /// Writes without a change that the file's metadata would show.
    fn write_unseen(path: &std::path::Path, text: &str) {
        let modified = fs::metadata(path).unwrap().modified().unwrap();
        fs::write(path, text).unwrap();
        fs::File::options()
            .write(true)
            .open(path)
            .unwrap()
            .set_modified(modified)
            .unwrap();
    }

    async fn read(source: &FileToken) -> String {
        source.token().await.unwrap().expose_secret().to_owned()
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_is_read_again_when_it_changed_or_is_old_or_its_token_was_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        fs::write(&path, "one\n").unwrap();
        let source = FileToken::new(&path);
        assert_eq!(read(&source).await, "one");

        write_unseen(&path, "two\n");
        assert_eq!(read(&source).await, "one", "remembered while nothing says otherwise");
        source.forget(&"zero".into());
        assert_eq!(read(&source).await, "one", "another token was refused");
        source.forget(&"one".into());
        assert_eq!(read(&source).await, "two");

        write_unseen(&path, "six\n");
        tokio::time::advance(REREAD_AFTER).await;
        assert_eq!(read(&source).await, "six");

        fs::write(&path, "longer\n").unwrap();
        assert_eq!(read(&source).await, "longer");
    }

    #[tokio::test]
    async fn a_missing_file_is_named() {
        let error = FileToken::new("/nonexistent/token").token().await.unwrap_err();
        assert_eq!(error.reason(), "TokenFileUnreadable");
        assert!(error.to_string().contains("/nonexistent/token"), "{error}");
    }
}
