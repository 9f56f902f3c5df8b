//! One contestant in one phase, over all rounds.

use serde::Serialize;

use super::turn::Sample;
use crate::bench::{
    plot::{Panel, Series},
    spread::Spread,
    table::Table,
    times::Times,
};

/// One line of a table.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Row {
    pub(super) phase: String,
    pub(super) by: &'static str,
    /// Number of changes in all rounds.
    pub(super) changes: u32,
    pub(super) objects_per_second: Spread,
    /// Median latency of the changes of a round, in milliseconds.
    pub(super) round_p50: Spread,
    /// Median latency of the changes of all rounds, in milliseconds, as the three below.
    pub(super) p50: f64,
    p90: f64,
    p99: f64,
    max: f64,
    /// Median time of the API server's answers to the driver, in milliseconds; the median of the rounds.
    ack_p50: f64,
    /// How late the driver sent changes: the p99 of the worst round.
    pub(super) late_p99: f64,
    /// The results divided by those of the reference; `None` for the latter's own row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ratios: Option<Ratios>,
    pub(super) cpu_seconds_per1000: Spread,
    rss_mib: f64,
    peak_mib: f64,
    requests_per_object: f64,
    writes_per_object: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    kib_per_object: Option<f64>,
    conflicts: f64,
    throttled: f64,
    /// All that was measured, round by round.
    samples: Vec<Sample>,
}

/// Results divided by those of the reference in the same round, when the machine was in the same state.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Ratios {
    pub(super) objects_per_second: Spread,
    pub(super) p50: Spread,
    pub(super) p99: Spread,
}

/// Which ratios a table shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Judged {
    /// Objects per second.
    Throughput,
    /// Time of one change.
    Latency,
}

// === impl Row ===

impl Row {
    /// The row of one contestant's samples. `floor` has the samples to compare them with, in the same order of rounds.
    pub(super) fn new(phase: String, by: &'static str, samples: Vec<Sample>, floor: Option<&[Sample]>) -> Self {
        let median = |of: fn(&Sample) -> f64| Spread::of(samples.iter().map(of)).median;
        let most = |of: fn(&Sample) -> f64| Spread::of(samples.iter().map(of)).max;
        let kib = samples.iter().map(Sample::kib).collect::<Option<Vec<_>>>();
        let times = times(&samples);
        Self {
            phase,
            by,
            changes: samples.iter().map(|sample| sample.count).sum(),
            objects_per_second: Spread::of(samples.iter().map(Sample::rate)),
            round_p50: Spread::of(samples.iter().map(|sample| ms(sample.percentiles.p50))),
            p50: times.percentile(50),
            p90: times.percentile(90),
            p99: times.percentile(99),
            max: times.percentile(100),
            ack_p50: median(|sample| ms(sample.acks.p50)),
            late_p99: most(|sample| sample.late.map_or(0.0, |late| ms(late.p99))),
            ratios: floor.map(|floor| Ratios::of(&samples, floor)),
            cpu_seconds_per1000: Spread::of(samples.iter().map(Sample::cpu_per_1000)),
            rss_mib: most(|sample| sample.rss_mib),
            peak_mib: most(|sample| sample.peak_mib),
            requests_per_object: most(|sample| per_object(sample.requests, sample)),
            writes_per_object: most(|sample| per_object(sample.writes, sample)),
            kib_per_object: kib.map(|kib| Spread::of(kib).median),
            conflicts: samples.iter().map(|sample| sample.conflicts).sum(),
            throttled: samples.iter().map(|sample| sample.throttled).sum(),
            samples,
        }
    }

    /// A table of rows.
    pub(super) fn table(rows: &[Self], judged: Judged) -> Table {
        let mut head = vec!["phase", "by", "objects/s"];
        head.extend(judged.heads());
        head.extend([
            "p50 ms",
            "p90",
            "p99",
            "max",
            "ack p50",
            "CPU s/1000",
            "MiB",
            "peak",
            "requests",
            "KiB",
            "409",
            "429",
        ]);
        let mut table = Table::new(&head, 2);
        for row in rows {
            table.line(row.cells(judged));
        }
        table
    }

    fn cells(&self, judged: Judged) -> Vec<String> {
        let mut cells = vec![
            self.phase.clone(),
            self.by.to_owned(),
            format!("{:.0}", self.objects_per_second.median),
        ];
        let ratios = judged.of(self.ratios.as_ref());
        cells.extend(ratios.into_iter().map(|ratio| match ratio {
            Some(ratio) => format!("{ratio:.2}"),
            None => "floor".to_owned(),
        }));
        let kib = self
            .kib_per_object
            .map_or_else(|| "-".to_owned(), |kib| format!("{kib:.1}"));
        cells.extend([
            format!("{:.1}", self.p50),
            format!("{:.1}", self.p90),
            format!("{:.1}", self.p99),
            format!("{:.1}", self.max),
            format!("{:.1}", self.ack_p50),
            format!("{:.2}", self.cpu_seconds_per1000.median),
            format!("{:.1}", self.rss_mib),
            format!("{:.1}", self.peak_mib),
            format!("{:.2}", self.requests_per_object),
            kib,
            format!("{:.0}", self.conflicts),
            format!("{:.0}", self.throttled),
        ]);
        cells
    }

    /// The latencies of the first round, one panel for each phase.
    pub(super) fn panels(rows: &[Self], title: impl Fn(&str) -> String) -> Vec<Panel> {
        let series = |row: &Self| Series {
            name: row.by.to_owned(),
            points: row.samples.first().map(Sample::points).unwrap_or_default(),
        };
        let phases = rows.chunk_by(|left, right| left.phase == right.phase);
        phases
            .map(|rows| Panel {
                title: title(&rows[0].phase),
                series: rows.iter().map(series).collect(),
            })
            .collect()
    }
}

// === impl Ratios ===

impl Ratios {
    fn of(ours: &[Sample], floor: &[Sample]) -> Self {
        let ratio =
            |of: fn(&Sample) -> f64| Spread::of(ours.iter().zip(floor).map(|(ours, floor)| of(ours) / of(floor)));
        Self {
            objects_per_second: ratio(Sample::rate),
            p50: ratio(|sample| ms(sample.percentiles.p50)),
            p99: ratio(|sample| ms(sample.percentiles.p99)),
        }
    }
}

// === impl Judged ===

impl Judged {
    fn heads(self) -> &'static [&'static str] {
        match self {
            Self::Throughput => &["ratio"],
            Self::Latency => &["p50 ratio", "p99 ratio"],
        }
    }

    fn of(self, ratios: Option<&Ratios>) -> Vec<Option<f64>> {
        let of = |ratio: fn(&Ratios) -> Spread| ratios.map(|ratios| ratio(ratios).median);
        match self {
            Self::Throughput => vec![of(|ratios| ratios.objects_per_second)],
            Self::Latency => vec![of(|ratios| ratios.p50), of(|ratios| ratios.p99)],
        }
    }
}

// === impl Sample ===

impl Sample {
    fn rate(&self) -> f64 {
        f64::from(self.count) / self.seconds
    }

    fn cpu_per_1000(&self) -> f64 {
        self.cpu_seconds * 1000.0 / f64::from(self.count)
    }

    fn kib(&self) -> Option<f64> {
        #[expect(clippy::cast_precision_loss, reason = "nobody sends 2^52 bytes")]
        let bytes = self.bytes? as f64;
        Some(bytes / 1024.0 / f64::from(self.count))
    }

    fn points(&self) -> Vec<(f64, f64)> {
        let points = self.latencies.iter();
        points.map(|(begin, latency)| (begin / 1000.0, ms(*latency))).collect()
    }
}

/// The latencies of the changes of all rounds.
fn times(samples: &[Sample]) -> Times {
    Times::of(samples.iter().flat_map(Sample::points).map(|(_, ms)| ms))
}

fn per_object(requests: usize, sample: &Sample) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "nobody sends 2^52 requests")]
    let requests = requests as f64;
    requests / f64::from(sample.count)
}

fn ms(us: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "nothing takes 2^52 microseconds")]
    let us = us as f64;
    us / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::sync::order::Percentiles;

    /// Of a hundred changes, of which fifty take `us`, forty twice as long, nine three times, and one four times.
    fn sample(seconds: f64, us: u64) -> Sample {
        let times = [vec![us; 50], vec![2 * us; 40], vec![3 * us; 9], vec![4 * us]];
        Sample {
            count: 100,
            seconds,
            latencies: times.concat().into_iter().map(|us| (0.0, us)).collect(),
            percentiles: Percentiles {
                p50: us,
                p90: 2 * us,
                p99: 3 * us,
                max: 4 * us,
            },
            cpu_seconds: 0.05,
            requests: 210,
            writes: 200,
            ..Sample::default()
        }
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        let floor = [sample(1.0, 1000), sample(2.0, 2000)];
        let ours = vec![sample(2.0, 1000), sample(2.0, 5000)];
        let row = Row::new("create".to_owned(), "konnector", ours, Some(&floor));
        assert_eq!((row.p50, row.p99, row.max), (4.0, 15.0, 20.0));
        let ratios = row.ratios.unwrap();
        assert_eq!(ratios.objects_per_second, Spread::of([0.5, 1.0]));
        assert_eq!(ratios.p50, Spread::of([1.0, 2.5]));
        assert_eq!(ratios.p99, ratios.p50);
    }

    #[test]
    fn a_table_tells_ours_from_the_floor() {
        let floor = vec![sample(1.0, 4000)];
        let rows = [
            Row::new("create".to_owned(), "konnector", vec![sample(2.0, 8000)], Some(&floor)),
            Row::new("create".to_owned(), "floor", floor, None),
        ];
        let table = Row::table(&rows, Judged::Latency).to_string();
        let lines: Vec<Vec<_>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(
            lines[1][..8],
            ["create", "konnector", "50", "2.00", "2.00", "8.0", "16.0", "24.0"]
        );
        assert_eq!(lines[2][..6], ["create", "floor", "100", "floor", "floor", "4.0"]);
        assert_eq!(lines[1][13], "2.10");
    }
}
