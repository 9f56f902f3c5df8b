//! Runs one history, and tells what it violated.

use std::{path::PathBuf, process::Command};

use anyhow::{Context as _, Result, ensure};

use super::{Args, Format, play_here};
use crate::{
    history::{History, shrink},
    invariants::Invariant,
    play::Outcome,
    report::TrackRecord,
};

/// The most runs of shorter histories.
const SHRINK_RUNS: usize = 150;

/// Runs a history in this process. Returns whether nothing was violated but what is known.
pub(super) fn run(args: &Args, record: &TrackRecord, history: &History, print: &mut dyn FnMut(&str)) -> Result<bool> {
    // The simulation owns this process from here on, so what needs others is done by them.
    let shortest = if args.shrink {
        let outcome = elsewhere(history, args.steps)?;
        outcome
            .violations
            .first()
            .map(|first| shortest(history, args.steps, first.invariant))
            .transpose()?
    } else {
        None
    };
    let history = shortest.as_ref().unwrap_or(history);
    let (outcome, trace) = play_here(history, args.steps)?;
    let is_known = outcome
        .violations
        .iter()
        .all(|violation| record.explains(violation).is_some());
    if args.output == Some(Format::Json) {
        print(&serde_json::to_string(&outcome)?);
        return Ok(is_known);
    }
    print(&history.to_string());
    if args.trace {
        for line in trace.lines() {
            print(line);
        }
    }
    for violation in &outcome.violations {
        match record.explains(violation) {
            Some(entry) => print(&format!("known by {}: {violation}", entry.id)),
            None => print(&format!(
                "violation: seed {}: {}: {violation}",
                outcome.seed, violation.invariant
            )),
        }
    }
    print(&format!(
        "{} requests, {} steps, {} s of virtual time, trace {}",
        outcome.requests,
        outcome.steps,
        outcome.millis / 1000,
        outcome.trace_hash
    ));
    Ok(is_known)
}

/// The shortest history found that violates the same invariant.
pub(super) fn shortest(history: &History, steps: Option<u64>, invariant: Invariant) -> Result<History> {
    let mut failure = None;
    let short = shrink(history, SHRINK_RUNS, |shorter| match elsewhere(shorter, steps) {
        Ok(outcome) => outcome
            .violations
            .iter()
            .any(|violation| violation.invariant == invariant),
        Err(error) => {
            failure.get_or_insert(error);
            false
        }
    });
    match failure {
        Some(error) => Err(error),
        None => Ok(short),
    }
}

/// Plays a history in an operating-system process of its own.
pub(super) fn elsewhere(history: &History, steps: Option<u64>) -> Result<Outcome> {
    let file = scratch()?;
    std::fs::write(&file, serde_json::to_string(history)?)?;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("--history").arg(&file).args(["-o", "json"]);
    command.args(steps.iter().flat_map(|steps| ["--steps".to_owned(), steps.to_string()]));
    let output = command.output().context("cannot run the simulator again");
    std::fs::remove_file(&file)?;
    read(&output?)
}

/// Reads what a run with `-o json` printed.
pub(super) fn read(output: &std::process::Output) -> Result<Outcome> {
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().last().unwrap_or_default();
    ensure!(
        !line.is_empty(),
        "a run ended with {} and said nothing: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_str(line).with_context(|| format!("a run said {line:?}"))
}

/// A file for one history.
fn scratch() -> Result<PathBuf> {
    static NUMBER: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("bindery-simulator-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    Ok(folder.join(format!("history-{number}.json")))
}
