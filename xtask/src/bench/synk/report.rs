//! The report of the benchmarks of synk. Each step has a row for every contestant: synk, the bare client (the floor), and
//! kubectl.

use serde::Serialize;

use super::super::{Report as Printed, measure::Cost, spread::Spread, table::Table};

/// The result of a benchmark.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    /// Name of the benchmark.
    pub(super) bench: &'static str,
    /// The flags of the run.
    pub(super) settings: serde_json::Value,
    pub(super) rows: Vec<Row>,
    /// Sentences that explain the table.
    pub(super) notes: Vec<String>,
    /// Why the result is not good enough.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) missed: Option<String>,
}

/// The measurements of one step by one contestant.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Row {
    pub(super) step: &'static str,
    pub(super) by: &'static str,
    pub(super) seconds: Spread,
    /// The time divided by that of the floor in the same round, since the machine may be slower in another round. `None`
    /// for the floor itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ratio: Option<Spread>,
    pub(super) objects_per_second: f64,
    pub(super) cpu_seconds: f64,
    pub(super) max_rss_mib: f64,
    pub(super) reads: usize,
    pub(super) writes: usize,
}

/// One run of a step by one contestant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) cost: Cost,
    pub(super) reads: usize,
    pub(super) writes: usize,
}

// === impl Row ===

impl Row {
    /// Sums up the runs of one contestant. `floor` has the runs of the floor in the same order; `objects` is the number of
    /// objects of a run.
    pub(super) fn new(
        step: &'static str,
        by: &'static str,
        objects: usize,
        samples: &[Sample],
        floor: Option<&[Sample]>,
    ) -> Self {
        let of = |read: fn(&Cost) -> f64| Spread::of(samples.iter().map(|sample| read(&sample.cost)));
        let seconds = of(|cost| cost.seconds);
        let ratio = floor.map(|floor| {
            let pairs = samples.iter().zip(floor);
            Spread::of(pairs.map(|(ours, floor)| ours.cost.seconds / floor.cost.seconds))
        });
        #[expect(clippy::cast_precision_loss, reason = "nobody applies 2^52 objects")]
        let objects = objects as f64;
        Self {
            step,
            by,
            seconds,
            ratio,
            objects_per_second: objects / seconds.median,
            cpu_seconds: of(|cost| cost.cpu_seconds).median,
            max_rss_mib: of(|cost| cost.max_rss_mib).max,
            reads: samples.iter().map(|sample| sample.reads).max().unwrap_or(0),
            writes: samples.iter().map(|sample| sample.writes).max().unwrap_or(0),
        }
    }

    fn cells(&self) -> [String; 11] {
        let seconds = |seconds: f64| format!("{seconds:.3}");
        [
            self.step.to_owned(),
            self.by.to_owned(),
            seconds(self.seconds.median),
            seconds(self.seconds.min),
            seconds(self.seconds.max),
            self.ratio
                .map_or_else(|| "floor".to_owned(), |ratio| format!("{:.2}", ratio.median)),
            format!("{:.0}", self.objects_per_second),
            format!("{:.2}", self.cpu_seconds),
            format!("{:.0}", self.max_rss_mib),
            self.reads.to_string(),
            self.writes.to_string(),
        ]
    }
}

// === impl Report ===

impl Printed for Report {
    fn table(&self) -> String {
        let head = [
            "step",
            "by",
            "median s",
            "min",
            "max",
            "ratio",
            "objects/s",
            "CPU s",
            "MiB",
            "reads",
            "writes",
        ];
        let mut table = Table::new(&head, 2);
        for row in &self.rows {
            table.line(row.cells());
        }
        format!("{table}{}\n", self.notes.join("\n"))
    }

    fn missed(&self) -> Option<String> {
        self.missed.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(seconds: f64) -> Sample {
        Sample {
            cost: Cost {
                seconds,
                cpu_seconds: 0.5,
                max_rss_mib: 30.0,
            },
            reads: 4,
            writes: 1000,
        }
    }

    #[test]
    fn a_ratio_is_taken_run_by_run() {
        let (ours, floor) = ([2.0, 9.0, 3.0].map(sample), [2.0, 6.0, 1.0].map(sample));
        let row = Row::new("first apply", "synk", 1000, &ours, Some(&floor));
        let expect = Spread {
            median: 1.5,
            min: 1.0,
            max: 3.0,
        };
        assert_eq!(row.ratio, Some(expect));
        assert_eq!(row.seconds.median.to_bits(), 3.0_f64.to_bits());
    }

    #[test]
    fn a_table_has_its_columns_in_line() {
        let samples = [sample(2.0)];
        let report = Report {
            bench: "synk",
            settings: serde_json::Value::Null,
            rows: vec![
                Row::new("first apply", "synk", 1000, &samples, Some(&samples)),
                Row::new("first apply", "bare client", 1000, &samples, None),
            ],
            notes: vec!["by itself".to_owned()],
            missed: None,
        };
        let expect = concat!(
            "step         by           median s    min    max  ratio  objects/s  CPU s  MiB  reads  writes\n",
            "first apply  synk            2.000  2.000  2.000   1.00        500   0.50   30      4    1000\n",
            "first apply  bare client     2.000  2.000  2.000  floor        500   0.50   30      4    1000\n",
            "by itself\n",
        );
        assert_eq!(report.table(), expect);
    }
}
