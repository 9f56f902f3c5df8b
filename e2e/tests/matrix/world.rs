//! What the cells share: a provider for each informer scope, and two consumers.

use std::path::PathBuf;

use anyhow::{Result, anyhow};
use bindery_api::v1alpha2::InformerScope;
use bindery_e2e::{Consumer, ControlPlane, Provider, lease};
use serde_json::json;
use tokio::sync::OnceCell;

use crate::{
    cells::{ALL, Cell},
    offer,
};

/// Why it could not be started is told by every cell: it is not tried again.
static WORLD: OnceCell<Result<World, String>> = OnceCell::const_new();

/// It lives as long as the process, whose end ends it.
pub(crate) struct World {
    /// Consumers watch namespace by namespace.
    scoped: Provider,
    /// Consumers watch cluster-wide.
    wide: Provider,
    pub(crate) a: Consumer,
    pub(crate) b: Consumer,
}

/// The world, started by whoever asks first.
pub(crate) async fn get() -> Result<&'static World> {
    let started = WORLD.get_or_init(async || Box::pin(World::start()).await.map_err(|error| format!("{error:#}")));
    started.await.as_ref().map_err(anyhow::Error::msg)
}

/// A consumer whose API server keeps an audit log.
pub(crate) async fn consumer(name: &str) -> Result<Consumer> {
    let plane = ControlPlane::start_audited(name).await?;
    plane.apply(&offer::horses_crd().to_string()).await?;
    Consumer::start_on(plane, &lease::PATIENT).await
}

async fn provider(name: &str, informers: InformerScope) -> Result<Provider> {
    let plane = ControlPlane::start_audited(name).await?;
    let scope = [
        "--consumer-scope",
        informers.as_str(),
        "--claimable-resources",
        offer::ALLOWED,
    ];
    let provider = Provider::start_on(plane, &[&lease::PATIENT[..], &scope].concat()).await?;
    let cells = ALL.iter().filter(|cell| cell.informers == informers);
    let items: Vec<_> = cells
        .flat_map(|cell| cell.offer())
        .chain([offer::horses_crd()])
        .collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    provider.plane.apply(&list.to_string()).await?;
    for principal in ["team-a", "team-b", "team-c"] {
        let templates: Vec<_> = ALL.iter().map(|cell| cell.name).collect();
        provider.principal(principal, &templates).await?;
    }
    Ok(provider)
}

// === impl World ===

impl World {
    async fn start() -> Result<Self> {
        let (scoped, wide, a, b) = tokio::try_join!(
            provider("matrix-p", InformerScope::Namespaced),
            provider("matrix-q", InformerScope::Cluster),
            consumer("matrix-a"),
            consumer("matrix-b"),
        )?;
        Ok(Self { scoped, wide, a, b })
    }

    /// The provider of a cell.
    pub(crate) fn provider(&self, cell: &Cell) -> &Provider {
        match cell.informers {
            InformerScope::Namespaced => &self.scoped,
            InformerScope::Cluster => &self.wide,
        }
    }

    /// File with the token of the owner of a consumer's contracts.
    pub(crate) fn token(&self, cell: &Cell, who: &str) -> PathBuf {
        let workdir = self.provider(cell).plane.workdir();
        workdir.path().join(format!("team-{who}.token"))
    }

    /// What servers and konnectors said last.
    pub(crate) fn tails(&self, error: &anyhow::Error) -> anyhow::Error {
        let servers = self.scoped.servers.iter().chain(&self.wide.servers);
        let all = servers.chain(&self.a.konnectors).chain(&self.b.konnectors);
        let tails: Vec<_> = all
            .map(|process| format!("{}:\n{}", process.name(), process.tail()))
            .collect();
        anyhow!("{error:#}\n\n{}", tails.join("\n"))
    }
}
