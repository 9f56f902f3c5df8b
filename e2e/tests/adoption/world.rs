//! What the tests share: a provider for each informer scope, and two consumers. One adopts everything and serves many tests
//! at a time. The konnector of the other is stopped, killed and started with other settings, by one test at a time.

use std::path::PathBuf;

use anyhow::{Context as _, Result, anyhow, ensure};
use bindery_api::{adoption::Adoption, v1alpha2::InformerScope};
use bindery_e2e::{
    Consumer, ControlPlane, Gate, Process, Provider, bound::free_lease, lease, manifests, wildwest::SOON,
};
use serde_json::json;
use tokio::sync::{Mutex, MutexGuard, OnceCell};

use crate::{cells, cells::Cell, side::Side};

/// Why it could not be started is told by every test: it is not tried again.
static WORLD: OnceCell<Result<World, String>> = OnceCell::const_new();
/// Whose the contracts are.
const TEAM: &str = "team";
pub(crate) const OWNER: &str = "system:serviceaccount:team:binder";

/// It lives as long as the process, whose end ends it.
pub(crate) struct World {
    /// Consumers watch namespace by namespace.
    scoped: Provider,
    /// Consumers watch cluster-wide.
    wide: Provider,
    /// Adopts all.
    pub(crate) open: Consumer,
    changing: Mutex<Consumer>,
    /// Between the konnector of the other and its API server.
    gate: Gate,
}

/// A consumer whose konnector comes and goes. Others wait until it is dropped.
pub(crate) struct Changing {
    pub(crate) consumer: MutexGuard<'static, Consumer>,
    pub(crate) gate: &'static Gate,
}

/// The world, started by whoever asks first.
pub(crate) async fn get() -> Result<&'static World> {
    let started = WORLD.get_or_init(async || Box::pin(World::start()).await.map_err(|error| format!("{error:#}")));
    started.await.as_ref().map_err(anyhow::Error::msg)
}

async fn provider(name: &str, informers: InformerScope) -> Result<Provider> {
    let plane = ControlPlane::start_audited(name).await?;
    let scope = ["--consumer-scope", informers.as_str()];
    let provider = Provider::start_on(plane, &[&lease::PATIENT[..], &scope].concat()).await?;
    let offered = cells::all().filter(|cell| cell.informers == informers);
    let items: Vec<_> = offered.flat_map(Cell::offer).collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    provider.plane.apply(&list.to_string()).await?;
    let templates: Vec<_> = cells::all().map(|cell| cell.name).collect();
    provider.principal(TEAM, &templates).await?;
    Ok(provider)
}

async fn consumer(name: &str, flags: &[&str]) -> Result<Consumer> {
    let plane = ControlPlane::start_audited(name).await?;
    Consumer::start_on(plane, &[&lease::PATIENT[..], flags].concat()).await
}

fn tail<'p>(processes: impl IntoIterator<Item = &'p Process>) -> String {
    let tails = processes
        .into_iter()
        .map(|process| format!("{}:\n{}", process.name(), process.tail()));
    tails.collect::<Vec<_>>().join("\n")
}

// === impl World ===

impl World {
    async fn start() -> Result<Self> {
        let (scoped, wide, open, mut changing) = tokio::try_join!(
            provider("adopt-p", InformerScope::Namespaced),
            provider("adopt-q", InformerScope::Cluster),
            consumer("adopt-a", &["--adoption=all"]),
            consumer("adopt-k", &[]),
        )?;
        open.plane.apply(&namespaces_right()?).await?;
        let gate = Gate::start(&changing.plane).await?;
        changing.reach_through(gate.url())?;
        Ok(Self {
            scoped,
            wide,
            open,
            changing: Mutex::new(changing),
            gate,
        })
    }

    /// The provider of a cell.
    pub(crate) fn provider(&self, cell: &Cell) -> &Provider {
        match cell.informers {
            InformerScope::Namespaced => &self.scoped,
            InformerScope::Cluster => &self.wide,
        }
    }

    /// File with the token of the owner of the contracts.
    pub(crate) fn token(&self, cell: &Cell) -> PathBuf {
        let workdir = self.provider(cell).plane.workdir();
        workdir.path().join(format!("{TEAM}.token"))
    }

    /// The consumer that adopts all, with its contract for a cell.
    pub(crate) fn side(&'static self, cell: &'static Cell) -> Result<Side> {
        Side::new(self, &self.open, cell, &format!("{}-of-open", cell.name))
    }

    /// The consumer of one test, with a konnector of this setting.
    pub(crate) async fn changing(&'static self, adoption: Adoption) -> Result<Changing> {
        let consumer = self.changing.lock().await;
        self.gate.open();
        let mut changing = Changing {
            consumer,
            gate: &self.gate,
        };
        changing.restart(adoption).await?;
        Ok(changing)
    }

    /// An error with what the servers and the konnector of the first consumer said last.
    pub(crate) fn tails(&self, error: &anyhow::Error) -> anyhow::Error {
        let servers = self.scoped.servers.iter().chain(&self.wide.servers);
        anyhow!("{error:#}\n\n{}", tail(servers.chain(&self.open.konnectors)))
    }
}

// === impl Changing ===

impl Changing {
    /// Its contract for a cell.
    pub(crate) fn side(&self, world: &'static World, cell: &'static Cell) -> Result<Side> {
        Side::new(world, &self.consumer, cell, &format!("{}-of-changing", cell.name))
    }

    /// Ends the konnector, if one runs, as whoever deploys another one does.
    pub(crate) async fn stop(&mut self) -> Result<()> {
        for mut konnector in self.consumer.konnectors.drain(..) {
            if konnector.is_running() {
                konnector.terminate(SOON).await?;
            }
            konnector.hush();
        }
        // Of one that was killed by a test that failed.
        free_lease(self.consumer.plane.client(), "kube-bind").await
    }

    /// Starts one with this setting.
    pub(crate) async fn start(&mut self, adoption: Adoption) -> Result<()> {
        self.consumer.set_flag("--adoption", adoption.as_str());
        self.consumer.start_konnector().await
    }

    /// One after the other.
    pub(crate) async fn restart(&mut self, adoption: Adoption) -> Result<()> {
        self.stop().await?;
        self.start(adoption).await
    }

    /// Kills the konnector.
    pub(crate) async fn kill(&mut self) -> Result<()> {
        let konnector = self.consumer.konnectors.last_mut().context("none was started")?;
        ensure!(konnector.is_running(), "it ended by itself");
        konnector.kill9()?;
        self.stop().await
    }

    /// An error with what its konnector said last.
    pub(crate) fn tails(&self, error: &anyhow::Error) -> anyhow::Error {
        anyhow!("{error:#}\n\n{}", tail(&self.consumer.konnectors))
    }
}

/// The right to make namespaces, as an admin gives it who wants adoption to make them.
pub(crate) fn namespaces_right() -> Result<String> {
    manifests::file("konnector/optional/adoption.yaml")
}
