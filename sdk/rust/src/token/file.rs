//! A token source that reads a file which another program keeps fresh, such as a projected ServiceAccount token.

use std::fmt;
use std::fs::Metadata;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use secrecy::SecretString;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::{TokenError, TokenSource};

/// A file is read again after this long even if its metadata has not changed: not every file system updates it.
const REREAD_AFTER: Duration = Duration::from_mins(1);

/// Reads the token from a file: when the file has changed, every minute, and when the server says that the token has expired.
pub struct FileToken {
    path: PathBuf,
    stale: AtomicBool,
    last: Mutex<Option<Read>>,
}

/// The token that was read last, when, and the metadata of the file then.
struct Read {
    token: SecretString,
    look: Look,
    at: Instant,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Look {
    modified: Option<SystemTime>,
    length: u64,
}

impl FileToken {
    /// Makes a source for this file. White space around the token is dropped.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            stale: AtomicBool::new(false),
            last: Mutex::new(None),
        }
    }

    async fn read(&self) -> io::Result<SecretString> {
        let mut last = self.last.lock().await;
        let look = Look::of(&tokio::fs::metadata(&self.path).await?);
        let stale = self.stale.swap(false, Ordering::Relaxed);
        if let Some(read) = last.as_ref()
            && !stale
            && read.look == look
            && read.at.elapsed() < REREAD_AFTER
        {
            return Ok(read.token.clone());
        }
        let text = tokio::fs::read_to_string(&self.path).await?;
        let token = SecretString::from(text.trim());
        *last = Some(Read {
            token: token.clone(),
            look,
            at: Instant::now(),
        });
        Ok(token)
    }
}

impl Look {
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

    fn expired(&self) {
        self.stale.store(true, Ordering::Relaxed);
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
    async fn reads_again_when_changed_old_or_expired() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        fs::write(&path, "one\n").unwrap();
        let source = FileToken::new(&path);
        assert_eq!(read(&source).await, "one");

        write_unseen(&path, "two\n");
        assert_eq!(read(&source).await, "one", "remembered while nothing says otherwise");
        source.expired();
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
