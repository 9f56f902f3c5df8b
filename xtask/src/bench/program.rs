//! A child process that takes commands and gives answers, one JSON document a line.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout},
    time::timeout,
};

/// Time limit for a program to get ready, to answer, or to end.
const LIMIT: Duration = Duration::from_mins(2);

/// A running program. It ends when its standard input is closed, which also happens when its owner dies.
#[derive(Debug)]
pub(super) struct Program {
    name: String,
    child: Child,
    /// Standard input of the program; `None` once it is closed.
    stdin: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
    log: PathBuf,
}

impl Program {
    /// Starts a program, and waits until it is ready.
    pub(super) async fn start(name: &str, command: Command, folder: &Path) -> Result<Self> {
        let mut program = Self::spawn(name, command, folder)?;
        let ready: Value = program.hear(LIMIT).await?;
        ensure!(ready["ready"] == true, "{name} says {ready}");
        Ok(program)
    }

    /// Runs a program that gives one answer and ends.
    pub(super) async fn once<T: DeserializeOwned>(name: &str, command: Command, folder: &Path) -> Result<T> {
        let mut program = Self::spawn(name, command, folder)?;
        let said = program.hear(LIMIT).await?;
        program.wait().await?;
        Ok(said)
    }

    fn spawn(name: &str, command: Command, folder: &Path) -> Result<Self> {
        let log = folder.join(format!("{name}.log"));
        let mut command = tokio::process::Command::from(command);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(&log)?)
            // Ctrl-C is for the owner to act on.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        let stdout = child.stdout.take().context("a pipe")?;
        Ok(Self {
            name: name.to_owned(),
            stdin: child.stdin.take(),
            child,
            lines: BufReader::new(stdout).lines(),
            log,
        })
    }

    /// The process id.
    pub(super) fn id(&self) -> Result<u32> {
        self.child.id().with_context(|| format!("{} has ended", self.name))
    }

    /// Sends a command to the program, as JSON.
    pub(super) async fn tell(&mut self, what: &impl Serialize) -> Result<()> {
        self.say(&serde_json::to_string(what)?).await
    }

    /// Sends a line of text to the program.
    pub(super) async fn say(&mut self, line: &str) -> Result<()> {
        let stdin = self.stdin.as_mut().context("it was told to end")?;
        let told = stdin.write_all(format!("{line}\n").as_bytes()).await;
        told.with_context(|| format!("{} does not listen: {}", self.name, self.log()))
    }

    /// Waits for the next answer of the program.
    pub(super) async fn hear<T: DeserializeOwned>(&mut self, limit: Duration) -> Result<T> {
        let line = timeout(limit, self.lines.next_line()).await;
        let line = line.with_context(|| format!("{} says nothing for {limit:?}: {}", self.name, self.log()))??;
        let line = line.with_context(|| format!("{} has ended: {}", self.name, self.log()))?;
        serde_json::from_str(&line).with_context(|| format!("{} says {line}", self.name))
    }

    /// Ends the program, and returns its last answer.
    pub(super) async fn end<T: DeserializeOwned>(mut self) -> Result<T> {
        self.stdin.take();
        let last = self.hear(LIMIT).await?;
        self.wait().await?;
        Ok(last)
    }

    /// Fails when the program ends by itself, which it must not.
    pub(super) async fn ended(&mut self) -> Result<()> {
        let status = self.child.wait().await?;
        bail!("{} has ended ({status}): {}", self.name, self.log())
    }

    async fn wait(&mut self) -> Result<()> {
        self.stdin.take();
        let ended = timeout(LIMIT, self.child.wait()).await;
        let ended = ended.with_context(|| format!("{} does not end", self.name))??;
        ensure!(ended.success(), "{}: {ended}: {}", self.name, self.log());
        Ok(())
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[tokio::test]
    async fn it_answers_and_ends_when_there_is_no_more_to_tell() {
        let script = r#"echo '{"ready":true}'; while read -r line; do echo "$line"; done; echo '"bye"'"#;
        let folder = std::env::temp_dir();
        let name = format!("bindery-talk-{}", std::process::id());
        let mut program = Program::start(&name, shell(script), &folder).await.unwrap();
        program.tell(&[1, 2]).await.unwrap();
        assert_eq!(program.hear::<Vec<u8>>(LIMIT).await.unwrap(), [1, 2]);
        assert_eq!(program.end::<String>().await.unwrap(), "bye");
        let failed = Program::start(&name, shell("echo so what >&2; exit 3"), &folder).await;
        let failed = format!("{:#}", failed.unwrap_err());
        assert!(failed.contains("so what"), "{failed}");
        fs::remove_file(folder.join(format!("{name}.log"))).unwrap();
    }
}
