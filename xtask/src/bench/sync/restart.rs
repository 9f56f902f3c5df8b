//! Measures how long a konnector takes from its start until it reports that all is in sync, when nothing has changed. A bare
//! client that lists both clusters once is the comparison.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;

use super::{
    Bench,
    counts::Asks,
    order::{Order, Phase},
    report::{Section, too_few},
    stage::{Scene, Stage},
};
use crate::bench::{
    proc::{self, Memory},
    spread::Spread,
    table::Table,
};

/// The bar: a restart may take at most this many times as long as the bare client's lists.
const BAR: f64 = 2.0;

/// With fewer objects, bars are not checked: the start of the process takes most of the time.
const JUDGED: u32 = 5000;

const LIMIT: Duration = Duration::from_mins(2);

/// One restart.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    /// From the start of the process until all is in sync.
    seconds: f64,
    /// Time of the bare client's lists, just before the restart.
    list_seconds: f64,
    ratio: f64,
    /// Processor time of the konnector until all is in sync.
    cpu_seconds: f64,
    #[serde(flatten)]
    memory: Memory,
    requests: usize,
    /// Number of writes to bound objects.
    writes: usize,
    /// Number of watches of bound objects, and how many there should be.
    watches: usize,
    watches_wanted: usize,
    /// How many objects it knew when it said that all is in sync.
    objects: f64,
}

pub(super) async fn run(bench: &Bench) -> Result<Section> {
    let objects = bench.args.objects_or(10_000);
    let scene = Scene {
        name: "restart",
        namespaces: bench.args.namespaces.unwrap_or(1),
        ..Scene::default()
    };
    let mut stage = Stage::prepare(bench, scene).await?;
    stage.give(Order::new(Phase::Fill, objects, &bench.args)).await?;
    // The first lists fill the caches of the API servers, so they are not measured.
    stage.list().await?;
    let mut rows = Vec::new();
    for round in 1..=bench.args.repeat.unwrap_or(3) {
        let row = Row::measure(&mut stage).await?;
        eprintln!(
            "==> restart, round {round}: {:.2} s, lists {:.2} s",
            row.seconds, row.list_seconds
        );
        rows.push(row);
    }
    stage.hush();
    section(objects, &rows)
}

fn section(objects: u32, rows: &[Row]) -> Result<Section> {
    let head = [
        "restart", "objects", "s", "lists s", "ratio", "CPU s", "MiB", "peak", "requests", "watches", "writes",
    ];
    let mut table = Table::new(&head, 1);
    for (round, row) in (1..).zip(rows) {
        table.line(row.cells(round));
    }
    let ratio = Spread::of(rows.iter().map(|row| row.ratio)).median;
    let writes: usize = rows.iter().map(|row| row.writes).sum();
    // A konnector that does nothing also writes nothing, so the number of objects and watches is checked too.
    let is_whole =
        |row: &Row| row.objects.to_bits() == f64::from(objects).to_bits() && row.watches == row.watches_wanted;
    let section = Section::new("restart", &rows, table)?
        .note("s: from the start of the process until it says that all is in sync; lists: a bare client, just before");
    Ok(section
        .bar_unless(
            too_few(objects, JUDGED, "objects"),
            ratio <= BAR,
            format!("in sync again after {ratio:.2} times the time of the lists; {BAR} is wanted"),
        )
        .bar(
            rows.iter().all(is_whole),
            format!("{objects} objects are known once all is in sync, by one watch of each collection"),
        )
        .bar(
            writes == 0,
            format!("{writes} writes to objects that were in sync; none is wanted"),
        ))
}

impl Row {
    async fn measure(stage: &mut Stage) -> Result<Self> {
        stage.consumer.stop_konnectors().await?;
        stage.quiet().await?;
        let list_seconds = stage.list().await?;
        stage.quiet().await?;
        let moment = stage.moment()?;
        let start = Instant::now();
        stage.consumer.spawn_konnector()?;
        stage.synced(LIMIT).await?;
        let seconds = start.elapsed().as_secs_f64();
        let objects = stage.metrics().await?.sum("sync_objects", &[]);
        let cpu_seconds = proc::cpu_seconds(stage.pid()?)?;
        // Writes that the konnector makes later count too.
        stage.quiet().await?;
        let Asks {
            requests,
            writes,
            watches,
            ..
        } = stage.asked(&moment)?;
        Ok(Self {
            seconds,
            list_seconds,
            ratio: seconds / list_seconds,
            cpu_seconds,
            memory: proc::memory(stage.pid()?)?,
            requests,
            writes,
            watches,
            watches_wanted: stage.watches(),
            objects,
        })
    }

    fn cells(&self, round: u32) -> [String; 11] {
        [
            format!("round {round}"),
            format!("{:.0}", self.objects),
            format!("{:.2}", self.seconds),
            format!("{:.2}", self.list_seconds),
            format!("{:.2}", self.ratio),
            format!("{:.2}", self.cpu_seconds),
            format!("{:.1}", self.memory.rss_mib),
            format!("{:.1}", self.memory.peak_mib),
            self.requests.to_string(),
            self.watches.to_string(),
            self.writes.to_string(),
        ]
    }
}
