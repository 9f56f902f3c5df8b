//! Measures the memory of the konnector: without objects, with all objects in sync, after each was changed, after all were
//! deleted, and after a restart with all objects in sync.

use std::time::Duration;

use anyhow::Result;
use serde::Serialize;
use tokio::time::{Instant, sleep};

use super::{
    Bench,
    contestant::Contestant,
    order::{Order, Phase},
    report::Section,
    stage::{Scene, Stage},
};
use crate::bench::{
    proc::{self, Memory},
    table::Table,
};

/// Pairs of a number of objects and the most MiB that the konnector may use with them. Numbers in between are interpolated.
const BARS: [(f64, f64); 3] = [(0.0, 20.0), (10_000.0, 64.0), (100_000.0, 320.0)];

/// The bars hold for objects of at most this many bytes; larger ones are not judged.
const SIZE: usize = 1024;

/// The share of its peak memory, less its idle memory, that the konnector may keep when all objects are gone.
const LEFT: f64 = 0.5;

/// How long the allocator may take to give memory back to the system.
const PATIENCE: Duration = Duration::from_secs(20);

/// Memory counts as given back once it has not gone down for this time.
const REST: Duration = Duration::from_secs(4);

const POLL: Duration = Duration::from_millis(500);

/// The memory at one moment of the run.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    when: &'static str,
    objects: u32,
    #[serde(flatten)]
    memory: Memory,
    /// The most MiB that the konnector may use; `None` if there is no bar.
    #[serde(skip_serializing_if = "Option::is_none")]
    wanted: Option<f64>,
}

pub(super) async fn run(bench: &Bench) -> Result<Section> {
    let objects = bench.args.objects_or(10_000);
    let scene = Scene {
        name: "memory",
        namespaces: bench.args.namespaces.unwrap_or(1),
        ..Scene::default()
    };
    let mut stage = Stage::prepare(bench, scene).await?;
    let mut rows = Vec::new();
    // A new process, since the first one has already mapped namespaces.
    restart(&mut stage).await?;
    rows.push(Row::now("idle", 0, &stage).await?.wanted(SIZE));
    for (when, phase) in [("in sync", Phase::Fill), ("all changed", Phase::Update)] {
        proc::forget_peak(stage.pid()?)?;
        give(bench, &mut stage, phase, objects).await?;
        rows.push(Row::now(when, objects, &stage).await?.wanted(bench.args.size));
    }
    // Measured in the process that synced all the objects.
    proc::forget_peak(stage.pid()?)?;
    give(bench, &mut stage, Phase::Clear, objects).await?;
    rows.push(Row::now("all gone", 0, &stage).await?);
    let (holds, what) = comes_down(&rows);
    give(bench, &mut stage, Phase::Fill, objects).await?;
    restart(&mut stage).await?;
    rows.push(Row::now("restarted", objects, &stage).await?.wanted(bench.args.size));
    stage.hush();
    Ok(section(&rows)?.bar(holds, what))
}

async fn restart(stage: &mut Stage) -> Result<()> {
    stage.stop().await?;
    stage.enter(Contestant::Konnector).await?;
    stage.synced(PATIENCE).await.map(drop)
}

async fn give(bench: &Bench, stage: &mut Stage, phase: Phase, objects: u32) -> Result<()> {
    let answer = stage.give(Order::new(phase, objects, &bench.args)).await?;
    eprintln!(
        "==> memory: {} of {objects} after {:.0} s",
        phase.name(),
        answer.seconds
    );
    Ok(())
}

fn section(rows: &[Row]) -> Result<Section> {
    let mut table = Table::new(&["when", "objects", "MiB", "peak", "wanted"], 1);
    for row in rows {
        let wanted = row
            .wanted
            .map_or_else(|| "-".to_owned(), |wanted| format!("{wanted:.0}"));
        let Memory { rss_mib, peak_mib } = row.memory;
        let cells = [format!("{rss_mib:.1}"), format!("{peak_mib:.1}"), wanted];
        table.line([row.when.to_owned(), row.objects.to_string()].into_iter().chain(cells));
    }
    let mut section = Section::new("memory", &rows, table)?
        .note("MiB: resident, once all is in sync and no more is given back; peak: the most since the row before");
    for row in rows {
        if let Some(wanted) = row.wanted {
            let Row {
                when, objects, memory, ..
            } = row;
            let what = format!(
                "{when}, {objects} objects: {:.1} MiB; {wanted:.0} are wanted",
                memory.rss_mib
            );
            section = section.bar(memory.rss_mib <= wanted, what);
        }
    }
    Ok(section)
}

/// Whether the konnector gives memory back once all objects are deleted. All rows must be of one process.
fn comes_down(rows: &[Row]) -> (bool, String) {
    let most = rows.iter().map(|row| row.memory.rss_mib).fold(0.0, f64::max);
    let at = |row: Option<&Row>| row.map_or(0.0, |row| row.memory.rss_mib);
    let (idle, end) = (at(rows.first()), at(rows.last()));
    let wanted = idle + (most - idle) * LEFT;
    let what = format!("from {most:.1} MiB down to {end:.1} when all objects are gone; {wanted:.1} are wanted");
    (end <= wanted, what)
}

// === impl Row ===

impl Row {
    /// Waits until the control planes and the memory are at rest, and measures.
    async fn now(when: &'static str, objects: u32, stage: &Stage) -> Result<Self> {
        stage.quiet().await?;
        let memory = at_rest(stage.pid()?).await?;
        eprintln!(
            "==> memory, {when}: {:.1} MiB, at most {:.1}",
            memory.rss_mib, memory.peak_mib
        );
        Ok(Self {
            when,
            objects,
            memory,
            wanted: None,
        })
    }

    /// Adds the bar, if objects of this size have one.
    fn wanted(self, size: usize) -> Self {
        Self {
            wanted: (size <= SIZE).then(|| wanted(self.objects)),
            ..self
        }
    }
}

/// The memory of a program once it gives no more of it back.
pub(super) async fn at_rest(pid: u32) -> Result<Memory> {
    let deadline = Instant::now() + PATIENCE;
    let mut least = proc::memory(pid)?;
    let mut since = Instant::now();
    while since.elapsed() < REST && Instant::now() < deadline {
        sleep(POLL).await;
        let now = proc::memory(pid)?;
        if now.rss_mib < least.rss_mib {
            least = now;
            since = Instant::now();
        }
    }
    proc::memory(pid)
}

/// The most memory that the konnector may use with this number of objects, in MiB.
fn wanted(objects: u32) -> f64 {
    let objects = f64::from(objects);
    let beyond = BARS.iter().position(|(bar, _)| *bar >= objects);
    let index = beyond.unwrap_or(BARS.len() - 1).max(1);
    let ((from, low), (to, high)) = (BARS[index - 1], BARS[index]);
    low + (high - low) * (objects - from) / (to - from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wanted_grows_with_the_objects() {
        let near = |objects, expect: f64| assert!((wanted(objects) - expect).abs() < 1e-9, "{}", wanted(objects));
        near(0, 20.0);
        near(5_000, 42.0);
        near(10_000, 64.0);
        near(100_000, 320.0);
        near(190_000, 576.0);
    }

    #[test]
    fn memory_comes_down_if_half_of_it_is_given_back() {
        let row = |rss_mib| Row {
            when: "",
            objects: 0,
            memory: Memory {
                rss_mib,
                peak_mib: 99.0,
            },
            wanted: None,
        };
        let rows = |end| [15.0, 45.0, 55.0, end].map(row);
        assert!(comes_down(&rows(35.0)).0);
        assert!(!comes_down(&rows(35.1)).0);
    }
}
