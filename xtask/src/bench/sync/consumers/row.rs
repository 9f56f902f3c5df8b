//! Results of one phase, by all konnectors or by all floors.

use serde::Serialize;

use super::super::{
    contestant::Contestant,
    order::{Percentiles, Phase},
};

/// What was measured.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Row {
    pub(super) phase: Phase,
    pub(super) by: Contestant,
    pub(super) count: u32,
    pub(super) seconds: f64,
    /// In microseconds.
    pub(super) percentiles: Percentiles,
    /// Time from the begin until the results for all objects of a consumer were seen.
    pub(super) seconds_by_consumer: Vec<f64>,
    pub(super) cpu_seconds: f64,
    /// Of all control planes, until the last object was seen.
    pub(super) planes_cpu_seconds: f64,
    pub(super) largest_rss_mib: f64,
    /// To bound objects, on all sides.
    pub(super) writes: usize,
}

impl Row {
    pub(super) const HEAD: [&'static str; 12] = [
        "phase",
        "by",
        "objects/s",
        "ratio",
        "first s",
        "last s",
        "p50 ms",
        "p99",
        "CPU s/1000",
        "planes'",
        "MiB",
        "writes",
    ];

    pub(super) fn rate(&self) -> f64 {
        f64::from(self.count) / self.seconds
    }

    /// While it runs.
    pub(super) fn says(&self) -> String {
        let (phase, by) = (self.phase.name(), self.by.name());
        format!("{phase} by each {by}: {:.0} per second", self.rate())
    }

    pub(super) fn cells(&self, ratio: Option<f64>) -> [String; 12] {
        #[expect(clippy::cast_precision_loss, reason = "some minutes at most")]
        let ms = |us: u64| format!("{:.0}", us as f64 / 1000.0);
        let per_1000 = |seconds: f64| format!("{:.2}", seconds * 1000.0 / f64::from(self.count));
        let all = || self.seconds_by_consumer.iter().copied();
        [
            self.phase.name().to_owned(),
            self.by.name().to_owned(),
            format!("{:.0}", self.rate()),
            ratio.map_or_else(|| "floor".to_owned(), |ratio| format!("{ratio:.2}")),
            format!("{:.1}", all().fold(self.seconds, f64::min)),
            format!("{:.1}", all().fold(0.0, f64::max)),
            ms(self.percentiles.p50),
            ms(self.percentiles.p99),
            per_1000(self.cpu_seconds),
            per_1000(self.planes_cpu_seconds),
            format!("{:.1}", self.largest_rss_mib),
            self.writes.to_string(),
        ]
    }
}

/// The konnectors' results divided by the floors' of the same round; `None` for the floors' own row.
pub(super) fn ratio(rows: &[Row], ours: &Row) -> Option<f64> {
    let floor = floor_of(rows, ours)?;
    Some(ours.rate() / floor.rate())
}

/// Lists the phases in which konnectors and floors made different numbers of writes.
pub(super) fn unequal(rows: &[Row]) -> Vec<String> {
    let text = |ours: &Row| {
        let floor = floor_of(rows, ours)?;
        let (writes, least) = (ours.writes, floor.writes);
        (writes != least).then(|| format!("{}: {writes} and {least}", ours.phase.name()))
    };
    rows.iter().filter_map(text).collect()
}

/// The n-th of the floors in a phase, for the n-th of ours.
fn floor_of<'a>(rows: &'a [Row], ours: &Row) -> Option<&'a Row> {
    let lane = |by| rows.iter().filter(move |row| row.phase == ours.phase && row.by == by);
    let round = lane(Contestant::Konnector).position(|row| std::ptr::eq(row, ours))?;
    lane(Contestant::Floor).nth(round)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(phase: Phase, by: Contestant, seconds: f64, writes: usize) -> Row {
        Row {
            phase,
            by,
            count: 100,
            seconds,
            percentiles: Percentiles::default(),
            seconds_by_consumer: vec![0.5, seconds],
            cpu_seconds: 0.1,
            planes_cpu_seconds: 1.0,
            largest_rss_mib: 12.0,
            writes,
        }
    }

    #[test]
    fn ours_are_compared_with_the_floors_of_their_round() {
        use {Contestant::*, Phase::*};
        let rows = [
            row(Create, Floor, 1.0, 200),
            row(Update, Floor, 9.0, 100),
            row(Create, Konnector, 2.0, 200),
            row(Update, Konnector, 9.0, 101),
            row(Create, Konnector, 4.0, 200),
            row(Create, Floor, 1.0, 200),
        ];
        let ratios: Vec<_> = rows.iter().map(|row| ratio(&rows, row)).collect();
        assert_eq!(ratios, [None, None, Some(0.5), Some(1.0), Some(0.25), None]);
        assert_eq!(unequal(&rows), ["update: 101 and 100"]);
        let cells = rows[2].cells(ratios[2]);
        assert_eq!(cells[..6], ["create", "konnector", "50", "0.50", "0.5", "2.0"]);
    }
}
