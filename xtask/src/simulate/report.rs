//! The table of mutants.

use std::{fmt, time::Duration};

use super::program::{SeedsRun, Violation};
use crate::bench::table::Table;

/// What is known of one mutant.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) mutant: String,
    /// What found it.
    pub(super) violation: Option<Violation>,
    seeds: u64,
    build: Duration,
    run: Duration,
}

// === impl Row ===

impl Row {
    pub(super) fn new(mutant: &str, build: Duration) -> Self {
        Self {
            mutant: mutant.to_owned(),
            violation: None,
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
        self.violation.is_some()
    }

    fn cells(&self) -> [String; 6] {
        let violation = self.violation.as_ref();
        [
            self.mutant.clone(),
            violation.map_or_else(|| "NOT FOUND".to_owned(), |found| found.invariant.clone()),
            violation.map_or_else(|| "-".to_owned(), |found| found.seed.to_string()),
            self.seeds.to_string(),
            format!("{:.0}", self.run.as_secs_f64()),
            format!("{:.0}", self.build.as_secs_f64()),
        ]
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.violation {
            None => write!(f, "{}: NOT FOUND in {} seeds", self.mutant, self.seeds),
            Some(found) => {
                let Violation {
                    seed,
                    invariant,
                    sentence,
                } = found;
                write!(f, "{}: {invariant} by seed {seed}: {sentence}", self.mutant)
            }
        }
    }
}

/// The table of all mutants, with how many of them were found.
pub(super) fn table(rows: &[Row]) -> String {
    let mut table = Table::new(&["mutant", "found by", "seed", "seeds run", "s", "build s"], 2);
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
            violation: None,
            seeds: 18,
            time: Duration::from_secs(2),
        });
        found.violation = Some(Violation {
            seed: 17,
            invariant: "evidence".to_owned(),
            sentence: "a copy ended".to_owned(),
        });
        let lost = Row::new("queue-two-workers", Duration::from_secs(41));
        let expect = concat!(
            "mutant             found by   seed  seeds run  s  build s\n",
            "guard-off          evidence     17         18  2       40\n",
            "queue-two-workers  NOT FOUND     -          0  0       41\n",
            "\n1 of 2 mutants found\n",
        );
        assert_eq!(table(&[found, lost]), expect);
    }
}
