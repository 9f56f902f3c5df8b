//! What traces cost: the konnector with traces of one change in a hundred, beside itself without traces.

use anyhow::{Context as _, Result};
use bindery_e2e::collector::Collector;

use super::{
    Bench,
    contestant::Contestant,
    lanes::Lanes,
    rate::rounds,
    report::{Section, too_few},
    row::{Judged, Row},
    stage::{Scene, Stage},
};
use crate::bench::spread::Spread;

/// The part of all changes that is traced.
const SAMPLE: &str = "--trace-sample=0.01";

/// With fewer changes in all rounds, nothing is judged, because next to none of them is traced.
const JUDGED: u32 = 1000;

pub(super) async fn run(bench: &Bench) -> Result<Section> {
    let rate = bench.args.rate.iter().copied().max().context("no --rate")?;
    let scene = Scene {
        name: "traces",
        namespaces: bench.args.namespaces.unwrap_or(1),
        // Without an endpoint, it has no effect.
        konnector: vec![SAMPLE.to_owned()],
        ..Scene::default()
    };
    let (collector, endpoint) = Collector::start().await?;
    let mut stage = Stage::prepare(bench, scene).await?;
    stage.collector = Some(endpoint);
    let mut lanes = Lanes::beside(Contestant::Konnector);
    rounds(bench, &mut stage, rate, Contestant::Traced, &mut lanes).await?;
    stage.stop().await?;
    stage.hush();
    let traced = collector.spans().iter().filter(|span| span.name == "change").count();
    section(lanes, traced)
}

fn section(lanes: Lanes, traced: usize) -> Result<Section> {
    let unequal = lanes.unequal();
    let rows = lanes.rows();
    let changes: u32 = rows.iter().filter(|row| is_traced(row)).map(|row| row.changes).sum();
    let mut section = Section::new("traces", &rows, Row::table(&rows, Judged::Latency))?
        .note("ratios: in terms of the konnector without traces, the median of the ratios within a round")
        .note(format!("the collector got {traced} traces of {changes} changes"))
        .bar(traced > 0, "the collector got traces");
    for pair in rows.chunk_by(|left, right| left.phase == right.phase) {
        let (Some(on), Some(off)) = (
            pair.iter().find(|row| is_traced(row)),
            pair.iter().find(|row| !is_traced(row)),
        ) else {
            continue;
        };
        for (what, unit, of) in [
            ("p50", "ms", (|row| row.round_p50) as fn(&Row) -> Spread),
            ("processor time", "s per 1,000", |row| row.cpu_seconds_per1000),
        ] {
            let (on_median, off) = (of(on).median, of(off));
            let says = format!(
                "{}: {what} {on_median:.2} {unit} with traces; {:.2} to {:.2} without",
                on.phase, off.min, off.max
            );
            section = section.bar_unless(too_few(changes, JUDGED, "changes"), on_median <= off.max, says);
        }
    }
    section = section.bar(unequal.is_empty(), Lanes::says(&unequal));
    section.panels = Row::panels(&rows, str::to_owned);
    Ok(section)
}

fn is_traced(row: &Row) -> bool {
    row.by == Contestant::Traced.name()
}
