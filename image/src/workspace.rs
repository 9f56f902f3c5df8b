//! What cargo and git know of the sources that images are built from.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, bail, ensure};
use cargo_metadata::{Metadata, MetadataCommand};
use jiff::Timestamp;

use crate::{Platform, Profile};

/// This variable replaces the time of the commit, in seconds since 1970: the convention of reproducible builds.
const SOURCE_DATE_EPOCH: &str = "SOURCE_DATE_EPOCH";

/// Stands behind the commit if files differ from it.
const DIRTY: &str = "-dirty";

/// The sources: this workspace at its commit.
#[derive(Debug)]
pub struct Workspace {
    /// The packages of the workspace and of its dependencies, for its platform.
    pub(crate) metadata: Metadata,
    /// What images are built for.
    pub(crate) platform: &'static Platform,
    /// The commit, with `-dirty` behind it if files differ from it.
    pub(crate) revision: String,
    /// The time that everything in an image has.
    pub(crate) time: Timestamp,
}

impl Workspace {
    /// Reads the workspace of this crate, with `cargo metadata` and git.
    pub fn read() -> Result<Self> {
        let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = crate_folder.parent().unwrap_or(crate_folder);
        let platform = Platform::host()?;
        let metadata = MetadataCommand::new()
            .manifest_path(root.join("Cargo.toml"))
            .other_options(["--locked", "--filter-platform", platform.target].map(str::to_owned))
            .exec()
            .context("cannot read the packages of the workspace")?;
        let seconds = match env::var(SOURCE_DATE_EPOCH) {
            Ok(seconds) => seconds,
            Err(_) => git(root, &["log", "-1", "--format=%ct"])?,
        };
        Ok(Self {
            metadata,
            platform,
            revision: revision(root)?,
            time: time(&seconds)?,
        })
    }

    /// The time that everything in an image has, in seconds since 1970.
    pub fn seconds(&self) -> Result<u64> {
        let seconds = self.time.as_second().try_into();
        seconds.context("the sources are older than 1970")
    }

    /// Whether the sources are those of their commit.
    pub fn is_clean(&self) -> bool {
        !self.revision.ends_with(DIRTY)
    }

    /// The folder of the sources.
    pub fn root(&self) -> &Path {
        self.metadata.workspace_root.as_std_path()
    }

    /// The folder that cargo builds into.
    pub fn target(&self) -> PathBuf {
        self.metadata.target_directory.clone().into_std_path_buf()
    }

    /// The folder that images of a profile are built into, unless another one is named.
    pub fn images(&self, profile: Profile) -> PathBuf {
        self.target().join("images").join(profile.name())
    }
}

fn revision(root: &Path) -> Result<String> {
    let commit = git(root, &["rev-parse", "HEAD"])?;
    // A file that git does not know yet may be part of a program or of a chart.
    let changes = git(root, &["status", "--porcelain", "--untracked-files=normal"])?;
    let suffix = if changes.is_empty() { "" } else { DIRTY };
    Ok(format!("{commit}{suffix}"))
}

fn time(seconds: &str) -> Result<Timestamp> {
    let time = seconds.parse().ok().and_then(|it| Timestamp::from_second(it).ok());
    time.with_context(|| format!("{SOURCE_DATE_EPOCH} is {seconds:?}; it must be a number of seconds since 1970"))
}

fn git(root: &Path, args: &[&str]) -> Result<String> {
    let output = Command::new("git").arg("-C").arg(root).args(args).output();
    let output = output.context("cannot run git, which tells the commit that images are built from")?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "git {} failed: {}",
        args.join(" "),
        stderr.trim_end()
    );
    Ok(String::from_utf8(output.stdout)?.trim_end().to_owned())
}

/// The cargo that runs this program.
pub(crate) fn cargo() -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.stdin(Stdio::null());
    cargo
}

/// Reads a file. The error names it.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Runs a command and returns its standard output. The error shows its standard error.
pub(crate) fn output(command: &mut Command) -> Result<Vec<u8>> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot run {name}"))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!("{name} failed with {}: {}", output.status, stderr.trim_end());
    }
    Ok(output.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_number_of_seconds() {
        assert_eq!(time("86400").unwrap().to_string(), "1970-01-02T00:00:00Z");
        for wrong in ["", "now", "1e9", "99999999999999"] {
            let error = time(wrong).unwrap_err().to_string();
            assert!(
                error.contains(&format!("{wrong:?}")) && error.contains("seconds"),
                "{error}"
            );
        }
    }
}
