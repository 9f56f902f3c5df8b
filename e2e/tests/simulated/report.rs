//! What a run says in the end.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use crate::run::{Difference, Outcome};

/// How many differences are printed whole: those that differ from one another.
const SHOWN: usize = 60;

#[derive(Debug, Default)]
pub(crate) struct Report {
    sequences: usize,
    requests: usize,
    events: usize,
    settled: usize,
    statuses: BTreeMap<u16, usize>,
    subjects: BTreeMap<&'static str, usize>,
    pub(crate) differences: Vec<Difference>,
    /// Sequences whose state on the real control plane changed after their end.
    pub(crate) restless: Vec<String>,
    pub(crate) took: Duration,
}

impl Report {
    pub(crate) fn add(&mut self, subjects: &[&'static str], outcome: Outcome) {
        self.sequences += 1;
        self.requests += outcome.requests;
        self.events += outcome.events;
        self.settled += outcome.settled;
        for (status, count) in outcome.statuses {
            *self.statuses.entry(status).or_default() += count;
        }
        for subject in subjects {
            *self.subjects.entry(subject).or_default() += 1;
        }
        self.differences.extend(outcome.differences);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut differences: Vec<_> = self.differences.iter().collect();
        differences.sort_by_key(|difference| difference.seed);
        let mut shown = BTreeSet::new();
        for difference in differences.iter().filter(|it| shown.insert(it.sort())).take(SHOWN) {
            writeln!(f, "{difference}\n")?;
        }
        let mut paths: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
        for difference in &differences {
            paths.entry(difference.path()).or_default().push(difference.seed);
        }
        for (path, seeds) in &paths {
            let some: Vec<_> = seeds.iter().take(8).map(ToString::to_string).collect();
            writeln!(f, "differs {} times at {path}: seeds {}", seeds.len(), some.join(", "))?;
        }
        for sequence in &self.restless {
            writeln!(f, "changed after its end: {sequence}")?;
        }
        let subjects: Vec<_> = self
            .subjects
            .iter()
            .map(|(name, count)| format!("{name} {count}"))
            .collect();
        writeln!(f, "subjects: {}", subjects.join(", "))?;
        let statuses: Vec<_> = self
            .statuses
            .iter()
            .map(|(status, count)| format!("{status} {count}"))
            .collect();
        writeln!(f, "answers by status: {}", statuses.join(", "))?;
        write!(
            f,
            "simulated: {} sequences, {} requests, {} watch events, {} states compared, {} differences, in {:.1} s",
            self.sequences,
            self.requests,
            self.events,
            self.settled,
            self.differences.len() + self.restless.len(),
            self.took.as_secs_f64(),
        )
    }
}
