//! Changes at random moments, so many per second, whatever is still under way: the konnector beside a program that only
//! passes on what its watches bring.

use anyhow::Result;

use super::{
    Bench,
    contestant::Contestant,
    lanes::Lanes,
    order::{Order, Phase},
    report::{Section, too_few},
    row::{Judged, Row},
    stage::{Scene, Stage},
};

/// The konnector's latencies may be at most this many times the relay's.
const BAR_P50: f64 = 1.5;
const BAR_P99: f64 = 2.0;

/// How often, and how long each phase is, in seconds, if not said. When the machine is slow for a moment, that is one turn of
/// many.
const ROUNDS: u32 = 4;
const SECONDS: u32 = 8;

/// With fewer changes in all rounds, p99 is not checked, because it would be chance.
const JUDGED: u32 = 500;

/// Before anything is measured, at each rate.
const WARM_UP_SECONDS: u32 = 2;

pub(super) async fn run(bench: &Bench) -> Result<Section> {
    let scene = Scene {
        name: "rate",
        namespaces: bench.args.namespaces.unwrap_or(1),
        ..Scene::default()
    };
    let mut stage = Stage::prepare(bench, scene).await?;
    let mut lanes = Lanes::beside(Contestant::Relay);
    for &rate in &bench.args.rate {
        rounds(bench, &mut stage, rate, Contestant::Konnector, &mut lanes).await?;
    }
    stage.stop().await?;
    stage.hush();
    section(lanes)
}

/// How fast, and how often.
#[derive(Clone, Copy, Debug)]
struct Pace {
    round: u32,
    rate: u32,
    changes: u32,
}

impl Pace {
    fn new(round: u32, rate: u32, seconds: u32) -> Self {
        Self {
            round,
            rate,
            changes: rate.saturating_mul(seconds),
        }
    }
}

/// Runs all phases at this rate, round by round, with a contestant and with the one that `lanes` compares it with.
pub(super) async fn rounds(
    bench: &Bench,
    stage: &mut Stage,
    rate: u32,
    contestant: Contestant,
    lanes: &mut Lanes,
) -> Result<()> {
    let pair = [contestant, lanes.reference()];
    let warm_up = Pace::new(0, rate, WARM_UP_SECONDS);
    round(bench, stage, warm_up, pair, &mut Lanes::beside(lanes.reference())).await?;
    for number in 1..=bench.args.repeat.unwrap_or(ROUNDS) {
        let pace = Pace::new(number, rate, bench.args.seconds.unwrap_or(SECONDS));
        round(bench, stage, pace, pair, lanes).await?;
    }
    Ok(())
}

async fn round(bench: &Bench, stage: &mut Stage, pace: Pace, pair: [Contestant; 2], lanes: &mut Lanes) -> Result<()> {
    for contestant in Contestant::in_turn(pace.round, pair) {
        stage.enter(contestant).await?;
        for phase in Phase::ALL {
            let order = Order {
                rate: Some(f64::from(pace.rate)),
                seed: u64::from(pace.round) + 1,
                ..Order::new(phase, pace.changes, &bench.args)
            };
            let sample = stage.phase(order).await?;
            let label = format!("{} at {}/s", phase.name(), pace.rate);
            eprintln!(
                "==> rate, round {}: {label} by the {}: p50 {} us, p99 {} us",
                pace.round,
                contestant.name(),
                sample.percentiles.p50,
                sample.percentiles.p99
            );
            lanes.add(&label, contestant, sample);
        }
    }
    Ok(())
}

fn section(lanes: Lanes) -> Result<Section> {
    let unequal = lanes.unequal();
    let rows = lanes.rows();
    let mut section = Section::new("rate", &rows, Row::table(&rows, Judged::Latency))?
        .note(
            "times: from the moment that was drawn for a change to the moment when the driver saw what it had to cause",
        )
        .note("ratios: in terms of the relay, the median of the ratios within a round");
    for row in &rows {
        if let Some(ratios) = &row.ratios {
            let (p50, p99) = (ratios.p50.median, ratios.p99.median);
            let what = format!(
                "{}: p50 {p50:.2} and p99 {p99:.2} times the relay's; {BAR_P50} and {BAR_P99} are wanted",
                row.phase
            );
            section = section.bar_unless(
                too_few(row.changes, JUDGED, "changes"),
                p50 <= BAR_P50 && p99 <= BAR_P99,
                what,
            );
        }
    }
    let late = rows.iter().map(|row| row.late_p99).fold(0.0, f64::max);
    let least = rows.iter().map(|row| row.p50).fold(f64::INFINITY, f64::min);
    section = section
        .bar(
            late <= least,
            format!("the driver was late by {late:.1} ms (p99); no more than the least p50, {least:.1} ms, is wanted"),
        )
        .bar(unequal.is_empty(), Lanes::says(&unequal));
    section.panels = Row::panels(&rows, str::to_owned);
    Ok(section)
}
