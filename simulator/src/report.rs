//! What many seeds showed: how much happened in them, which violations were found, and which of these are known.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use crate::{
    faults::Fault,
    invariants::{Invariant, Violation},
    play::Outcome,
    users::{Action, Circumstance},
};

mod record;

pub use record::{Entry, Explanation, ShownBy, State, TrackRecord};

/// Each kind of event has to be in at least one of this many seeds.
const SHARE: usize = 100;
/// The least median of requests of a seed.
const REQUESTS_MIN: usize = 300;
/// The least median of faults of a seed.
const FAULTS_MIN: usize = 3;
/// Shares and medians of fewer seeds say nothing.
const SEEDS_MIN: usize = 500;

/// Figures of a run over many seeds.
#[derive(Debug, Default)]
pub struct Report {
    seeds: usize,
    requests: Vec<usize>,
    faults: Vec<usize>,
    steps: u64,
    kinds: BTreeMap<String, usize>,
    known: BTreeMap<(String, Invariant), usize>,
    not_shown: BTreeSet<Pair>,
    unknown: Vec<(u64, Violation)>,
    /// Seconds of one core that the seeds took.
    pub core_seconds: f64,
}

/// The id of a finding with a pair of an invariant and circumstances that it lists.
type Pair = (String, Invariant, BTreeSet<Circumstance>);

impl Report {
    /// Adds the outcome of a seed. Returns the violations that the track record does not list as open.
    pub fn add(&mut self, record: &TrackRecord, outcome: &Outcome) -> Vec<Violation> {
        if self.seeds == 0 {
            self.not_shown = pairs(record);
        }
        self.seeds += 1;
        self.requests.push(outcome.requests);
        self.faults.push(outcome.faults);
        self.steps += outcome.steps;
        for kind in &outcome.kinds {
            *self.kinds.entry(kind.clone()).or_default() += 1;
        }
        let mut unknown = Vec::new();
        for violation in &outcome.violations {
            if let Some(entry) = record.explains(violation) {
                *self.known.entry((entry.id.clone(), violation.invariant)).or_default() += 1;
                for explanation in entry.explains.iter().filter(|one| one.covers(violation)) {
                    let pair = (entry.id.clone(), violation.invariant, explanation.when.clone());
                    self.not_shown.remove(&pair);
                }
            } else {
                self.unknown.push((outcome.seed, violation.clone()));
                unknown.push(violation.clone());
            }
        }
        unknown
    }

    /// The violations that the track record does not list as open, with their seeds.
    pub fn unknown(&self) -> &[(u64, Violation)] {
        &self.unknown
    }

    /// What is too rare or too little in the run. Empty if all is well, or if there were too few seeds to tell.
    pub fn shortfalls(&self) -> Vec<String> {
        if self.seeds < SEEDS_MIN {
            return Vec::new();
        }
        let mut short = Vec::new();
        for kind in Action::KINDS.iter().chain(&Fault::KINDS) {
            let count = self.kinds.get(*kind).copied().unwrap_or_default();
            if count * SHARE < self.seeds {
                short.push(format!(
                    "{kind:?} is in {count} of {} seeds, which is less than 1 %",
                    self.seeds
                ));
            }
        }
        for (what, values, least) in [
            ("requests", &self.requests, REQUESTS_MIN),
            ("faults", &self.faults, FAULTS_MIN),
        ] {
            let median = median(values);
            if median < least {
                short.push(format!(
                    "the median of {what} of a seed is {median}, which is less than {least}"
                ));
            }
        }
        short
    }

    /// The figures as JSON.
    pub fn json(&self) -> serde_json::Value {
        let known: BTreeMap<_, _> = self
            .known
            .iter()
            .map(|((id, invariant), count)| (format!("{id} {invariant}"), count))
            .collect();
        let unknown: Vec<_> = self
            .unknown
            .iter()
            .map(|(seed, violation)| serde_json::json!({"seed": seed, "violation": violation}))
            .collect();
        serde_json::json!({
            "seeds": self.seeds,
            "requests": {"sum": self.requests.iter().sum::<usize>(), "median": median(&self.requests)},
            "faults": {"median": median(&self.faults)},
            "steps": self.steps,
            "coreSeconds": self.core_seconds,
            "kinds": self.kinds,
            "known": known,
            "unknown": unknown,
            "shortfalls": self.shortfalls(),
        })
    }
}

/// What random seeds have to show of the open findings of a record.
fn pairs(record: &TrackRecord) -> BTreeSet<Pair> {
    let mut pairs = BTreeSet::new();
    for entry in record.findings.iter().filter(|entry| entry.state == State::Open) {
        for explanation in entry.explains.iter().filter(|one| one.shown_by == ShownBy::Seeds) {
            let pair = |invariant: &Invariant| (entry.id.clone(), *invariant, explanation.when.clone());
            pairs.extend(explanation.violates.iter().map(pair));
        }
    }
    pairs
}

fn median(values: &[usize]) -> usize {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

impl fmt::Display for Report {
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let requests: usize = self.requests.iter().sum();
        let percent = |count: usize| 100.0 * count as f64 / self.seeds.max(1) as f64;
        writeln!(f, "share of seeds with each user action:")?;
        for kind in Action::KINDS {
            let count = self.kinds.get(kind).copied().unwrap_or_default();
            writeln!(f, "  {kind:<26} {:>5.1} %", percent(count))?;
        }
        writeln!(f, "share of seeds with each fault:")?;
        for kind in Fault::KINDS {
            let count = self.kinds.get(kind).copied().unwrap_or_default();
            writeln!(f, "  {kind:<26} {:>5.1} %", percent(count))?;
        }
        writeln!(
            f,
            "median of requests of a seed: {}, of faults: {}",
            median(&self.requests),
            median(&self.faults)
        )?;
        if self.core_seconds > 0.0 {
            writeln!(
                f,
                "{requests} requests, {} steps; {:.0} requests per second and core, {:.3} s of a core per seed",
                self.steps,
                requests as f64 / self.core_seconds,
                self.core_seconds / self.seeds.max(1) as f64,
            )?;
        }
        for ((id, invariant), count) in &self.known {
            writeln!(f, "known: {invariant} by {id}: {count}")?;
        }
        for (id, invariant, when) in self.not_shown.iter().filter(|_| self.seeds >= SEEDS_MIN) {
            writeln!(f, "not shown by these seeds: {invariant} by {id} in {when:?}")?;
        }
        let mut counts: BTreeMap<Invariant, usize> = BTreeMap::new();
        for (_, violation) in &self.unknown {
            *counts.entry(violation.invariant).or_default() += 1;
        }
        for (invariant, count) in counts {
            writeln!(f, "new: {invariant}: {count}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
