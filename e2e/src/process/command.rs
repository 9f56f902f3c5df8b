//! Runs commands to their end, and finds the project's own programs.

use std::{
    env,
    os::unix::process::ExitStatusExt,
    path::PathBuf,
    process::{Command, Output, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, anyhow, bail, ensure};
use tokio::{io::AsyncWriteExt, time::timeout};

use crate::manifests;

/// Runs a command to its end and returns its output. A command that takes longer than `limit` is killed, and that is an error.
pub async fn run(command: Command, limit: Duration) -> Result<Output> {
    run_with_input(command, Vec::new(), limit).await
}

/// Like [`run`], with `input` as its standard input.
pub async fn run_with_input(command: Command, input: Vec<u8>, limit: Duration) -> Result<Output> {
    let program = command.get_program().to_string_lossy().into_owned();
    let mut command = tokio::process::Command::from(command);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("cannot run {program}"))?;
    let stdin = child.stdin.take();
    let feed = async move {
        if let Some(mut stdin) = stdin {
            // A program that does not read its input is no error.
            let _ = stdin.write_all(&input).await;
        }
    };
    let both = async { tokio::join!(child.wait_with_output(), feed).0 };
    let output = timeout(limit, both)
        .await
        .map_err(|_| anyhow!("{program} has not ended after {limit:?}"))??;
    Ok(output)
}

/// Returns the standard output of a command that succeeded, else an error with its standard error.
pub fn stdout(output: &Output) -> Result<String> {
    if !output.status.success() {
        let how = match output.status.code() {
            Some(code) => format!("exit code {code}"),
            None => format!("signal {:?}", output.status.signal()),
        };
        bail!("{how}: {}", String::from_utf8_lossy(&output.stderr).trim_end());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns the path of one of the project's programs: beside the running executable, or in the folder above its `deps`.
pub fn cargo_bin_path(name: &str) -> Result<PathBuf> {
    let executable = env::current_exe().context("cannot tell the path of the running executable")?;
    executable
        .ancestors()
        .skip(1)
        .take(2)
        .map(|dir| dir.join(name))
        .find(|path| path.is_file())
        .with_context(|| {
            format!(
                "{name} is not built beside {}: run `cargo build --workspace --bins`",
                executable.display()
            )
        })
}

/// A build of the project's programs, with the manifests that install it. The default is the build of the running executable
/// and the folder `deploy`; suite `upgrade` also uses those of an earlier version.
#[derive(Clone, Debug, Default)]
pub struct Programs {
    /// The folder with the programs; `None` for that of the running executable.
    folder: Option<PathBuf>,
    /// The folder with the manifests; `None` for `deploy` of this project.
    deploy: Option<PathBuf>,
}

impl Programs {
    /// The programs in a folder, such as `target/release`.
    pub fn in_folder(folder: PathBuf) -> Self {
        Self {
            folder: Some(folder),
            deploy: None,
        }
    }

    /// Makes the programs use the manifests of another folder `deploy`.
    #[must_use]
    pub fn with_manifests(mut self, deploy: PathBuf) -> Self {
        self.deploy = Some(deploy);
        self
    }

    /// The manifests in the subfolder `name` of `deploy`, as one stream of YAML.
    pub fn manifests(&self, name: &str) -> Result<String> {
        match &self.deploy {
            Some(deploy) => manifests::stream(&deploy.join(name)),
            None => manifests::folder(name),
        }
    }

    /// The content of the file `name` in `deploy`.
    pub fn manifest(&self, name: &str) -> Result<String> {
        let deploy = self.deploy.clone().unwrap_or_else(manifests::deploy);
        let path = deploy.join(name);
        std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    }

    /// Returns the path of a program.
    pub fn path(&self, name: &str) -> Result<PathBuf> {
        let Some(folder) = &self.folder else {
            return cargo_bin_path(name);
        };
        let path = folder.join(name);
        ensure!(path.is_file(), "{} is not built", path.display());
        Ok(path)
    }

    /// Returns the command for a program.
    pub fn command(&self, name: &str) -> Result<Command> {
        Ok(Command::new(self.path(name)?))
    }
}
