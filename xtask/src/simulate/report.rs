//! The table of mutants.

use std::{fmt, time::Duration};

use super::program::{SeedsRun, Violation};
use crate::bench::table::Table;

/// What is known of one mutant.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) mutant: String,
    pub(super) verdict: Verdict,
    /// The findings whose scenarios show them again.
    pub(super) reverted: String,
    seeds: u64,
    /// How long the build took.
    build: Duration,
    run: Duration,
}

/// What became of a mutant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// This violation shows the mutant.
    Found(Violation),
    /// No seed shows it.
    NotFound,
    /// It could not be run for this reason.
    Failed(String),
}

// === impl Row ===

impl Row {
    pub(super) fn new(mutant: &str, build: Duration) -> Self {
        Self {
            mutant: mutant.to_owned(),
            verdict: Verdict::NotFound,
            reverted: String::new(),
            seeds: 0,
            build,
            run: Duration::ZERO,
        }
    }

    /// Adds the seeds and the time of a run.
    pub(super) fn add(&mut self, run: &SeedsRun) {
        self.seeds += run.seeds;
        self.run += run.time;
    }

    pub(super) fn is_found(&self) -> bool {
        matches!(self.verdict, Verdict::Found(_))
    }

    fn cells(&self) -> [String; 7] {
        let (found_by, seed) = match &self.verdict {
            Verdict::Found(found) => (found.invariant.clone(), found.seed.to_string()),
            Verdict::NotFound => ("NOT FOUND".to_owned(), "-".to_owned()),
            Verdict::Failed(_) => ("FAILED".to_owned(), "-".to_owned()),
        };
        [
            self.mutant.clone(),
            found_by,
            seed,
            self.seeds.to_string(),
            format!("{:.0}", self.run.as_secs_f64()),
            format!("{:.0}", self.build.as_secs_f64()),
            if self.reverted.is_empty() {
                "-".to_owned()
            } else {
                self.reverted.clone()
            },
        ]
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.mutant)?;
        match &self.verdict {
            Verdict::Found(found) => write!(f, "{} by seed {}: {}", found.invariant, found.seed, found.sentence),
            Verdict::NotFound => write!(f, "NOT FOUND in {} seeds", self.seeds),
            Verdict::Failed(why) => write!(f, "FAILED: {why}"),
        }
    }
}

/// The table of all mutants, with how many of them were found.
pub(super) fn table(rows: &[Row]) -> String {
    let mut table = Table::new(
        &["mutant", "found by", "seed", "seeds run", "s", "build s", "reverts"],
        2,
    );
    for row in rows {
        table.line(row.cells());
    }
    let found = rows.iter().filter(|row| row.is_found()).count();
    format!("{table}\n{found} of {} mutants found\n", rows.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mutant_that_was_not_found_is_seen_at_once() {
        let mut found = Row::new("guard-off", Duration::from_secs(40));
        found.add(&SeedsRun {
            seeds: 18,
            time: Duration::from_secs(2),
            ..SeedsRun::default()
        });
        found.verdict = Verdict::Found(Violation {
            seed: 17,
            invariant: "evidence".to_owned(),
            sentence: "a copy ended".to_owned(),
        });
        found.reverted = "D2".to_owned();
        let lost = Row::new("queue-two-workers", Duration::ZERO);
        let mut failed = Row::new("watch-gap", Duration::ZERO);
        failed.verdict = Verdict::Failed("does not compile".to_owned());
        assert_eq!(failed.to_string(), "watch-gap: FAILED: does not compile");
        let expect = concat!(
            "mutant             found by   seed  seeds run  s  build s  reverts\n",
            "guard-off          evidence     17         18  2       40       D2\n",
            "queue-two-workers  NOT FOUND     -          0  0        0        -\n",
            "watch-gap          FAILED        -          0  0        0        -\n",
            "\n1 of 3 mutants found\n",
        );
        assert_eq!(table(&[found, lost, failed]), expect);
    }
}
