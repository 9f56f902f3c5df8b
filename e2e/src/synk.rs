//! Runs the command `synk` as its users do.

use std::{path::PathBuf, process::Command, time::Duration};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::{Process, process};

/// The longest time for a command.
const LIMIT: Duration = Duration::from_mins(6);

/// The command `synk` with a kubeconfig.
#[derive(Clone, Debug)]
pub struct Synk {
    kubeconfig: PathBuf,
}

/// The result of a command that has ended.
#[derive(Clone, Debug)]
pub struct Ran {
    /// The arguments of the command.
    pub args: String,
    /// The exit code.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

// === impl Synk ===

impl Synk {
    /// The command with this kubeconfig.
    pub fn new(kubeconfig: impl Into<PathBuf>) -> Self {
        Self {
            kubeconfig: kubeconfig.into(),
        }
    }

    /// Runs the command to its end, with `input` as its standard input.
    pub async fn run(&self, args: &[&str], input: &str) -> Result<Ran> {
        let output = process::run_with_input(self.command(args)?, input.as_bytes().to_vec(), LIMIT).await?;
        let args = args.join(" ");
        Ok(Ran {
            code: output
                .status
                .code()
                .with_context(|| format!("synk {args}: no exit code"))?,
            stdout: String::from_utf8(output.stdout)?,
            stderr: String::from_utf8(output.stderr)?,
            args,
        })
    }

    /// Starts the command, which the caller may kill or watch. It has no standard input: its manifests must be in a file.
    pub fn start(&self, args: &[&str]) -> Result<Process> {
        Process::spawn("synk", &self.command(args)?)
    }

    /// Returns the command without running it.
    pub fn command(&self, args: &[&str]) -> Result<Command> {
        let mut command = Process::cargo_bin("synk")?;
        command.env("KUBECONFIG", &self.kubeconfig).args(args);
        Ok(command)
    }
}

// === impl Ran ===

impl Ran {
    /// Fails if the command ended with another exit code, or if its output lacks any of `says`.
    pub fn expect(self, code: i32, says: &[&str]) -> Result<Self> {
        let all = self.all();
        let args = &self.args;
        ensure!(
            self.code == code,
            "synk {args}: exit code {} instead of {code}:\n{all}",
            self.code
        );
        for part in says {
            ensure!(all.contains(part), "synk {args}: {part:?} is missing in:\n{all}");
        }
        Ok(self)
    }

    /// Fails unless the command ended with exit code 0.
    pub fn done(self) -> Result<Self> {
        self.expect(0, &[])
    }

    /// Fails if the output contains any of `texts`.
    pub fn without(self, texts: &[&str]) -> Result<Self> {
        let all = self.all();
        for text in texts {
            ensure!(!all.contains(text), "synk {}: {text:?} is in:\n{all}", self.args);
        }
        Ok(self)
    }

    /// Parses standard output as JSON, for commands with `-o json`.
    pub fn json(&self) -> Result<Value> {
        serde_json::from_str(&self.stdout).with_context(|| format!("synk {}: no JSON:\n{}", self.args, self.all()))
    }

    /// Standard output and standard error, one after the other.
    pub fn all(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }
}
