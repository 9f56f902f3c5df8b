//! `bindery-bench load`: makes changes on one side, and sees them arrive on the other by watches of its own. It is told what
//! to do by lines of JSON, and answers each with one.

mod acks;
mod board;
mod command;
mod drive;
mod phase;
mod requests;
mod watch;

use std::{path::PathBuf, sync::Arc};

use anyhow::{Context as _, Result, ensure};
use bindery_runtime::{
    client::{Clients, ClusterTraffic},
    shutdown,
};
use serde_json::json;
use tokio::task::JoinSet;

use self::{board::Board, command::Command, watch::Side};
use crate::{input, output, resource::Resource, sides::connect};

/// Flags.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Kubeconfig of the provider's admin.
    #[arg(long)]
    provider: PathBuf,
    /// What is bound, as `group/version/plural/Kind`.
    #[arg(long, required = true)]
    resource: Vec<Resource>,
    /// Kubeconfig of a consumer's admin.
    #[arg(long, required = true)]
    consumer: Vec<PathBuf>,
    /// The contract namespace of each consumer, in their order.
    #[arg(long, required = true)]
    contract: Vec<String>,
}

/// What all commands share.
#[derive(Debug)]
pub(crate) struct Load {
    provider: Clients,
    consumers: Vec<Clients>,
    resources: Vec<Resource>,
    board: Arc<Board>,
}

pub(crate) async fn run(args: Args) -> Result<()> {
    ensure!(
        args.consumer.len() == args.contract.len(),
        "each --consumer needs its --contract"
    );
    let stop = shutdown::on_signal().context("cannot listen for signals")?;
    let mut consumers = Vec::new();
    for kubeconfig in &args.consumer {
        consumers.push(connect(kubeconfig, &ClusterTraffic::default()).await?);
    }
    let load = Arc::new(Load {
        provider: connect(&args.provider, &ClusterTraffic::default()).await?,
        consumers,
        resources: args.resource,
        board: Arc::default(),
    });
    let _watches = load.watch(args.contract.into()).await?;
    let seen = load.board.count(|_| true);
    output::line(&json!({"ready": true, "consumer_objects": seen.consumer, "provider_objects": seen.provider}))?;
    let mut commands = JoinSet::new();
    let mut lines = input::lines();
    loop {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            line = lines.recv() => match line.transpose()? {
                // Nobody is there to be answered.
                None => return Ok(()),
                Some(line) => drop(commands.spawn(obey(Arc::clone(&load), line))),
            },
            Some(obeyed) = commands.join_next() => obeyed.context("a command failed")??,
        }
    }
}

/// Does what a line says, and answers.
async fn obey(load: Arc<Load>, line: String) -> Result<()> {
    let command: Command = match serde_json::from_str(&line) {
        Ok(command) => command,
        Err(error) => return refuse("", &error.into()),
    };
    let label = command.label.clone();
    match command.phase {
        command::Phase::Count => {
            let chosen = command.chosen(load.consumers.len())?;
            let count = load
                .board
                .count(|key| key.resource == command.resource && chosen.contains(&key.consumer));
            output::line(&json!({
                "label": label, "phase": "count",
                "consumer": count.consumer, "provider": count.provider, "held": count.held,
            }))
        }
        _ => match drive::drive(&load, command).await {
            Ok(answer) => output::line(&answer),
            Err(error) => refuse(&label, &error),
        },
    }
}

fn refuse(label: &str, error: &anyhow::Error) -> Result<()> {
    output::line(&json!({"label": label, "phase": "error", "ok": false, "error": format!("{error:#}")}))
}

// === impl Load ===

impl Load {
    /// Opens all watches; answers when each has listed what there is.
    async fn watch(&self, contracts: Arc<[String]>) -> Result<JoinSet<()>> {
        let mut watches = JoinSet::new();
        let mut listed = Vec::new();
        for (number, resource) in self.resources.iter().enumerate() {
            let consumers = self.consumers.iter().enumerate();
            let sides = consumers.map(|(consumer, clients)| (Side::Consumer(consumer), clients));
            for (side, clients) in sides.chain([(Side::Provider(Arc::clone(&contracts)), &self.provider)]) {
                let (watch, known) = watch::watch(&clients.watch, (number, resource), side, &self.board);
                watches.spawn(watch);
                listed.push(known);
            }
        }
        for known in listed {
            known.await.context("a watch failed")?;
        }
        Ok(watches)
    }
}
