//! Very many namespaces: what the konnector holds open for them, in either scope of informers.

use std::time::Duration;

use anyhow::{Context as _, Result};
use bindery_e2e::ControlPlane;
use serde::Serialize;

use super::{
    Bench,
    counts::Asks,
    memory,
    order::{Order, Phase},
    report::Section,
    stage::{CLUSTER_SCOPE, Scene, Stage},
};
use crate::bench::{
    proc::{self, Memory},
    table::Table,
};

/// Watches of a bound resource: one of the consumer, and where the scope is the cluster one of the provider.
const WATCHES: usize = 2;

/// Watches share connections, so many each at least.
const SHARED: usize = 80;

/// Connections to a provider besides those for watches of bound objects: for 16 writes and 16 lists at once, and for what the
/// konnector reads of its contract and tells of itself.
const OTHERS: usize = 16 + 16 + 8;

/// Most memory per namespace, in MiB, besides the 20 MiB that the konnector may use idle.
const PER_NAMESPACE: f64 = 0.1;
const IDLE: f64 = 20.0;

const LIMIT: Duration = Duration::from_mins(3);

/// The konnector in one scope.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    scope: &'static str,
    namespaces: u32,
    /// Watches of bound objects on both clusters, since the process began.
    watches: usize,
    to_provider: usize,
    to_consumer: usize,
    sockets: usize,
    threads: usize,
    #[serde(flatten)]
    memory: Memory,
    /// From the start of the process until all is in sync.
    restart_seconds: f64,
    requests: usize,
    /// How long a change of an object in each namespace takes, made all at once.
    update_seconds: f64,
}

pub(super) async fn run(bench: &Bench) -> Result<Section> {
    let namespaces = bench.args.namespaces.unwrap_or(500);
    let mut rows = Vec::new();
    for scope in ["namespaced", "cluster"] {
        rows.push(Box::pin(in_scope(bench, scope, namespaces)).await?);
    }
    section(&rows)
}

async fn in_scope(bench: &Bench, scope: &'static str, namespaces: u32) -> Result<Row> {
    let server = match scope {
        "cluster" => vec![CLUSTER_SCOPE.to_owned()],
        _ => Vec::new(),
    };
    let scene = Scene {
        name: "namespaces",
        namespaces,
        server,
        ..Scene::default()
    };
    let mut stage = Stage::prepare(bench, scene).await?;
    let objects = bench.args.objects_or(namespaces);
    let order = |phase| Order {
        namespaces,
        ..Order::new(phase, objects, &bench.args)
    };
    stage.give(order(Phase::Fill)).await?;
    stage.consumer.stop_konnectors().await?;
    stage.quiet().await?;
    let moment = stage.moment()?;
    stage.consumer.spawn_konnector()?;
    let restart_seconds = stage.synced(LIMIT).await?.as_secs_f64();
    stage.quiet().await?;
    let Asks { watches, requests, .. } = stage.asked(&moment)?;
    let update_seconds = stage.give(order(Phase::Update)).await?.seconds;
    stage.quiet().await?;
    let pid = stage.pid()?;
    let to = |plane: &ControlPlane| proc::connections(pid, plane.server_address().port());
    let row = Row {
        scope,
        namespaces,
        watches,
        to_provider: to(&stage.provider.plane)?,
        to_consumer: to(&stage.consumer.plane)?,
        sockets: proc::sockets(pid)?,
        threads: proc::threads(pid)?,
        memory: memory::at_rest(pid).await?,
        restart_seconds,
        requests,
        update_seconds,
    };
    eprintln!(
        "==> namespaces, scope {scope}: {watches} watches, {} connections to the provider, {:.1} MiB",
        row.to_provider, row.memory.rss_mib
    );
    stage.hush();
    Ok(row)
}

fn section(rows: &[Row]) -> Result<Section> {
    let head = [
        "scope",
        "namespaces",
        "watches",
        "to provider",
        "to consumer",
        "sockets",
        "threads",
        "MiB",
        "peak",
        "restart s",
        "requests",
        "update s",
    ];
    let mut table = Table::new(&head, 1);
    for row in rows {
        table.line(row.cells());
    }
    let mut section = Section::new("namespaces", &rows, table)?
        .note("watches: of bound objects on both sides, after a restart; to provider, to consumer: connections")
        .note("restart: from the start of the process until all is in sync; requests: all that it asked until then")
        .note("update: from the first of as many changes as there are objects until the last was seen");
    for row in rows {
        for (holds, what) in row.bars().context("as many namespaces as fit a number")? {
            section = section.bar(holds, what);
        }
    }
    Ok(section)
}

impl Row {
    fn cells(&self) -> [String; 12] {
        [
            self.scope.to_owned(),
            self.namespaces.to_string(),
            self.watches.to_string(),
            self.to_provider.to_string(),
            self.to_consumer.to_string(),
            self.sockets.to_string(),
            self.threads.to_string(),
            format!("{:.1}", self.memory.rss_mib),
            format!("{:.1}", self.memory.peak_mib),
            format!("{:.1}", self.restart_seconds),
            self.requests.to_string(),
            format!("{:.1}", self.update_seconds),
        ]
    }

    /// What is wanted, and whether it is so.
    fn bars(&self) -> Option<[(bool, String); 3]> {
        let Self {
            scope,
            watches,
            to_provider,
            ..
        } = self;
        let namespaces = usize::try_from(self.namespaces).ok()?;
        let expect = match *scope {
            "cluster" => WATCHES,
            _ => namespaces + 1,
        };
        let rss = self.memory.rss_mib;
        let mib = IDLE + f64::from(self.namespaces) * PER_NAMESPACE;
        let connections = expect.div_ceil(SHARED) + OTHERS;
        Some([
            (
                *watches == expect,
                format!("scope {scope}: {watches} watches of bound objects; {expect} are wanted"),
            ),
            (
                *to_provider <= connections,
                format!("scope {scope}: {to_provider} connections to the provider; {connections} are wanted at most"),
            ),
            (
                rss <= mib,
                format!("scope {scope}: {rss:.1} MiB; {mib:.0} are wanted at most"),
            ),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(scope: &'static str, watches: usize, to_provider: usize, rss_mib: f64) -> Row {
        Row {
            scope,
            namespaces: 500,
            watches,
            to_provider,
            to_consumer: 5,
            sockets: 600,
            threads: 4,
            memory: Memory {
                rss_mib,
                peak_mib: 90.0,
            },
            restart_seconds: 1.0,
            requests: 700,
            update_seconds: 1.0,
        }
    }

    #[track_caller]
    fn check(row: &Row, expect: [bool; 3]) {
        let bars = row.bars().unwrap().map(|(holds, _)| holds);
        assert_eq!(bars, expect);
    }

    #[test]
    fn in_scope_cluster_one_watch_is_wanted_on_each_side() {
        check(&row("cluster", 2, 41, 20.0), [true, true, true]);
        check(&row("cluster", 3, 42, 71.0), [false, false, false]);
        check(&row("namespaced", 501, 47, 70.0), [true, true, true]);
        check(&row("namespaced", 502, 48, 70.1), [false, false, false]);
    }
}
