//! `cargo xtask bench server`: thousands of agents on one server, each as a konnector is, and what the server does for them.

mod agents;
mod counts;
mod crowd;
mod report;
mod stage;
mod strangers;

use anyhow::Result;
use bindery_e2e::process::Programs;
use serde_json::json;

use self::{
    agents::{Answer, Load, Order},
    report::{Report, Row, Settled, Sizes},
    stage::Stage,
    strangers::Strangers,
};
use super::quiet::quiet;

#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Args {
    /// How many agents, each with a contract of its own.
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    agents: u32,
    /// How many binds, lists or writes are under way at once.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=64))]
    concurrency: u16,
    /// Changes of exports a second, at random times that do not wait for answers.
    #[arg(long, default_value_t = 50.0, value_parser = rate)]
    rate: f64,
    /// For how long exports are changed, and how long each list is repeated.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// From how many addresses strangers attack the port.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u8).range(1..=250))]
    strangers: u8,
    /// For how long they attack it, and for how long the same is measured without them before.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    attack_seconds: u32,
    /// How many objects one tenant has in the queues of the controllers while others bind.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    crowd: u32,
    /// How many binds are measured beside it, and as many without it before.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    crowd_binds: u32,
}

/// Renewals a second, with an attack and without.
const RENEWALS: f64 = 5.0;

pub(super) fn run(bench: &super::Args, args: Args) -> Result<Report> {
    bench.release("bindery-bench", &["--bin", "bindery-bench"])?;
    let folder = bench.release("bindery-server", &["--bin", "bindery-server"])?;
    super::until_interrupted(async {
        let mut stage = Stage::prepare(Programs::in_folder(folder), args).await?;
        let report = stage.run().await?;
        stage.hush();
        Ok(report)
    })
}

// === impl Stage ===

impl Stage {
    async fn run(&mut self) -> Result<Report> {
        let args = self.args;
        let mut rows = vec![self.idle("no contract").await?];
        self.bind(&mut rows).await?;
        rows.push(self.idle("bound").await?);
        rows.push(self.phase("connect", &Order::Connect { timeout_s: 300 }).await?);
        let connected = self.idle("connected").await?;
        let streams = self.streams().await?;
        rows.push(connected);
        let at_rest = self.at_rest().await?;
        for what in ["exports", "templates"] {
            let order = Order::List {
                what,
                seconds: f64::from(args.seconds.min(10)),
                concurrency: args.concurrency,
            };
            rows.push(self.phase(&format!("list {what}"), &order).await?);
        }
        let row = self.change(Some(args.rate)).await?;
        rows.push(row);
        let row = self.change(None).await?;
        rows.push(row);
        let order = self.change_and_renew();
        rows.push(self.phase("calm", &order).await?);
        rows.push(self.attacked().await?);
        let (row, after) = self.restart().await?;
        rows.push(row);
        rows.push(self.idle("restarted").await?);
        rows.extend(self.crowded().await?);
        let settled = Settled {
            streams,
            at_rest,
            after,
        };
        Ok(Report::new(
            settings(&args),
            Sizes {
                agents: args.agents,
                strangers: args.strangers,
                crowd: args.crowd,
            },
            rows,
            &settled,
        ))
    }

    /// The first bind is none of those that count: it is the first that the API server sees of the template's kinds.
    async fn bind(&mut self, rows: &mut Vec<Row>) -> Result<()> {
        let bind = |count| Order::Bind {
            count,
            concurrency: self.args.concurrency,
        };
        let (first, others) = (bind(1), bind(self.args.agents - 1));
        self.order(&first).await?;
        let from = self.provider.plane.audit()?.now()?;
        let mut row = self.phase("bind", &others).await?;
        row.asked = Some(counts::since(self.provider.plane.audit()?, from)?);
        rows.push(row);
        Ok(())
    }

    async fn change(&mut self, rate: Option<f64>) -> Result<Row> {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
        let count = rate.map_or(self.args.agents, |rate| (rate * f64::from(self.args.seconds)) as u32);
        let order = Order::Change(self.load(count, rate));
        self.phase(if rate.is_some() { "change" } else { "change all" }, &order)
            .await
    }

    /// Changes and renewals at their rates.
    fn change_and_renew(&mut self) -> Order {
        let seconds = f64::from(self.args.attack_seconds);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
        let count = (self.args.rate * seconds) as u32;
        Order::ChangeAndRenew {
            load: self.load(count, Some(self.args.rate)),
            renewals: RENEWALS,
            seconds,
        }
    }

    /// The same, while strangers attack the port, each from an address of its own.
    async fn attacked(&mut self) -> Result<Row> {
        let order = self.change_and_renew();
        quiet(&self.provider.plane).await?;
        let strangers = Strangers::start(&self.programs, &self.provider, self.args.strangers).await?;
        let mut row = self.unquiet_phase("attacked", &order).await?;
        row.strangers = Some(strangers.end().await?);
        Ok(row)
    }

    fn load(&mut self, count: u32, rate: Option<f64>) -> Load {
        Load {
            count,
            rate,
            concurrency: self.args.concurrency,
            seed: 7,
            from: self.next_change(count),
        }
    }
}

/// Changes a second, of which there are some in each second.
fn rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|_| "it is no number".to_owned())?;
    let is_some = (1.0..=10_000.0).contains(&rate);
    is_some
        .then_some(rate)
        .ok_or_else(|| "it is to be from 1 to 10000".to_owned())
}

fn settings(args: &Args) -> serde_json::Value {
    json!({
        "agents": args.agents, "concurrency": args.concurrency, "rate": args.rate, "seconds": args.seconds,
        "strangers": args.strangers, "attackSeconds": args.attack_seconds,
        "crowd": args.crowd, "crowdBinds": args.crowd_binds,
        "cores": std::thread::available_parallelism().map_or(0, usize::from),
    })
}
