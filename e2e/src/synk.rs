//! The `synk` command as its users run it.

use std::{path::PathBuf, process::Command, time::Duration};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::{Process, process};

/// How long a command may take.
const LIMIT: Duration = Duration::from_mins(6);

/// `synk` with the kubeconfig of somebody.
#[derive(Clone, Debug)]
pub struct Synk {
    kubeconfig: PathBuf,
}

/// How a command ended.
#[derive(Clone, Debug)]
pub struct Ran {
    /// What was run.
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
    /// With this kubeconfig.
    pub fn new(kubeconfig: impl Into<PathBuf>) -> Self {
        Self {
            kubeconfig: kubeconfig.into(),
        }
    }

    /// Runs it to its end, with `input` as its standard input.
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

    /// Starts it, to be killed or watched by the caller. It has no standard input: manifests are to be in a file.
    pub fn start(&self, args: &[&str]) -> Result<Process> {
        Process::spawn("synk", &self.command(args)?)
    }

    /// The command, not run yet.
    pub fn command(&self, args: &[&str]) -> Result<Command> {
        let mut command = Process::cargo_bin("synk")?;
        command.env("KUBECONFIG", &self.kubeconfig).args(args);
        Ok(command)
    }
}

// === impl Ran ===

impl Ran {
    /// Fails if it ended with another code, or does not say all of this on either output.
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

    /// Fails unless it ended with 0.
    pub fn done(self) -> Result<Self> {
        self.expect(0, &[])
    }

    /// Fails if either output holds any of this.
    pub fn without(self, texts: &[&str]) -> Result<Self> {
        let all = self.all();
        for text in texts {
            ensure!(!all.contains(text), "synk {}: {text:?} is in:\n{all}", self.args);
        }
        Ok(self)
    }

    /// The document on standard output, of `-o json`.
    pub fn json(&self) -> Result<Value> {
        serde_json::from_str(&self.stdout).with_context(|| format!("synk {}: no JSON:\n{}", self.args, self.all()))
    }

    /// Both outputs.
    pub fn all(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }
}
