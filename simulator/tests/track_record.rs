//! The track record is true: what it lists as open is found, what it lists as mended is not, and the page lists the same.

use std::process::Command;

use anyhow::{Context as _, Result};
use bindery_simulator::{
    invariants::Violation,
    play::Outcome,
    report::{Entry, ShownBy, State, TrackRecord},
    scenarios,
};

/// The page for people.
const PAGE: &str = include_str!("../../docs/track-record.md");

/// Runs a scenario in a process of its own.
fn outcome(entry: &Entry) -> Result<Outcome> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_simulator"));
    let output = command.args(["--scenario", &entry.id, "-o", "json"]).output()?;
    let text = String::from_utf8(output.stdout)?;
    serde_json::from_str(text.lines().last().unwrap_or_default()).with_context(|| entry.id.clone())
}

/// The violations of an open finding that its scenario is listed to show, and that were not found. No other finding may explain
/// a violation first.
fn not_found(record: &TrackRecord, entry: &Entry, outcome: &Outcome) -> Vec<String> {
    let is_its = |violation: &&Violation| record.explains(violation) == Some(entry);
    let found: Vec<_> = outcome.violations.iter().filter(is_its).collect();
    let by_scenario = entry.explains.iter().filter(|one| one.shown_by == ShownBy::Scenario);
    let mut wrong = Vec::new();
    for explanation in by_scenario {
        for invariant in &explanation.violates {
            let is_found = found
                .iter()
                .any(|violation| violation.invariant == *invariant && explanation.covers(violation));
            if !is_found {
                let when = &explanation.when;
                wrong.push(format!(
                    "{}: {invariant} in {when:?} is listed as open and was not found",
                    entry.id
                ));
            }
        }
    }
    wrong
}

#[test]
fn what_is_open_is_found_and_what_is_mended_is_not() {
    let record = TrackRecord::read().unwrap();
    let mut wrong = Vec::new();
    for entry in &record.findings {
        if scenarios::find(&entry.id).is_none() {
            wrong.push(format!("{} has no scenario", entry.id));
            continue;
        }
        let outcome = outcome(entry).unwrap();
        match entry.state {
            State::Open => wrong.extend(not_found(&record, entry, &outcome)),
            State::Mended => {
                if outcome.violations.iter().any(|violation| entry.is_shown_by(violation)) {
                    wrong.push(format!("{} is listed as mended and was found", entry.id));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn each_open_finding_has_something_that_its_scenario_shows() {
    let record = TrackRecord::read().unwrap();
    for entry in record.findings.iter().filter(|entry| entry.state == State::Open) {
        let is_shown = entry.explains.iter().any(|one| one.shown_by == ShownBy::Scenario);
        assert!(is_shown, "{}", entry.id);
    }
}

#[test]
fn the_page_lists_what_the_record_lists() {
    let record = TrackRecord::read().unwrap();
    for entry in &record.findings {
        let state = match entry.state {
            State::Open => "*open*",
            State::Mended => "mended",
        };
        let line = PAGE.lines().find(|line| line.starts_with(&format!("| {} |", entry.id)));
        let line = line.unwrap_or_else(|| panic!("docs/track-record.md does not list {}", entry.id));
        assert!(line.contains(&entry.what), "{}: {line}", entry.id);
        assert!(line.contains(&entry.command), "{}: {line}", entry.id);
        assert!(line.contains(state), "{}: {line}", entry.id);
    }
    let rows = PAGE
        .lines()
        .filter(|line| line.starts_with("| ") && line.contains("--scenario"));
    assert_eq!(rows.count(), record.findings.len());
}
