//! A folder for logs, keys and data that is removed with its owner.

use std::{
    env, fs,
    io::{self, Write},
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result};
use tempfile::TempDir;

/// The environment variable that keeps every [`Workdir`], so that its logs can be read.
const KEEP: &str = "BINDERY_E2E_KEEP";

/// A shell script that removes the folder when its owner dies. A line from the owner, who removes the folder itself, ends it.
const JANITOR: &str = r#"read -r _ || { sleep 1; rm -rf -- "$1"; }"#;

/// A temporary folder. Removed on drop, and also when the process that made it is killed, unless `BINDERY_E2E_KEEP`
/// is set.
#[derive(Debug)]
pub struct Workdir {
    path: PathBuf,
    owned: Option<(TempDir, Child)>,
}

impl Workdir {
    /// Creates a folder whose name contains `name`.
    pub fn new(name: &str) -> Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix(&format!("bindery-{name}-"))
            .tempdir()
            .context("cannot create a temporary folder")?;
        let path = dir.path().to_owned();
        if env::var_os(KEEP).is_some() {
            // Straight to the terminal, where whoever set the variable looks for it.
            let _ = writeln!(io::stderr(), "{name}: kept in {}", dir.keep().display());
            return Ok(Self { path, owned: None });
        }
        let janitor = Command::new("sh")
            .args(["-c", JANITOR, "sh"])
            .arg(&path)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .context("cannot run sh")?;
        Ok(Self {
            path,
            owned: Some((dir, janitor)),
        })
    }

    /// The path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file that every user may read, whatever the umask is, and returns its path. The folder itself keeps others out.
    pub fn write_shared(&self, name: &str, content: impl AsRef<[u8]>) -> Result<PathBuf> {
        let path = self.write(name, content)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644))?;
        Ok(path)
    }

    /// Writes a file into it and returns its path.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> Result<PathBuf> {
        let path = self.path.join(name);
        fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }
}

impl Drop for Workdir {
    fn drop(&mut self) {
        if let Some((_dir, mut janitor)) = self.owned.take() {
            if let Some(mut stdin) = janitor.stdin.take() {
                let _ = stdin.write_all(b"\n");
            }
            let _ = janitor.wait();
        }
    }
}
