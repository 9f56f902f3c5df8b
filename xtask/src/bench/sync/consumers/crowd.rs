//! Many consumers of one provider, each with a konnector or a floor.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
use bindery_e2e::{Asked, Audit, Consumer, ControlPlane, Moment, Process, Provider, process::Programs};
use futures::{
    StreamExt as _, TryStreamExt as _,
    future::{select_all, try_join_all},
    stream,
};
use serde_json::Value;
use tokio::time::sleep;

use super::{
    super::{
        Bench,
        api::BenchApi,
        contestant::Contestant,
        load::{Cluster, Load},
        order::{Answer, Order, Phase},
        stage::{Scene, floor_flags, stand_in},
    },
    row::Row,
};
use crate::bench::{proc, program::Program, quiet::quiet};

/// Clusters that start at once.
const STARTING: usize = 2;

/// How often it is asked whether a konnector has ended: many of them are not to be asked all the time.
const LOOK: Duration = Duration::from_secs(1);

/// The objects that show that all work.
const PROBE: &str = "probe";

/// A provider with its consumers. What works for them ends before they do.
pub(super) struct Crowd {
    load: Load,
    members: Vec<Member>,
    provider: Provider,
    programs: Programs,
    scene: Scene,
    size: usize,
    /// Of each floor.
    floor_concurrency: u16,
    by: Contestant,
}

/// One consumer.
struct Member {
    floor: Option<Program>,
    consumer: Consumer,
    contract: String,
}

impl Crowd {
    pub(super) async fn prepare(bench: &Bench, scene: Scene) -> Result<Self> {
        let programs = bench.programs.clone();
        let provider = scene.provider(&programs).await?;
        let join = async |number: u32| Member::join(&programs, &scene, &provider, number).await;
        let members: Vec<_> = stream::iter(0..bench.args.consumers)
            .map(join)
            .buffered(STARTING)
            .try_collect()
            .await?;
        let clusters: Vec<_> = members.iter().map(Member::cluster).collect();
        let sides = (provider.plane.kubeconfig_path(), &clusters[..]);
        let load = Load::start(&programs, sides, scene.apis(), provider.plane.workdir().path()).await?;
        let mut crowd = Self {
            load,
            members,
            provider,
            programs,
            scene,
            size: bench.args.size,
            floor_concurrency: bench.args.floor_concurrency,
            by: Contestant::Konnector,
        };
        // Maps their namespaces, which stay mapped.
        crowd.probe().await?;
        Ok(crowd)
    }

    /// Has konnectors work for all, or floors.
    pub(super) async fn enter(&mut self, contestant: Contestant) -> Result<()> {
        if self.by == contestant {
            return Ok(());
        }
        self.stop().await?;
        for member in &mut self.members {
            if contestant == Contestant::Konnector {
                member.consumer.start_konnector().await?;
            } else {
                member
                    .start_floor(&self.programs, &self.scene, self.floor_concurrency)
                    .await?;
            }
        }
        self.by = contestant;
        self.probe().await
    }

    /// Has whoever works for them end.
    pub(super) async fn stop(&mut self) -> Result<()> {
        for member in &mut self.members {
            member.stop().await?;
        }
        Ok(())
    }

    /// Waits until nobody has much to do.
    async fn quiet(&self) -> Result<()> {
        try_join_all(self.planes().map(quiet)).await.map(drop)
    }

    /// The provider's first.
    fn planes(&self) -> impl Iterator<Item = &ControlPlane> {
        let consumers = self.members.iter().map(|member| &member.consumer.plane);
        [&self.provider.plane].into_iter().chain(consumers)
    }

    fn planes_cpu_seconds(&self) -> f64 {
        proc::cpu_seconds_of_all(self.planes().flat_map(ControlPlane::pids))
    }

    /// An object of each consumer is made and goes.
    async fn probe(&mut self) -> Result<()> {
        let count = u32::try_from(self.members.len())?;
        for phase in [Phase::Create, Phase::Delete] {
            let order = Order {
                prefix: PROBE.to_owned(),
                ..Order::of(phase, count, self.size)
            };
            self.give(&order).await.context("a probe")?;
        }
        Ok(())
    }

    async fn give(&mut self, order: &Order) -> Result<Answer> {
        let sockets = || self.members.iter().map(Member::socket).collect();
        let order = Order {
            acks: (self.by == Contestant::Floor).then(sockets),
            ..order.clone()
        };
        let ended = select_all(self.members.iter_mut().map(|member| Box::pin(member.ended())));
        tokio::select! {
            answer = self.load.order(&order) => answer,
            (ended, ..) = ended => Err(ended.err().context("one has ended")?),
        }
    }

    pub(super) async fn phase(&mut self, order: &Order) -> Result<Row> {
        self.quiet().await?;
        let pids: Vec<_> = self.members.iter().map(Member::pid).collect::<Result<_>>()?;
        let since = self.moments()?;
        let cpu_before = cpu_seconds(&pids)?;
        let planes_before = self.planes_cpu_seconds();
        let answer = self.give(order).await?;
        let planes_cpu_seconds = self.planes_cpu_seconds() - planes_before;
        let memory: Vec<_> = pids.iter().map(|pid| proc::memory(*pid)).collect::<Result<_>>()?;
        // What they do afterwards counts too.
        self.quiet().await?;
        let cpu_seconds = cpu_seconds(&pids)? - cpu_before;
        Ok(Row {
            phase: order.phase,
            by: self.by,
            count: answer.count,
            seconds: answer.seconds,
            percentiles: answer.percentiles.unwrap_or_default(),
            seconds_by_consumer: answer.seconds_by_consumer,
            cpu_seconds,
            planes_cpu_seconds,
            largest_rss_mib: memory.iter().map(|memory| memory.rss_mib).fold(0.0, f64::max),
            writes: self.writes(&since)?,
        })
    }

    /// The audit logs of all, the provider's first.
    fn audits(&self) -> Result<Vec<&Audit>> {
        self.planes().map(ControlPlane::audit).collect()
    }

    fn moments(&self) -> Result<Vec<Moment>> {
        self.audits()?.into_iter().map(Audit::now).collect()
    }

    /// Writes to bound objects since then; all that ServiceAccounts write is written by who is measured.
    fn writes(&self, since: &[Moment]) -> Result<usize> {
        let is_counted = |asked: &&Asked| asked.is_write() && BenchApi::is_group(&asked.group);
        let counts = self.audits()?.into_iter().zip(since).map(|(audit, since)| {
            let asked = audit.since(*since)?;
            Ok(asked.iter().filter(is_counted).count())
        });
        counts.sum()
    }

    /// All went well: no logs are shown at the end.
    pub(super) fn hush(&mut self) {
        self.provider.servers.iter_mut().for_each(Process::hush);
        let konnectors = self
            .members
            .iter_mut()
            .flat_map(|member| &mut member.consumer.konnectors);
        konnectors.for_each(Process::hush);
    }
}

fn cpu_seconds(pids: &[u32]) -> Result<f64> {
    pids.iter().map(|pid| proc::cpu_seconds(*pid)).sum()
}

// === impl Member ===

impl Member {
    /// A consumer with the API bound.
    async fn join(programs: &Programs, scene: &Scene, provider: &Provider, number: u32) -> Result<Self> {
        let consumer = scene.consumer(programs, &format!("{}-{number}", scene.name)).await?;
        scene.bind(provider, &consumer, &format!("team-{number}")).await?;
        eprintln!("==> consumers: {} is bound", consumer.plane.name());
        Ok(Self {
            contract: Provider::contract(&consumer.identity().await?),
            consumer,
            floor: None,
        })
    }

    async fn stop(&mut self) -> Result<()> {
        self.consumer.stop_konnectors().await?;
        if let Some(floor) = self.floor.take() {
            let totals: Value = floor.end().await?;
            ensure!(totals["errors"] == 0, "a floor: {totals}");
        }
        Ok(())
    }

    async fn start_floor(&mut self, programs: &Programs, scene: &Scene, concurrency: u16) -> Result<()> {
        let name = Contestant::Floor.name();
        let mut command = stand_in(programs, scene, (&self.consumer, &self.contract), name).await?;
        command.args(floor_flags(&self.socket(), concurrency));
        self.floor = Some(Program::start(name, command, self.consumer.plane.workdir().path()).await?);
        Ok(())
    }

    /// Fails when the konnector or floor of the consumer ends by itself, which it must not.
    async fn ended(&mut self) -> Result<()> {
        if let Some(floor) = &mut self.floor {
            return floor.ended().await;
        }
        let konnector = self.consumer.konnectors.last_mut().context("no konnector")?;
        loop {
            if let Some(ended) = konnector.try_wait()? {
                bail!("a konnector has ended ({ended}):\n{}", konnector.tail());
            }
            sleep(LOOK).await;
        }
    }

    fn cluster(&self) -> Cluster {
        Cluster {
            kubeconfig: self.consumer.plane.kubeconfig_path().to_owned(),
            contract: self.contract.clone(),
        }
    }

    /// The socket on which its floor is told what changed.
    fn socket(&self) -> PathBuf {
        self.consumer.plane.workdir().path().join("floor.sock")
    }

    fn pid(&self) -> Result<u32> {
        match &self.floor {
            Some(floor) => floor.id(),
            None => Ok(self.consumer.konnectors.last().context("no konnector")?.id()),
        }
    }
}
