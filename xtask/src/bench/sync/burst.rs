//! As many changes as the API servers take: the konnector beside a client that only sends the writes that have to be.

use anyhow::Result;

use super::{
    Bench,
    contestant::Contestant,
    lanes::Lanes,
    order::{Order, Phase},
    report::{Section, too_few},
    row::{Judged, Row},
    same::Written,
    stage::{Scene, Stage},
};

/// The share of the floor's objects per second that the konnector must reach.
const BAR: f64 = 0.8;

/// With fewer objects, bars are not checked: the driver itself takes most of the time.
const JUDGED: u32 = 1000;

/// Objects of a first phase that is not measured, because API servers do things slower for the first time.
const WARM_UP: u32 = 200;

pub(super) async fn run(bench: &Bench) -> Result<Section> {
    let objects = bench.args.objects_or(1000);
    let scene = Scene {
        name: "burst",
        namespaces: bench.args.namespaces.unwrap_or(1),
        ..Scene::default()
    };
    let mut stage = Stage::prepare(bench, scene).await?;
    let mut lanes = Lanes::beside(Contestant::Floor);
    round(
        bench,
        &mut stage,
        (0, objects.min(WARM_UP)),
        &mut Lanes::beside(Contestant::Floor),
    )
    .await?;
    for number in 1..=bench.args.repeat.unwrap_or(3) {
        round(bench, &mut stage, (number, objects), &mut lanes).await?;
    }
    stage.stop().await?;
    stage.hush();
    section(objects, lanes)
}

/// Runs all phases with the konnector and with the floor, one after the other.
async fn round(bench: &Bench, stage: &mut Stage, (number, objects): (u32, u32), lanes: &mut Lanes) -> Result<()> {
    let mut written: Vec<Vec<Written>> = Vec::new();
    for contestant in Contestant::in_turn(number, [Contestant::Konnector, Contestant::Floor]) {
        stage.enter(contestant).await?;
        let mut wrote = Vec::new();
        for phase in Phase::ALL {
            let sample = stage.phase(Order::new(phase, objects, &bench.args)).await?;
            eprintln!(
                "==> burst, round {number}: {} by the {}: {:.1} s",
                phase.name(),
                contestant.name(),
                sample.seconds
            );
            lanes.add(phase.name(), contestant, sample);
            if phase != Phase::Delete {
                wrote.push(stage.written("item-0").await?);
            }
        }
        written.push(wrote);
    }
    // The floor is one only as long as it writes what the konnector writes.
    Written::check_same(&written)
}

fn section(objects: u32, lanes: Lanes) -> Result<Section> {
    let unequal = lanes.unequal();
    let rows = lanes.rows();
    let mut section = Section::new("burst", &rows, Row::table(&rows, Judged::Throughput))?
        .note("ratio: objects per second in terms of the floor, the median of the ratios within a round")
        .note("requests and KiB: per object, by whoever works, to both API servers; 409 and 429: of all rounds");
    for row in &rows {
        if let Some(ratios) = &row.ratios {
            let ratio = ratios.objects_per_second.median;
            let what = format!(
                "{}: {ratio:.2} of the floor's objects per second; {BAR} is wanted",
                row.phase
            );
            section = section.bar_unless(too_few(objects, JUDGED, "objects"), ratio >= BAR, what);
        }
    }
    section = section.bar(unequal.is_empty(), Lanes::says(&unequal));
    section.panels = Row::panels(&rows, |phase| format!("burst: {phase}"));
    Ok(section)
}
