//! A provider with its server, and a consumer on which nothing is installed.

use std::collections::BTreeMap;

use anyhow::{Result, anyhow};
use bindery_e2e::{ControlPlane, Process, Provider, guide::Reader, lease};

pub(crate) struct World {
    pub(crate) provider: Provider,
    pub(crate) consumer: ControlPlane,
}

impl World {
    pub(crate) async fn start(name: &str) -> Result<Self> {
        let (provider, consumer) = (format!("{name}-p"), format!("{name}-c"));
        let (provider, consumer) = tokio::try_join!(
            Provider::start_with(&provider, &lease::PATIENT),
            ControlPlane::start(&consumer)
        )?;
        Ok(Self { provider, consumer })
    }

    /// Does what a page says, with what it says is given.
    pub(crate) async fn follow(&mut self, page: &str, given: BTreeMap<&'static str, String>) -> Result<()> {
        let reader = Reader {
            provider: &self.provider.plane,
            consumer: &self.consumer,
            node: Some(self.provider.reachable()),
            given,
        };
        let outcome = reader.follow(page).await;
        self.provider.servers.iter_mut().for_each(Process::hush);
        let tails = || self.provider.servers.iter().map(Process::tail).collect::<Vec<_>>();
        outcome.map_err(|error| anyhow!("{error:#}\n--- the server's log ends:\n{}", tails().join("\n")))
    }
}
