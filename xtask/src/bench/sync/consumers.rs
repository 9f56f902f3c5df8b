//! Many konnectors at once on one provider, each of a consumer of its own, beside as many floors.

mod crowd;
mod row;

use anyhow::Result;

use self::{crowd::Crowd, row::Row};
use super::{
    Bench,
    contestant::Contestant,
    order::{Order, Phase},
    report::{Section, too_few},
    stage::Scene,
};
use crate::bench::{spread::Spread, table::Table};

/// The share of the floors' objects per second that the konnectors must reach.
const BAR: f64 = 0.7;

/// With fewer objects in all, bars are not checked: the driver itself takes most of the time.
const JUDGED: u32 = 1000;

/// Objects per consumer of a first phase that is not measured, because API servers do things slower for the first time.
const WARM_UP: u32 = 20;

pub(super) async fn run(bench: &Bench) -> Result<Section> {
    let scene = Scene {
        name: "consumers",
        // No controllers are needed, and twenty of them are many.
        controllers: false,
        ..Scene::default()
    };
    let consumers = bench.args.consumers;
    let each = bench.args.objects_or(200);
    let mut crowd = Crowd::prepare(bench, scene).await?;
    let mut rows: Vec<Row> = Vec::new();
    round(bench, &mut crowd, (0, each.min(WARM_UP)), &mut Vec::new()).await?;
    for number in 1..=bench.args.repeat.unwrap_or(2) {
        round(bench, &mut crowd, (number, each), &mut rows).await?;
    }
    crowd.stop().await?;
    crowd.hush();
    section(consumers, each, &rows)
}

/// Runs all phases with the konnectors and with the floors, one after the other.
async fn round(bench: &Bench, crowd: &mut Crowd, (number, each): (u32, u32), rows: &mut Vec<Row>) -> Result<()> {
    for contestant in Contestant::in_turn(number, [Contestant::Konnector, Contestant::Floor]) {
        crowd.enter(contestant).await?;
        for phase in Phase::ALL {
            let order = Order::new(phase, bench.args.consumers.saturating_mul(each), &bench.args);
            let row = crowd.phase(&order).await?;
            eprintln!("==> consumers, round {number}: {}", row.says());
            rows.push(row);
        }
    }
    Ok(())
}

fn section(consumers: u32, each: u32, rows: &[Row]) -> Result<Section> {
    let mut table = Table::new(&Row::HEAD, 2);
    for phase in Phase::ALL {
        for row in rows.iter().filter(|row| row.phase == phase) {
            table.line(row.cells(row::ratio(rows, row)));
        }
    }
    let mut section = Section::new("consumers", &rows, table)?
        .note(format!(
            "{consumers} consumers with {each} objects each; ratio: objects per second in terms of the floors"
        ))
        .note("first, last: when the first and the last consumer had all of its objects in sync")
        .note("CPU: of all konnectors or floors; planes': of all control planes; MiB: of the largest");
    for phase in Phase::ALL {
        let ours = rows
            .iter()
            .filter(|row| row.phase == phase && row.by == Contestant::Konnector);
        let ratios = ours.filter_map(|row| row::ratio(rows, row));
        let ratio = Spread::of(ratios).median;
        let what = format!(
            "{}: {ratio:.2} of the floors' objects per second; {BAR} is wanted",
            phase.name()
        );
        let too_few = too_few(consumers.saturating_mul(each), JUDGED, "objects");
        section = section.bar_unless(too_few, ratio >= BAR, what);
    }
    let unequal = row::unequal(rows);
    let what = match unequal.as_slice() {
        [] => "konnectors and floors make the same number of writes".to_owned(),
        unequal => format!("writes of konnectors and floors differ: {}", unequal.join(", ")),
    };
    Ok(section.bar(unequal.is_empty(), what))
}
