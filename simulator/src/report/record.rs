//! The track record: what was found, and what of it is open.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::{
    invariants::{Invariant, Violation},
    users::Circumstance,
};

/// The record as the tree has it.
const RECORD: &str = include_str!("../../track-record.json");

/// If a finding is mended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// The command still shows it.
    Open,
    /// The command does not show it any more.
    Mended,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Short name, which is that of the scenario.
    pub id: String,
    /// What is wrong, in a sentence.
    pub what: String,
    /// Since when it is so: a version or a commit.
    pub since: String,
    /// What found it.
    pub found_by: String,
    /// The command that shows it.
    pub command: String,
    /// The violations that this finding explains: each is a pair of invariants and circumstances.
    pub explains: Vec<Explanation>,
    /// Whether it is mended.
    pub state: State,
}

/// Violations that a finding explains. A violation is among them if it is of one of the invariants, has all circumstances of
/// `when`, and none of `unless`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Explanation {
    /// The invariants that are violated.
    pub violates: BTreeSet<Invariant>,
    /// Circumstances that such a violation has.
    pub when: BTreeSet<Circumstance>,
    /// Circumstances in which a violation is something else.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub unless: BTreeSet<Circumstance>,
    /// What shows a violation of each of the invariants.
    pub shown_by: ShownBy,
}

/// What shows a violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ShownBy {
    /// The scenario of the finding. A test asserts it while the finding is open.
    Scenario,
    /// Random seeds.
    Seeds,
}

/// All findings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrackRecord {
    /// The findings, in the order of their ids.
    pub findings: Vec<Entry>,
}

impl TrackRecord {
    /// The record of this tree.
    pub fn read() -> Result<Self, serde_json::Error> {
        serde_json::from_str(RECORD)
    }

    /// The finding of this id.
    pub fn find(&self, id: &str) -> Option<&Entry> {
        self.findings.iter().find(|entry| entry.id == id)
    }

    /// The open finding that explains a violation; the first one if several do.
    pub fn explains(&self, violation: &Violation) -> Option<&Entry> {
        self.findings
            .iter()
            .find(|entry| entry.state == State::Open && entry.is_shown_by(violation))
    }
}

impl Entry {
    /// Whether a violation shows this finding: one of its explanations covers the violation.
    pub fn is_shown_by(&self, violation: &Violation) -> bool {
        self.explains.iter().any(|explanation| explanation.covers(violation))
    }
}

impl Explanation {
    /// Whether a violation is among those that this explains.
    pub fn covers(&self, violation: &Violation) -> bool {
        self.violates.contains(&violation.invariant)
            && self.when.is_subset(&violation.circumstances)
            && self.unless.is_disjoint(&violation.circumstances)
    }
}
