//! What a run says in the end.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use anyhow::{Result, ensure};

use crate::{
    generate::{self, step::Sequence},
    run::{Difference, Outcome, Requests},
};

/// A run of this many sequences has each subject.
const ALL_SUBJECTS: usize = 200;

/// The most requests that may be skipped, in percent: they lack a value of an earlier answer, such as the page after the last one.
const SKIPPED_MAX: usize = 5;

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
    by_subject: BTreeMap<&'static str, Requests>,
    pub(crate) differences: Vec<Difference>,
    /// Sequences whose state on the real control plane changed after their end.
    pub(crate) restless: Vec<String>,
    pub(crate) took: Duration,
}

impl Report {
    pub(crate) fn add(&mut self, sequence: &Sequence, outcome: Outcome) {
        self.sequences += 1;
        self.requests += outcome.requests;
        self.events += outcome.events;
        self.settled += outcome.settled;
        for (status, count) in outcome.statuses {
            *self.statuses.entry(status).or_default() += count;
        }
        for (subject, _) in &sequence.subjects {
            *self.subjects.entry(subject).or_default() += 1;
        }
        for (subject, requests) in outcome.by_subject {
            let all = self.by_subject.entry(subject).or_default();
            all.sent += requests.sent;
            all.skipped += requests.skipped;
        }
        self.differences.extend(outcome.differences);
    }

    /// Fails if the API servers differ, or if the run shows too little: a subject of whose requests none was sent, or too many
    /// requests that were skipped.
    pub(crate) fn check(&self) -> Result<()> {
        ensure!(
            self.differences.is_empty() && self.restless.is_empty(),
            "the API servers differ"
        );
        let sent = |subject: &str| self.by_subject.get(subject).map_or(0, |requests| requests.sent);
        let begun = self.subjects.keys().copied();
        let absent: Vec<_> = if self.sequences >= ALL_SUBJECTS && self.subjects.len() > 1 {
            generate::subjects().filter(|subject| sent(subject) == 0).collect()
        } else {
            begun.filter(|subject| sent(subject) == 0).collect()
        };
        ensure!(absent.is_empty(), "no request was sent about {}", absent.join(", "));
        let skipped: usize = self.by_subject.values().map(|requests| requests.skipped).sum();
        ensure!(
            skipped * 100 <= (self.requests + skipped) * SKIPPED_MAX,
            "{skipped} requests were skipped, more than {SKIPPED_MAX} % of all"
        );
        Ok(())
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
        let skipped: Vec<_> = self
            .by_subject
            .iter()
            .filter(|(_, requests)| requests.skipped > 0)
            .map(|(name, requests)| format!("{name} {} of {}", requests.skipped, requests.sent + requests.skipped))
            .collect();
        writeln!(f, "requests skipped: {}", skipped.join(", "))?;
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
