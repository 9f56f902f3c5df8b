//! The program `bindery-bench strangers`, which attacks the port of the server.

use std::process::Command;

use anyhow::Result;
use bindery_e2e::{Provider, process::Programs};
use serde::Deserialize;

use crate::bench::program::Program;

/// The strangers at work. Dropping them ends the attack.
pub(super) struct Strangers(Program);

#[derive(Deserialize)]
struct Last {
    opened: usize,
}

// === impl Strangers ===

impl Strangers {
    /// Begins the attack, and waits until each connection was opened once. Strangers have machines of their own: here they get the processor
    /// time that the server, the agents and the control plane leave.
    pub(super) async fn start(programs: &Programs, provider: &Provider, addresses: u8) -> Result<Self> {
        let mut command = Command::new("nice");
        command.args(["-n", "19"]).arg(programs.path("bindery-bench")?);
        command.args(["strangers", "--server", &provider.address()]);
        command.args(["--addresses", &addresses.to_string()]);
        command.arg("--ca").arg(provider.ca_path());
        let folder = provider.plane.workdir().path();
        Ok(Self(Program::start("strangers", command, folder).await?))
    }

    /// Ends the attack, and returns how often a connection was opened.
    pub(super) async fn end(self) -> Result<usize> {
        Ok(self.0.end::<Last>().await?.opened)
    }
}
