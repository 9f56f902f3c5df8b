//! Files that are read again when they change, such as those of a mounted Secret that cert-manager renews.

use std::{
    error::Error,
    fmt, fs,
    os::unix::fs::MetadataExt as _,
    path::PathBuf,
    time::{Duration, SystemTime},
};

use tokio_util::sync::CancellationToken;

/// How often the files are checked for changes.
const CHECK_EVERY: Duration = Duration::from_secs(10);

/// Modification time, size and inode of a file, by which a change is noticed; `None` if there is no such file. Links are
/// followed.
type Stamp = Option<(SystemTime, u64, u64)>;

type Load = Box<dyn Fn() -> Result<(), Box<dyn Error>> + Send>;

/// Groups of files, each with a function that loads them.
#[derive(Default)]
pub struct FollowedFiles(Vec<FileGroup>);

struct FileGroup {
    what: &'static str,
    paths: Vec<PathBuf>,
    stamps: Vec<Stamp>,
    load: Load,
}

impl fmt::Debug for FollowedFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let groups = self.0.iter().map(|group| (group.what, &group.paths));
        f.debug_map().entries(groups).finish()
    }
}

impl FollowedFiles {
    /// Loads files now, and again whenever one of them changes. Fails if they cannot be loaded now.
    pub fn add<E: Error + 'static>(
        &mut self,
        what: &'static str,
        paths: Vec<PathBuf>,
        load: impl Fn() -> Result<(), E> + Send + 'static,
    ) -> Result<(), E> {
        // Taken before the files are read, so that a change in between is noticed.
        let stamps = stamps(&paths);
        load()?;
        self.0.push(FileGroup {
            what,
            paths,
            stamps,
            load: Box::new(move || Ok(load()?)),
        });
        Ok(())
    }

    /// Checks the files every 10 s until `stop` is cancelled.
    pub async fn follow(mut self, stop: CancellationToken) {
        while stop
            .run_until_cancelled(tokio::time::sleep(CHECK_EVERY))
            .await
            .is_some()
        {
            self.check();
        }
    }

    /// Loads the groups of which a file has changed. A group that cannot be loaded is tried again at the next check, since
    /// perhaps only one of its files is written yet.
    fn check(&mut self) {
        for group in &mut self.0 {
            let stamps = stamps(&group.paths);
            if stamps == group.stamps {
                continue;
            }
            match (group.load)() {
                Ok(()) => {
                    tracing::info!(files = ?group.paths, "{} replaced", group.what);
                    group.stamps = stamps;
                }
                Err(error) => tracing::error!(%error, "the former {} stays in use", group.what),
            }
        }
    }
}

fn stamps(paths: &[PathBuf]) -> Vec<Stamp> {
    let stamp = |path: &PathBuf| {
        let metadata = fs::metadata(path).ok()?;
        Some((metadata.modified().ok()?, metadata.len(), metadata.ino()))
    };
    paths.iter().map(stamp).collect()
}

#[cfg(test)]
mod tests {
    use std::{os::unix::fs::symlink, sync::Arc};

    use parking_lot::Mutex;

    use super::*;
    use crate::tls::TlsError;

    /// A kubelet replaces the files of a mounted Secret by replacing the link to their folder.
    #[test]
    fn files_of_a_mounted_secret_are_read_again_when_the_kubelet_replaces_them() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        let publish = |version: &str, text: &str| {
            fs::create_dir(path(version)).expect("a folder");
            fs::write(path(version).join("ca.crt"), text).expect("a file");
            symlink(version, path("..data_tmp")).expect("a link");
            fs::rename(path("..data_tmp"), path("..data")).expect("renamed");
        };
        publish("..1", "one");
        symlink("..data/ca.crt", path("ca.crt")).expect("a link");

        let read = Arc::new(Mutex::new(Vec::new()));
        let (seen, file) = (Arc::clone(&read), path("ca.crt"));
        let mut files = FollowedFiles::default();
        let load = move || {
            let text = fs::read_to_string(&file).map_err(|source| TlsError::Read {
                path: file.clone(),
                source,
            })?;
            seen.lock().push(text);
            Ok::<_, TlsError>(())
        };
        files.add("CA", vec![path("ca.crt")], load).expect("a file");
        files.check();
        assert_eq!(*read.lock(), ["one"], "nothing has changed");
        publish("..2", "three");
        files.check();
        files.check();
        assert_eq!(*read.lock(), ["one", "three"]);
        fs::remove_file(path("ca.crt")).expect("removed");
        files.check();
        fs::write(path("ca.crt"), "four").expect("a file");
        files.check();
        assert_eq!(
            *read.lock(),
            ["one", "three", "four"],
            "a file that was away is read again"
        );
        let missing = files.add("CA", vec![path("none")], || {
            Err(TlsError::Read {
                path: "none".into(),
                source: std::io::ErrorKind::NotFound.into(),
            })
        });
        assert!(missing.is_err(), "what is missing at the start is an error");
    }
}
