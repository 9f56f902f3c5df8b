//! The track record is true: what it lists as open is found, what it lists as mended is not, and the page lists the same.

use std::process::Command;

use bindery_simulator::{
    play::Outcome,
    report::{Entry, State, TrackRecord},
    scenarios,
};

/// The page for people.
const PAGE: &str = include_str!("../../docs/track-record.md");

/// Runs a scenario in a process of its own.
fn outcome(entry: &Entry) -> Outcome {
    let mut command = Command::new(env!("CARGO_BIN_EXE_simulator"));
    let output = command.args(["--scenario", &entry.id, "-o", "json"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    serde_json::from_str(text.lines().last().unwrap_or_default())
        .unwrap_or_else(|error| panic!("{}: {error}", entry.id))
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
        let outcome = outcome(entry);
        // Of what is open, no other finding may explain it first.
        let is_its = |violation| match entry.state {
            State::Open => record.explains(violation) == Some(entry),
            State::Mended => entry.is_shown_by(violation),
        };
        let is_found = outcome.violations.iter().any(is_its);
        match (entry.state, is_found) {
            (State::Open, false) => wrong.push(format!("{} is listed as open and was not found", entry.id)),
            (State::Mended, true) => wrong.push(format!("{} is listed as mended and was found", entry.id)),
            _ => {}
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
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
