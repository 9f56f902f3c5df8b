//! A provider and a consumer with APIs bound between them. The contestants (konnector, floor, relay) run on it one after the
//! other.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use bindery_api::{labels, names};
use bindery_e2e::{Consumer, ControlPlane, NAMESPACE, Process, Provider, eventually, lease, process::Programs};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, ResourceExt as _, api::ListParams};
use serde_json::{Value, json};

use super::{
    Bench,
    api::BenchApi,
    contestant::Contestant,
    load::{Cluster, Load},
    order::{Order, Phase},
};
use crate::bench::{metrics::Metrics, program::Program, quiet::quiet};

/// Timeout of steps that are not measured.
const LIMIT: Duration = Duration::from_mins(5);

/// A timeout that no phase reaches.
pub(super) const FOREVER: Duration = Duration::from_hours(24);

/// Pause between two reads of the metrics that say whether all is in sync.
const POLL: Duration = Duration::from_millis(10);

/// The konnector's flag by which it traces.
const TRACE_ENDPOINT: &str = "--trace-endpoint";

/// Prefix of the names of objects that are created to check that a contestant syncs.
const PROBE: &str = "probe";

/// The setup that a benchmark needs.
#[derive(Clone, Debug)]
pub(super) struct Scene {
    pub(super) name: &'static str,
    /// How many of [`BenchApi::ALL`] are bound, each by a binding of its own.
    pub(super) resources: usize,
    /// How many namespaces are mapped.
    pub(super) namespaces: u32,
    /// Flags of the konnector.
    pub(super) konnector: Vec<String>,
    /// Flags of the server.
    pub(super) server: Vec<String>,
    /// Whether the consumer has a controller manager.
    pub(super) controllers: bool,
}

/// A provider, a consumer with the APIs bound, and the driver (`bindery-bench load`), which changes objects and watches both
/// clusters.
pub(super) struct Stage {
    pub(super) provider: Provider,
    pub(super) consumer: Consumer,
    pub(super) contract: String,
    pub(super) load: Load,
    programs: Programs,
    scene: Scene,
    size: usize,
    floor_concurrency: u16,
    /// Where a traced konnector sends its traces.
    pub(super) collector: Option<String>,
    working: Option<Working>,
}

/// The contestant that runs.
#[derive(Debug)]
enum Working {
    /// The konnector, traced or not.
    Konnector(Contestant),
    /// A program that runs in place of the konnector.
    Beside(Contestant, Box<Program>),
}

// === impl Scene ===

impl Default for Scene {
    fn default() -> Self {
        Self {
            name: "sync",
            resources: 1,
            namespaces: 1,
            konnector: Vec::new(),
            server: Vec::new(),
            controllers: true,
        }
    }
}

impl Scene {
    pub(super) fn apis(&self) -> &'static [BenchApi] {
        &BenchApi::ALL[..self.resources.min(BenchApi::ALL.len())]
    }

    /// Starts a provider that exports the APIs.
    pub(super) async fn provider(&self, programs: &Programs) -> Result<Provider> {
        let plane = ControlPlane::start_audited(&format!("{}-provider", self.name)).await?;
        let flags = flags(&self.server);
        let provider = Provider::start_from(programs.clone(), plane, &flags).await?;
        for api in self.apis() {
            api.publish(&provider).await?;
        }
        Ok(provider)
    }

    /// Starts a consumer with a konnector.
    pub(super) async fn consumer(&self, programs: &Programs, name: &str) -> Result<Consumer> {
        let plane = if self.controllers {
            ControlPlane::start_audited(name).await?
        } else {
            ControlPlane::start_bare(name).await?
        };
        Consumer::start_from(programs.clone(), plane, &flags(&self.konnector)).await
    }

    /// Binds each API by a binding of its own. `owner` is the user who binds; consumers must not share one.
    pub(super) async fn bind(&self, provider: &Provider, consumer: &Consumer, owner: &str) -> Result<()> {
        let names: Vec<_> = self.apis().iter().map(|api| api.name()).collect();
        let token = provider.principal(owner, &names).await?;
        for name in names {
            consumer.bind(provider, &token, &[name]).await?;
        }
        Ok(())
    }
}

/// Adds flags by which no leader loses its Lease because the machine is busy.
fn flags(own: &[String]) -> Vec<&str> {
    lease::PATIENT
        .into_iter()
        .chain(own.iter().map(String::as_str))
        .collect()
}

// === impl Stage ===

impl Stage {
    pub(super) async fn prepare(bench: &Bench, scene: Scene) -> Result<Self> {
        let start = Instant::now();
        let programs = bench.programs.clone();
        let name = format!("{}-consumer", scene.name);
        let (provider, consumer) = tokio::try_join!(scene.provider(&programs), scene.consumer(&programs, &name))?;
        scene.bind(&provider, &consumer, "team").await?;
        let contract = Provider::contract(&consumer.identity().await?);
        let load = Self::driver(&programs, &scene, &provider, &consumer, &contract).await?;
        let mut stage = Self {
            provider,
            consumer,
            contract,
            load,
            programs,
            size: bench.args.size,
            floor_concurrency: bench.args.floor_concurrency,
            scene,
            collector: None,
            working: Some(Working::Konnector(Contestant::Konnector)),
        };
        // This maps all namespaces, and they stay mapped.
        stage.probe(stage.scene.namespaces).await?;
        eprintln!(
            "==> {}: bound after {:.0} s",
            stage.scene.name,
            start.elapsed().as_secs_f64()
        );
        Ok(stage)
    }

    async fn driver(
        programs: &Programs,
        scene: &Scene,
        provider: &Provider,
        consumer: &Consumer,
        contract: &str,
    ) -> Result<Load> {
        let clusters = [Cluster {
            kubeconfig: consumer.plane.kubeconfig_path().to_owned(),
            contract: contract.to_owned(),
        }];
        let sides = (provider.plane.kubeconfig_path(), &clusters[..]);
        Load::start(programs, sides, scene.apis(), consumer.plane.workdir().path()).await
    }

    /// Stops the running contestant and starts this one, and waits until it syncs. Does nothing if it runs already.
    pub(super) async fn enter(&mut self, contestant: Contestant) -> Result<()> {
        if self.who() == Some(contestant) {
            return Ok(());
        }
        self.stop().await?;
        let folder = self.consumer.plane.workdir().path().to_owned();
        self.working = Some(match contestant {
            Contestant::Konnector => {
                self.consumer.clear_flag(TRACE_ENDPOINT);
                self.consumer.start_konnector().await?;
                Working::Konnector(contestant)
            }
            Contestant::Traced => {
                let collector = self.collector.as_deref().context("no collector runs")?;
                self.consumer.set_flag(TRACE_ENDPOINT, collector);
                self.consumer.start_konnector().await?;
                Working::Konnector(contestant)
            }
            Contestant::Floor | Contestant::Relay => {
                let mut command = self.with_credentials(contestant.name()).await?;
                if contestant == Contestant::Floor {
                    command.args(floor_flags(&self.socket(), self.floor_concurrency));
                }
                let program = Program::start(contestant.name(), command, &folder).await?;
                Working::Beside(contestant, Box::new(program))
            }
        });
        self.probe(1).await
    }

    /// Stops the running contestant, if there is one. Fails if it counted errors.
    pub(super) async fn stop(&mut self) -> Result<()> {
        match self.working.take() {
            Some(Working::Konnector(_)) => self.consumer.stop_konnectors().await,
            Some(Working::Beside(contestant, program)) => {
                let totals: Value = program.end().await?;
                ensure!(totals["errors"] == 0, "{}: {totals}", contestant.name());
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// The contestant that runs; `None` if there is none.
    pub(super) fn who(&self) -> Option<Contestant> {
        self.working.as_ref().map(|working| match working {
            Working::Konnector(contestant) | Working::Beside(contestant, _) => *contestant,
        })
    }

    /// Process id of the running contestant.
    pub(super) fn pid(&self) -> Result<u32> {
        match self.working.as_ref().context("nobody works")? {
            Working::Konnector(_) => Ok(self.consumer.konnectors.last().context("no konnector")?.id()),
            Working::Beside(_, program) => program.id(),
        }
    }

    /// The metrics of the konnector.
    pub(super) async fn metrics(&self) -> Result<Metrics> {
        Metrics::of(self.consumer.admin_port()).await
    }

    /// How many watches of bound objects a konnector must have with informer scope Namespaced: for each API one on the
    /// consumer, and one for each mapped namespace on the provider.
    pub(super) fn watches(&self) -> usize {
        self.scene.apis().len() * (1 + self.scene.namespaces as usize)
    }

    /// Waits until the konnector reports that all bindings are in sync. Returns how long that took.
    pub(super) async fn synced(&self, limit: Duration) -> Result<Duration> {
        let start = Instant::now();
        while start.elapsed() < limit {
            // The konnector may not serve metrics yet.
            let metrics = self.metrics().await.unwrap_or_default();
            let mut bindings = metrics.each("sync_synced").peekable();
            if bindings.peek().is_some() && bindings.all(|binding| binding.value > 0.0) {
                return Ok(start.elapsed());
            }
            tokio::time::sleep(POLL).await;
        }
        bail!("not in sync after {limit:?}")
    }

    /// Waits until both control planes use little processor time.
    pub(super) async fn quiet(&self) -> Result<()> {
        tokio::try_join!(quiet(&self.provider.plane), quiet(&self.consumer.plane)).map(drop)
    }

    /// Measures how many seconds a bare client takes to list all objects of both clusters.
    pub(super) async fn list(&self) -> Result<f64> {
        let command = self.with_credentials("list").await?;
        let folder = self.consumer.plane.workdir().path();
        let said: Value = Program::once("list", command, folder).await?;
        said["seconds"].as_f64().with_context(|| format!("list says {said}"))
    }

    /// Shows no logs at the end, since all went well.
    pub(super) fn hush(&mut self) {
        self.provider.servers.iter_mut().for_each(Process::hush);
        self.consumer.konnectors.iter_mut().for_each(Process::hush);
    }

    /// Creates an object in each of so many namespaces and deletes it again, for each API; fails if they are not synced.
    async fn probe(&mut self, namespaces: u32) -> Result<()> {
        for resource in 0..self.scene.apis().len() {
            for phase in [Phase::Create, Phase::Delete] {
                let order = self.order(phase, resource, namespaces);
                self.give(order).await.context("a probe")?;
            }
        }
        Ok(())
    }

    /// An order about the objects of a probe.
    fn order(&self, phase: Phase, resource: usize, namespaces: u32) -> Order {
        Order {
            resource,
            prefix: PROBE.to_owned(),
            namespaces,
            ..Order::of(phase, namespaces, self.size)
        }
    }

    /// Gives an order to the driver and waits for the answer; fails if the running contestant ends meanwhile. A relay is
    /// told the kind of the changes first, and a floor gets each change on its socket.
    pub(super) async fn give(&mut self, mut order: Order) -> Result<super::order::Answer> {
        match &mut self.working {
            Some(Working::Beside(Contestant::Floor, _)) => order.acks = Some(vec![self.socket()]),
            Some(Working::Beside(Contestant::Relay, program)) => {
                program.tell(&json!({"op": order.phase.kind()})).await?;
                let said: Value = program.hear(LIMIT).await?;
                ensure!(said["following"] == true, "relay says {said}");
            }
            _ => {}
        }
        if let Some(Working::Beside(_, program)) = &mut self.working {
            return tokio::select! {
                answer = self.load.order(&order) => answer,
                ended = program.ended() => Err(ended.err().context("it has ended")?),
            };
        }
        let konnector = self.consumer.konnectors.last_mut().context("no konnector")?;
        tokio::select! {
            answer = self.load.order(&order) => answer,
            ended = konnector.wait(FOREVER) => bail!("the konnector has ended ({}):\n{}", ended?, konnector.tail()),
        }
    }

    /// Number of bytes that the running contestant has sent and received so far; `None` if it does not count them.
    pub(super) async fn bytes(&mut self) -> Result<Option<u64>> {
        if let Some(Working::Beside(_, program)) = &mut self.working {
            program.say("report").await?;
            let totals: Value = program.hear(LIMIT).await?;
            return Ok(totals["wire_bytes"].as_u64());
        }
        let metrics = self.metrics().await?;
        let is_counted = metrics.each("kubernetes_bytes_total").next().is_some();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a counter")]
        let bytes = metrics.sum("kubernetes_bytes_total", &[]) as u64;
        Ok(is_counted.then_some(bytes))
    }

    fn socket(&self) -> PathBuf {
        self.consumer.plane.workdir().path().join("floor.sock")
    }

    /// The command for a subcommand of `bindery-bench`, with the konnector's credentials for both clusters.
    async fn with_credentials(&self, subcommand: &str) -> Result<Command> {
        let contract = (&self.consumer, self.contract.as_str());
        stand_in(&self.programs, &self.scene, contract, subcommand).await
    }
}

/// The flags that only a floor has.
pub(super) fn floor_flags(socket: &Path, concurrency: u16) -> [OsString; 4] {
    let concurrency = concurrency.to_string().into();
    ["--socket".into(), socket.into(), "--concurrency".into(), concurrency]
}

/// The command for a subcommand of `bindery-bench`, with the credentials that the konnector of this consumer has for both
/// clusters.
pub(super) async fn stand_in(
    programs: &Programs,
    scene: &Scene,
    (consumer, contract): (&Consumer, &str),
    subcommand: &str,
) -> Result<Command> {
    let mut command = programs.command("bindery-bench")?;
    command.arg(subcommand);
    command.arg("--consumer").arg(consumer.konnector_kubeconfig());
    command.arg("--provider").arg(contract_kubeconfig(consumer).await?);
    command.args(["--contract", contract]);
    command.args(scene.apis().iter().flat_map(|api| api.flags()));
    if scene.server.iter().any(|flag| flag == CLUSTER_SCOPE) {
        command.arg("--cluster");
    }
    Ok(command)
}

/// The flag of a server that lets consumers watch the whole cluster.
pub(super) const CLUSTER_SCOPE: &str = "--consumer-scope=cluster";

/// Writes the konnector's newest kubeconfig for the provider to a file.
async fn contract_kubeconfig(consumer: &Consumer) -> Result<PathBuf> {
    let api: Api<Secret> = Api::namespaced(consumer.plane.client(), NAMESPACE);
    let found = eventually("the kubeconfig of the contract", LIMIT, async || {
        let mut secrets = api.list(&ListParams::default()).await?.items;
        // A kubeconfig that the konnector renewed has this label, and comes first.
        secrets.sort_by_key(|secret| !secret.labels().contains_key(labels::CONTRACT_UID));
        let kubeconfig = |secret: Secret| secret.data?.remove(names::KUBECONFIG_KEY);
        Ok(secrets.into_iter().find_map(kubeconfig))
    });
    let text = String::from_utf8(found.await?.0)?;
    consumer.plane.workdir().write("contract.kubeconfig", text)
}
