//! Runs one history, and tells what it violated.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};

use super::{Args, Format, broken, play_here};
use crate::{
    history::{History, shrink},
    invariants::Violation,
    play::Outcome,
    report::TrackRecord,
};

/// The most runs of shorter histories.
const SHRINK_RUNS: usize = 150;
/// No shorter history is tried after this wall time: one that hangs takes minutes.
const SHRINK_TIME_MAX: Duration = Duration::from_mins(5);
/// The folder of shortened histories and their traces.
const FOLDER: &str = "target/simulator";

/// Runs a history in this process. Returns whether nothing was violated but what is known.
pub(super) fn run(args: &Args, record: &TrackRecord, history: &History, print: &mut dyn FnMut(&str)) -> Result<bool> {
    // Before this process plays: after that its clocks and random bytes stay simulated.
    let short = if args.shrink {
        let violations = elsewhere(history, args.steps)?.violations;
        // The first new one; the first of all if each is known.
        let first = violations
            .iter()
            .min_by_key(|violation| record.explains(violation).is_some());
        first
            .map(|violation| shortest(history, args.steps, record, violation))
            .transpose()?
    } else {
        None
    };
    let stored = short.as_ref().map(|short| store(short, args.steps)).transpose()?;
    let history = short.as_ref().unwrap_or(history);
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
    if let Some(stored) = stored {
        print(&stored);
    }
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

/// The shortest history found that has such a violation, with one replica of each process if that suffices.
pub(super) fn shortest(
    history: &History,
    steps: Option<u64>,
    record: &TrackRecord,
    violation: &Violation,
) -> Result<History> {
    let start = Instant::now();
    let finding = |violation: &Violation| record.explains(violation).map(|entry| entry.id.clone());
    let mut failure = None;
    let mut fails = |shorter: &History| {
        if start.elapsed() > SHRINK_TIME_MAX {
            return false;
        }
        match elsewhere(shorter, steps) {
            Ok(outcome) => outcome
                .violations
                .iter()
                .any(|found| is_alike(finding, found, violation)),
            Err(error) => {
                failure.get_or_insert(error);
                false
            }
        }
    };
    let mut short = shrink(history, SHRINK_RUNS, &mut fails);
    let single = with_single_replicas(&short);
    if single != short && fails(&single) {
        short = single;
    }
    match failure {
        Some(error) => Err(error),
        None => Ok(short),
    }
}

fn with_single_replicas(history: &History) -> History {
    let mut single = history.clone();
    for provider in &mut single.topology.providers {
        provider.replicas = 1;
    }
    for consumer in &mut single.topology.consumers {
        consumer.replicas = 1;
    }
    single
}

/// Whether two violations are of one invariant, and the same finding explains both or no finding explains either.
fn is_alike(finding: impl Fn(&Violation) -> Option<String>, one: &Violation, other: &Violation) -> bool {
    one.invariant == other.invariant && finding(one) == finding(other)
}

/// Writes a shortened history and its trace to files. Returns a sentence that names them.
pub(super) fn store(history: &History, steps: Option<u64>) -> Result<String> {
    fs::create_dir_all(FOLDER).with_context(|| format!("cannot make {FOLDER}"))?;
    let path = |extension| format!("{FOLDER}/seed-{}.{extension}", history.seed);
    let (file, trace) = (path("json"), path("trace"));
    fs::write(&file, serde_json::to_string_pretty(history)?).with_context(|| format!("cannot write {file}"))?;
    let mut command = again(Path::new(&file), steps)?;
    let output = File::create(&trace).with_context(|| format!("cannot write {trace}"))?;
    command.arg("--trace").stdout(output);
    command.status().context("cannot run the simulator again")?;
    let steps = steps.map_or_else(String::new, |steps| format!(" --steps {steps}"));
    Ok(format!(
        "its trace is in {trace}, as printed by: simulator --history {file} --trace{steps}"
    ))
}

/// Plays a history in an operating-system process of its own.
fn elsewhere(history: &History, steps: Option<u64>) -> Result<Outcome> {
    let file = scratch()?;
    fs::write(&file, serde_json::to_string(history)?)?;
    let start = Instant::now();
    let output = again(&file, steps)?.args(["-o", "json"]).output();
    let time = start.elapsed();
    fs::remove_file(&file)?;
    let output = output.context("cannot run the simulator again")?;
    broken::outcome(history.seed, output.status.code(), time).map_or_else(|| read(&output), Ok)
}

/// The command that plays a stored history in another process.
fn again(file: &Path, steps: Option<u64>) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("--history").arg(file);
    command.args(steps.iter().flat_map(|steps| ["--steps".to_owned(), steps.to_string()]));
    Ok(command)
}

/// Reads what a run with `-o json` printed.
fn read(output: &std::process::Output) -> Result<Outcome> {
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
    fs::create_dir_all(&folder)?;
    Ok(folder.join(format!("history-{number}.json")))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{invariants::Invariant, users::Circumstance};

    fn violation(invariant: Invariant, circumstances: &[Circumstance]) -> Violation {
        Violation {
            invariant,
            at: 0,
            subject: String::new(),
            message: String::new(),
            circumstances: circumstances.iter().copied().collect::<BTreeSet<_>>(),
        }
    }

    #[test]
    fn a_violation_that_a_finding_explains_is_not_like_a_new_one() {
        let finding = |violation: &Violation| {
            let is_known = violation.circumstances.contains(&Circumstance::BindingEnds);
            is_known.then(|| "D9".to_owned())
        };
        let copy = Invariant::CopyEndedWithoutEvidence;
        let known = violation(copy, &[Circumstance::BindingEnds]);
        let new = violation(copy, &[Circumstance::SourceLives]);
        assert!(is_alike(finding, &new, &violation(copy, &[])));
        assert!(is_alike(finding, &known, &known));
        assert!(!is_alike(finding, &new, &known));
        assert!(!is_alike(finding, &new, &violation(Invariant::NotConverged, &[])));
    }
}
