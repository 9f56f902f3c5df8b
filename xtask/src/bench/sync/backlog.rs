//! Measures the latency of single changes in one binding while another binding of the same konnector has a backlog: many
//! objects that wait to be synced.

use std::{convert::Infallible, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
use serde::Serialize;
use tokio::time::sleep;

use super::{
    Bench,
    api::BenchApi,
    order::{Answer, Order, Phase},
    report::{Section, too_few},
    stage::{FOREVER, Scene, Stage},
};
use crate::bench::{
    metrics::Metrics,
    plot::{Panel, Series},
    spread::Spread,
    table::Table,
    times::Times,
};

/// The bar: p99 beside a backlog may be at most this many times p99 without one.
const BAR: f64 = 3.0;

/// With fewer objects, bars are not checked: so small a backlog is over before it is seen.
const JUDGED: u32 = 2000;

/// Number of objects whose changes are timed, and number of changes per second.
const SINGLES: u32 = 100;
const RATE: f64 = 10.0;

/// Default of the flag for how many seconds changes are made.
const SECONDS: u32 = 30;

/// With fewer changes, p99 is not judged.
const CHANGES: usize = 50;

/// The share of the backlog's objects that must wait at the same time at least once. Otherwise there was no backlog.
const DEPTH: f64 = 0.25;

/// Pause between two reads of the metric that says how many objects wait.
const LOOK: Duration = Duration::from_millis(100);

/// Indexes of the two bindings: the one with the backlog, and the one with single changes.
const BUSY: usize = 0;
const SINGLE: usize = 1;

/// Single changes, alone or beside a backlog.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    when: &'static str,
    changes: usize,
    p50: f64,
    p90: f64,
    p99: f64,
    max: f64,
    /// From the first object of the backlog until all were in sync.
    backlog_seconds: f64,
    /// From the first object of the backlog until the last one was created.
    load_seconds: f64,
    /// How many objects of the backlog waited: median and maximum.
    depth: Option<Spread>,
    /// For each change: when it was scheduled, in seconds from the begin, and its latency in milliseconds.
    latencies: Vec<(f64, f64)>,
}

pub(super) async fn run(bench: &Bench) -> Result<Section> {
    let objects = bench.args.objects_or(5000);
    let scene = Scene {
        name: "backlog",
        resources: 2,
        namespaces: bench.args.namespaces.unwrap_or(1),
        ..Scene::default()
    };
    let mut stage = Stage::prepare(bench, scene).await?;
    let singles = Order {
        resource: SINGLE,
        ..Order::new(Phase::Fill, SINGLES, &bench.args)
    };
    stage.give(singles).await?;
    let mut rows = Vec::new();
    for round in 1..=bench.args.repeat.unwrap_or(1) {
        stage.quiet().await?;
        let alone = stage.give(changes(bench, 2 * round)).await?;
        rows.push(Row::new("alone", &alone, None, None));
        stage.quiet().await?;
        let row = beside_backlog(bench, &mut stage, objects, 2 * round + 1).await?;
        eprintln!(
            "==> backlog, round {round}: p99 {:.0} ms, alone {:.0} ms",
            row.p99,
            rows[rows.len() - 1].p99
        );
        rows.push(row);
        let clear = Order {
            resource: BUSY,
            ..Order::new(Phase::Clear, objects, &bench.args)
        };
        stage.give(clear).await?;
    }
    stage.hush();
    section(objects, &rows)
}

/// The order for single changes at random times.
fn changes(bench: &Bench, round: u32) -> Order {
    let changes = f64::from(bench.args.seconds.unwrap_or(SECONDS)) * RATE;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some thousands")]
    let changes = changes as u32;
    Order {
        label: "changes".to_owned(),
        resource: SINGLE,
        rate: Some(RATE),
        changes: Some(changes),
        // A round changes each object several times, so the numbers of two rounds never overlap.
        seq: u64::from(round) * 10_000,
        seed: u64::from(round),
        ..Order::new(Phase::Update, SINGLES, &bench.args)
    }
}

/// Creates a backlog and makes single changes at the same time.
async fn beside_backlog(bench: &Bench, stage: &mut Stage, objects: u32, round: u32) -> Result<Row> {
    let backlog = Order {
        label: "backlog".to_owned(),
        resource: BUSY,
        ..Order::new(Phase::Fill, objects, &bench.args)
    };
    stage.load.give(&backlog).await?;
    let changes = changes(bench, round);
    stage.load.give(&changes).await?;
    let limit = backlog.limit().max(changes.limit());
    let port = stage.consumer.admin_port();
    let mut depths = Vec::new();
    let konnector = stage.consumer.konnectors.last_mut().context("no konnector")?;
    let answers = async { anyhow::Ok([stage.load.next(limit).await?, stage.load.next(limit).await?]) };
    let mut answers = tokio::select! {
        answers = answers => answers?,
        never = look(port, &mut depths) => match never {},
        ended = konnector.wait(FOREVER) => bail!("the konnector has ended ({}):\n{}", ended?, konnector.tail()),
    };
    if answers[0].label != "backlog" {
        answers.reverse();
    }
    let [backlog, changes] = answers;
    ensure!(
        backlog.label == "backlog" && changes.label == "changes",
        "other answers"
    );
    // No objects wait before and after the backlog.
    let depths = depths.into_iter().filter(|depth| *depth > 0.0);
    Ok(Row::new("beside", &changes, Some(&backlog), Some(Spread::of(depths))))
}

/// Reads again and again how many objects of the backlog wait, and adds that to `depths`. Never returns.
async fn look(port: u16, depths: &mut Vec<f64>) -> Infallible {
    let binding = BenchApi::ALL[BUSY].name();
    loop {
        if let Ok(metrics) = Metrics::of(port).await {
            depths.push(metrics.sum("sync_pending", &[("binding", binding)]));
        }
        sleep(LOOK).await;
    }
}

impl Row {
    /// Makes a row of those changes that were scheduled while there was a backlog, or of all changes without one. The time
    /// before the last object of the backlog was created does not count, since the driver itself loads the API server then.
    fn new(when: &'static str, changes: &Answer, backlog: Option<&Answer>, depth: Option<Spread>) -> Self {
        let (from, until) = backlog.map_or((0.0, f64::MAX), |backlog| (backlog.load_seconds, backlog.seconds));
        let within = changes.latencies_us.iter().map(|(at, us)| {
            #[expect(clippy::cast_precision_loss, reason = "microseconds of a run")]
            let ms = *us as f64 / 1000.0;
            (at / 1000.0, ms)
        });
        let latencies: Vec<_> = within.filter(|(at, _)| (from..until).contains(at)).collect();
        let times = Times::of(latencies.iter().map(|(_, ms)| *ms));
        Self {
            when,
            changes: latencies.len(),
            p50: times.percentile(50),
            p90: times.percentile(90),
            p99: times.percentile(99),
            max: times.percentile(100),
            backlog_seconds: backlog.map_or(0.0, |backlog| backlog.seconds),
            load_seconds: backlog.map_or(0.0, |backlog| backlog.load_seconds),
            depth,
            latencies,
        }
    }

    fn cells(&self) -> [String; 10] {
        let ms = |ms: f64| format!("{ms:.1}");
        let depth = |of: fn(Spread) -> f64| {
            self.depth
                .map_or_else(|| "-".to_owned(), |depth| format!("{:.0}", of(depth)))
        };
        [
            self.when.to_owned(),
            self.changes.to_string(),
            ms(self.p50),
            ms(self.p90),
            ms(self.p99),
            ms(self.max),
            format!("{:.1}", self.backlog_seconds),
            format!("{:.1}", self.load_seconds),
            depth(|depth| depth.median),
            depth(|depth| depth.max),
        ]
    }
}

fn section(objects: u32, rows: &[Row]) -> Result<Section> {
    let head = [
        "changes",
        "count",
        "p50 ms",
        "p90",
        "p99",
        "max",
        "backlog s",
        "made in s",
        "waiting",
        "at most",
    ];
    let mut table = Table::new(&head, 1);
    for row in rows {
        table.line(row.cells());
    }
    let ratio = ratio(rows);
    let what = match ratio {
        Some(ratio) => format!(
            "p99 of single changes beside a backlog of {objects} objects: {ratio:.2} times that without; {BAR} is wanted"
        ),
        None => format!("fewer than {CHANGES} single changes tell nothing of their p99"),
    };
    let depths = rows.iter().filter_map(|row| row.depth.map(|depth| depth.max));
    let depth = depths.fold(f64::INFINITY, f64::min);
    let least = f64::from(objects) * DEPTH;
    let mut section = Section::new("backlog", &rows, table)?
        .note(format!(
            "{RATE} changes per second in a second binding of the same konnector"
        ))
        .note("beside: those made after the last object of the backlog was made, and before it was in sync")
        .note("waiting, at most: objects of the backlog that wait for the konnector, the median and the most")
        .bar_unless(
            too_few(objects, JUDGED, "objects"),
            depth >= least,
            format!("a backlog of {depth:.0} objects at most; {least:.0} are wanted"),
        )
        .bar_unless(
            too_few(objects, JUDGED, "objects"),
            ratio.is_some_and(|ratio| ratio <= BAR),
            what,
        );
    let series = rows.iter().take(2).map(|row| Series {
        name: row.when.to_owned(),
        points: row.latencies.clone(),
    });
    section.panels = vec![Panel {
        title: format!("single changes beside a backlog of {objects}"),
        series: series.collect(),
    }];
    Ok(section)
}

/// The worst round's p99 beside a backlog, divided by that without; `None` if there are too few changes.
fn ratio(rows: &[Row]) -> Option<f64> {
    if rows.iter().any(|row| row.changes < CHANGES) {
        return None;
    }
    let rounds = rows.chunks_exact(2).map(|round| round[1].p99 / round[0].p99);
    rounds.max_by(f64::total_cmp)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(latencies_us: &[(f64, u64)], seconds: f64) -> Answer {
        let value = serde_json::json!({"ok": true, "seconds": seconds, "latencies_us": latencies_us});
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn only_changes_made_beside_a_backlog_that_is_there_are_counted() {
        let changes = answer(&[(0.0, 70_000), (500.0, 4000), (900.0, 8000), (1100.0, 90_000)], 2.0);
        let alone = Row::new("alone", &changes, None, None);
        assert_eq!((alone.changes, alone.max.to_bits()), (4, 90.0_f64.to_bits()));
        let mut backlog = answer(&[], 1.0);
        backlog.load_seconds = 0.5;
        let beside = Row::new("beside", &changes, Some(&backlog), None);
        assert_eq!(
            (beside.changes, beside.p99.to_bits(), beside.p50.to_bits()),
            (2, 8.0_f64.to_bits(), 4.0_f64.to_bits())
        );
    }

    #[test]
    fn the_worst_round_is_judged() {
        let row = |ms, changes| Row::new("", &answer(&vec![(0.0, ms); changes], 1.0), None, None);
        let rows = [(10_000, 50), (20_000, 50), (10_000, 50), (35_000, 50)].map(|(ms, changes)| row(ms, changes));
        assert!((ratio(&rows).unwrap() - 3.5).abs() < 1e-9);
        assert_eq!(ratio(&[row(10_000, 50), row(10_000, 49)]), None);
        assert_eq!(ratio(&[]), None);
    }
}
