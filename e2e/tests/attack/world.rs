//! Two providers, one for each informer scope, each with a tenant that attacks and one that is attacked.

use anyhow::{Result, anyhow};
use bindery_e2e::{Provider, lease, run};
use tokio::sync::OnceCell;

use crate::{
    offers::{self, COMMON, MASKS, Offer},
    tenant::Tenant,
};

/// The informer scope of a provider's exports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    Namespaced,
    Cluster,
}

/// A provider with its two tenants. It lives as long as the process, whose end ends it.
pub(crate) struct World {
    pub(crate) scope: Scope,
    pub(crate) provider: Provider,
    /// Who attacks.
    pub(crate) joe: Tenant,
    /// Who is attacked.
    pub(crate) zorro: Tenant,
}

/// Runs a test in a world; if it fails, with what the server said last.
pub(crate) fn attack(scope: Scope, body: impl AsyncFnOnce(&'static World) -> Result<()>) -> Result<()> {
    /// Why it could not be started is told by every test: it is not tried again.
    static WORLDS: [OnceCell<Result<World, String>>; 2] = [OnceCell::const_new(), OnceCell::const_new()];
    run(async {
        let world = &WORLDS[usize::from(scope == Scope::Cluster)];
        let started = world.get_or_init(async || {
            Box::pin(World::start(scope))
                .await
                .map_err(|error| format!("{error:#}"))
        });
        let world = started.await.as_ref().map_err(anyhow::Error::msg)?;
        body(world).await.map_err(|error| {
            let tails: Vec<_> = world.provider.servers.iter().map(bindery_e2e::Process::tail).collect();
            anyhow!(
                "informer scope {scope:?}: {error:#}\n\nthe server:\n{}",
                tails.join("\n")
            )
        })
    })
}

// === impl World ===

impl World {
    async fn start(scope: Scope) -> Result<Self> {
        let (name, more): (_, &[&str]) = match scope {
            Scope::Namespaced => ("attack-n", &[]),
            Scope::Cluster => ("attack-c", &["--consumer-scope", "cluster"]),
        };
        let provider = Provider::start_with(name, &[&lease::PATIENT, more].concat()).await?;
        let all: Vec<Offer> = COMMON.into_iter().chain([MASKS]).collect();
        offers::publish(&provider, &all).await?;
        let (joe, zorro) = tokio::try_join!(
            Tenant::settle(&provider, "joe", &COMMON),
            Tenant::settle(&provider, "zorro", &all)
        )?;
        Ok(Self {
            scope,
            provider,
            joe,
            zorro,
        })
    }
}
