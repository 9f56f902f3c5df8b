//! A provider and a consumer with a binding, and the command.

use std::{collections::BTreeSet, process::Command, time::Duration};

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::{bound::Bound, eventually_ok, lease::PATIENT, process};
use serde_json::Value;

/// How long one command may take.
const LIMIT: Duration = Duration::from_mins(2);
/// How long a fault may take to show, and its mend to work: the server reads its certificate every ten seconds, and an API server
/// learns of policies within some.
pub(crate) const SOON: Duration = Duration::from_mins(3);

pub(crate) struct World {
    pub(crate) bound: Bound,
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    /// Fails unless the command ended with this code, and its output says all of that.
    pub(crate) fn expect(self, code: i32, says: &[&str]) -> Result<Self> {
        let all = format!("{}{}", self.stdout, self.stderr);
        ensure!(
            self.code == Some(code),
            "exit code {:?} instead of {code}:\n{all}",
            self.code
        );
        for part in says {
            ensure!(all.contains(part), "{part:?} is missing in:\n{all}");
        }
        Ok(self)
    }
}

impl World {
    pub(crate) async fn start(name: &str) -> Result<Self> {
        Ok(Self {
            bound: Bound::start(name, &PATIENT).await?,
        })
    }

    /// The command `kubectl-bind` with access to both clusters.
    pub(crate) fn check_command(&self) -> Result<Command> {
        let mut command = self.bound.consumer.bind_command()?;
        command.arg("check").arg("--provider-kubeconfig");
        command.arg(self.bound.provider.plane.kubeconfig_path());
        Ok(command)
    }

    /// Runs a command to its end.
    pub(crate) async fn run(&self, command: Command) -> Result<Ended> {
        let output = process::run(command, LIMIT).await?;
        Ok(Ended {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout)?,
            stderr: String::from_utf8(output.stderr)?,
        })
    }

    /// Runs `kubectl bind ARGS` with the kubeconfig of the consumer's admin.
    pub(crate) async fn bind(&self, args: &[&str]) -> Result<Ended> {
        let mut command = self.bound.consumer.bind_command()?;
        command.args(args);
        self.run(command).await
    }

    /// Waits until nothing is found, not even a warning.
    pub(crate) async fn all_is_well(&self) -> Result<()> {
        eventually_ok("all to be well", SOON, async || {
            let ended = self.run(self.check_command()?).await?.expect(0, &["\nAll is well ("])?;
            ensure!(ended.stdout.is_ascii(), "not plain ASCII:\n{}", ended.stdout);
            let says_failure = ["FAIL ", "WARN "].iter().any(|mark| ended.stdout.contains(mark));
            ensure!(!says_failure, "{}", ended.stdout);
            Ok(())
        })
        .await
    }

    /// Waits until these checks fail and no others, and what they print says all of that: what was seen, and the mend.
    pub(crate) async fn finds(&self, failed: &[&str], says: &[&str]) -> Result<()> {
        self.finds_by(|| self.check_command(), failed, says).await
    }

    /// As [`World::finds`], by a command of the caller's.
    pub(crate) async fn finds_by(
        &self,
        command: impl Fn() -> Result<Command>,
        failed: &[&str],
        says: &[&str],
    ) -> Result<()> {
        eventually_ok(format!("{failed:?} to fail"), SOON, async || {
            self.finds_now(command()?, failed, says).await
        })
        .await
    }

    /// As [`World::finds_by`], by one run of the command.
    pub(crate) async fn finds_now(&self, mut command: Command, failed: &[&str], says: &[&str]) -> Result<()> {
        let wanted: BTreeSet<_> = failed.iter().copied().collect();
        command.args(["-o", "json"]);
        let ended = self.run(command).await?.expect(1, &[])?;
        let result: Value = serde_json::from_str(&ended.stdout).with_context(|| ended.stdout.clone())?;
        let findings = result["findings"].as_array().context("findings")?;
        let bad: Vec<_> = findings
            .iter()
            .filter(|finding| finding["outcome"] == "Failed")
            .collect();
        let found: BTreeSet<_> = bad.iter().filter_map(|finding| finding["check"].as_str()).collect();
        ensure!(found == wanted, "failed: {found:?}:\n{}", ended.stdout);
        let without_mend = bad.iter().find(|finding| !finding["mend"].is_string());
        ensure!(without_mend.is_none(), "no mend: {without_mend:?}");
        let text: Vec<_> = bad
            .iter()
            .map(|finding| format!("{} {}", finding["message"], finding["mend"]))
            .collect();
        let text = text.join("\n");
        for part in says {
            ensure!(text.contains(part), "{part:?} is missing in:\n{text}");
        }
        Ok(())
    }
}
