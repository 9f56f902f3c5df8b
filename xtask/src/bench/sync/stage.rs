//! Two control planes with APIs bound between them, on which contestants take their turns.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use bindery_api::{labels, names};
use bindery_e2e::{Consumer, ControlPlane, NAMESPACE, Process, Provider, eventually, http, lease, process::Programs};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, ResourceExt as _, api::ListParams};
use serde_json::{Value, json};

use super::{
    Bench,
    api::BenchApi,
    contestant::Contestant,
    load::{Cluster, Load},
    metrics::Metrics,
    order::{Order, Phase},
};
use crate::bench::{program::Program, quiet::quiet};

/// How long something that is no measurement may take.
const LIMIT: Duration = Duration::from_mins(5);

/// Longer than any phase.
pub(super) const FOREVER: Duration = Duration::from_hours(24);

/// How often it is asked whether all is in sync.
const POLL: Duration = Duration::from_millis(10);

/// The objects that show that a contestant works.
const PROBE: &str = "probe";

/// What a measure needs.
#[derive(Clone, Debug)]
pub(super) struct Scene {
    pub(super) name: &'static str,
    /// The first of [`BenchApi::ALL`], each bound by itself.
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

/// A provider, a consumer with the APIs bound, and a driver that follows both.
pub(super) struct Stage {
    pub(super) provider: Provider,
    pub(super) consumer: Consumer,
    pub(super) contract: String,
    pub(super) load: Load,
    programs: Programs,
    scene: Scene,
    size: usize,
    floor_concurrency: u16,
    working: Option<Working>,
}

/// Who works.
#[derive(Debug)]
enum Working {
    Konnector,
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

    /// A provider that offers the APIs.
    pub(super) async fn provider(&self, programs: &Programs) -> Result<Provider> {
        let plane = ControlPlane::start_audited(&format!("{}-provider", self.name)).await?;
        let flags = flags(&self.server);
        let provider = Provider::start_from(programs.clone(), plane, &flags).await?;
        for api in self.apis() {
            api.publish(&provider).await?;
        }
        Ok(provider)
    }

    /// A consumer with a konnector.
    pub(super) async fn consumer(&self, programs: &Programs, name: &str) -> Result<Consumer> {
        let plane = if self.controllers {
            ControlPlane::start_audited(name).await?
        } else {
            ControlPlane::start_bare(name).await?
        };
        Consumer::start_from(programs.clone(), plane, &flags(&self.konnector)).await
    }

    /// Binds the APIs, each by itself. `owner` is to be a name of the consumer's own.
    pub(super) async fn bind(&self, provider: &Provider, consumer: &Consumer, owner: &str) -> Result<()> {
        let names: Vec<_> = self.apis().iter().map(|api| api.name()).collect();
        let token = provider.principal(owner, &names).await?;
        for name in names {
            consumer.bind(provider, &token, &[name]).await?;
        }
        Ok(())
    }
}

/// No Lease is to be lost on a busy machine.
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
            working: Some(Working::Konnector),
        };
        // Maps all namespaces, which stay mapped.
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

    /// Has this contestant work, and waits until it does.
    pub(super) async fn enter(&mut self, contestant: Contestant) -> Result<()> {
        if self.who() == Some(contestant) {
            return Ok(());
        }
        self.stop().await?;
        let folder = self.consumer.plane.workdir().path().to_owned();
        self.working = Some(match contestant {
            Contestant::Konnector => {
                self.consumer.start_konnector().await?;
                Working::Konnector
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

    /// Has whoever works end.
    pub(super) async fn stop(&mut self) -> Result<()> {
        match self.working.take() {
            Some(Working::Konnector) => self.consumer.stop_konnectors().await,
            Some(Working::Beside(contestant, program)) => {
                let totals: Value = program.end().await?;
                ensure!(totals["errors"] == 0, "{}: {totals}", contestant.name());
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Who works.
    pub(super) fn who(&self) -> Option<Contestant> {
        self.working.as_ref().map(|working| match working {
            Working::Konnector => Contestant::Konnector,
            Working::Beside(contestant, _) => *contestant,
        })
    }

    /// Process id of whoever works.
    pub(super) fn pid(&self) -> Result<u32> {
        match self.working.as_ref().context("nobody works")? {
            Working::Konnector => Ok(self.consumer.konnectors.last().context("no konnector")?.id()),
            Working::Beside(_, program) => program.id(),
        }
    }

    /// The metrics of the konnector.
    pub(super) async fn metrics(&self) -> Result<Metrics> {
        metrics(self.consumer.admin_port()).await
    }

    /// How many watches of bound objects a konnector has, where the scope is the namespace.
    pub(super) fn watches(&self) -> usize {
        self.scene.apis().len() * (1 + self.scene.namespaces as usize)
    }

    /// Waits until the konnector says that everything is in sync; answers how long that took.
    pub(super) async fn synced(&self, limit: Duration) -> Result<Duration> {
        let start = Instant::now();
        while start.elapsed() < limit {
            // It may not listen yet.
            let metrics = self.metrics().await.unwrap_or_default();
            let mut bindings = metrics.each("sync_synced").peekable();
            if bindings.peek().is_some() && bindings.all(|binding| binding.value > 0.0) {
                return Ok(start.elapsed());
            }
            tokio::time::sleep(POLL).await;
        }
        bail!("not in sync after {limit:?}")
    }

    /// Waits until nobody has much to do.
    pub(super) async fn quiet(&self) -> Result<()> {
        tokio::try_join!(quiet(&self.provider.plane), quiet(&self.consumer.plane)).map(drop)
    }

    /// How long a bare client takes to list both sides.
    pub(super) async fn list(&self) -> Result<f64> {
        let command = self.with_credentials("list").await?;
        let folder = self.consumer.plane.workdir().path();
        let said: Value = Program::once("list", command, folder).await?;
        said["seconds"].as_f64().with_context(|| format!("list says {said}"))
    }

    /// All went well: no logs are shown at the end.
    pub(super) fn hush(&mut self) {
        self.provider.servers.iter_mut().for_each(Process::hush);
        self.consumer.konnectors.iter_mut().for_each(Process::hush);
    }

    /// Makes objects in these namespaces and has them gone again.
    async fn probe(&mut self, namespaces: u32) -> Result<()> {
        for resource in 0..self.scene.apis().len() {
            for phase in [Phase::Create, Phase::Delete] {
                let order = self.order(phase, resource, namespaces);
                self.give(order).await.context("a probe")?;
            }
        }
        Ok(())
    }

    fn order(&self, phase: Phase, resource: usize, namespaces: u32) -> Order {
        Order {
            resource,
            prefix: PROBE.to_owned(),
            namespaces,
            ..Order::of(phase, namespaces, self.size)
        }
    }

    /// Gives an order to the driver, with whoever works told of it as it has to be.
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

    /// Bytes that whoever works has sent and received so far, if it counts them.
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

    /// A program of the bench with what the konnector is told and what it is given by the provider.
    async fn with_credentials(&self, subcommand: &str) -> Result<Command> {
        let contract = (&self.consumer, self.contract.as_str());
        stand_in(&self.programs, &self.scene, contract, subcommand).await
    }
}

/// The metrics of the konnector with this admin port.
pub(super) async fn metrics(port: u16) -> Result<Metrics> {
    let (_, text) = http::get(port, "/metrics").await?;
    Ok(Metrics::parse(&text, |_| true))
}

/// What a floor is told besides.
pub(super) fn floor_flags(socket: &Path, concurrency: u16) -> [OsString; 4] {
    let concurrency = concurrency.to_string().into();
    ["--socket".into(), socket.into(), "--concurrency".into(), concurrency]
}

/// A program of the bench with the credentials of a konnector, whose consumer this is.
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

/// A file with what the konnector uses for the provider: what it was given last.
async fn contract_kubeconfig(consumer: &Consumer) -> Result<PathBuf> {
    let api: Api<Secret> = Api::namespaced(consumer.plane.client(), NAMESPACE);
    let found = eventually("the kubeconfig of the contract", LIMIT, async || {
        let mut secrets = api.list(&ListParams::default()).await?.items;
        // A renewed one is marked.
        secrets.sort_by_key(|secret| !secret.labels().contains_key(labels::CONTRACT_UID));
        let kubeconfig = |secret: Secret| secret.data?.remove(names::KUBECONFIG_KEY);
        Ok(secrets.into_iter().find_map(kubeconfig))
    });
    let text = String::from_utf8(found.await?.0)?;
    consumer.plane.workdir().write("contract.kubeconfig", text)
}
