//! Runs many seeds, each in an operating-system process of its own, as many at a time as there are cores.

use std::{
    sync::{
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    thread,
};

use anyhow::{Result, anyhow};

use super::{Args, Format, forks::Forks, one};
use crate::{
    history::{beginning_of, generate, seeds_of_beginning},
    invariants::Violation,
    report::{Report, TrackRecord},
};

/// The most new violations whose histories are shortened and told.
const TOLD_MAX: usize = 1;
/// What the message begins with of a violation that the topology alone shows.
const BEFORE_HISTORY: &str = "before the history began";

/// Runs the seeds. Returns whether nothing was violated but what is known, and enough happened.
pub(super) fn run(args: &Args, record: &TrackRecord, print: &mut dyn FnMut(&str)) -> Result<bool> {
    let jobs = args
        .jobs
        .or_else(|| thread::available_parallelism().map(usize::from).ok())
        .unwrap_or(1);
    let (next, stop) = (AtomicU64::new(beginning_of(args.first)), AtomicBool::new(false));
    let end = args.first.saturating_add(args.seeds);
    let mut report = Report::default();
    let mut told = 0;
    let mut ran = 0_u64;
    thread::scope(|scope| -> Result<()> {
        let (sender, receiver) = mpsc::channel();
        for _ in 0..jobs.max(1) {
            let sender = sender.clone();
            let (next, stop) = (&next, &stop);
            scope.spawn(move || {
                let mut forks = Forks::start(args);
                while !stop.load(Ordering::Relaxed) {
                    let all = seeds_of_beginning(next.fetch_add(1, Ordering::Relaxed));
                    let mut seeds = all.start.max(args.first)..all.end.min(end);
                    if seeds.is_empty() {
                        return;
                    }
                    let mut begun = match &mut forks {
                        Ok(forks) => forks.play(&seeds).map(|()| forks),
                        Err(error) => Err(anyhow!("{error:#}")),
                    };
                    let is_received = seeds.all(|seed| {
                        let outcome = match &mut begun {
                            Ok(forks) => forks.next(seed),
                            Err(error) => Err(anyhow!("{error:#}")),
                        };
                        !stop.load(Ordering::Relaxed) && sender.send((seed, outcome)).is_ok()
                    });
                    if !is_received {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for (seed, outcome) in receiver {
            let (outcome, time) = match outcome {
                Ok(played) => played,
                Err(error) => {
                    stop.store(true, Ordering::Relaxed);
                    return Err(error.context(format!("seed {seed}")));
                }
            };
            ran += 1;
            report.core_seconds += time.as_secs_f64();
            for violation in report.add(record, &outcome) {
                print(&format!("violation: seed {seed}: {}: {violation}", violation.invariant));
                if is_awaited(args, &violation) {
                    stop.store(true, Ordering::Relaxed);
                }
                if told < TOLD_MAX && args.until_violation.is_none() && args.output.is_none() {
                    told += 1;
                    let history = generate(seed, args.actions);
                    let short = one::shortest(&history, args.steps, record, &violation)?;
                    print(&format!(
                        "the shortest history found, of {} events:\n{short}",
                        short.events.len()
                    ));
                    print(&one::store(&short, args.steps)?);
                }
            }
        }
        Ok(())
    })?;
    let short = report.shortfalls();
    if args.output == Some(Format::Json) {
        print(&serde_json::to_string(&report.json())?);
    } else {
        print(report.to_string().trim_end());
        for line in &short {
            print(&format!("too little: {line}"));
        }
    }
    print(&format!("seeds: {ran}"));
    Ok(report.unknown().is_empty() && (short.is_empty() || args.until_violation.is_some()))
}

/// Whether the run is to stop at a violation that the track record does not list.
fn is_awaited(args: &Args, violation: &Violation) -> bool {
    let is_named = |names: &Vec<_>| names.is_empty() || names.contains(&violation.invariant);
    args.until_violation.as_ref().is_some_and(is_named) && !violation.message.starts_with(BEFORE_HISTORY)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::Parser as _;

    use super::*;
    use crate::invariants::Invariant;

    #[track_caller]
    fn check(options: &[&str], invariant: Invariant, message: &str, expect: bool) {
        let args = Args::parse_from(["simulator"].iter().chain(options));
        let violation = Violation {
            invariant,
            at: 0,
            subject: String::new(),
            message: message.to_owned(),
            circumstances: BTreeSet::new(),
        };
        assert_eq!(is_awaited(&args, &violation), expect, "{options:?}");
    }

    #[test]
    fn a_run_stops_at_the_invariants_that_are_named() {
        let named = ["--until-violation", "Hang,NotConverged"];
        let before = "before the history began: it differs";
        check(&named, Invariant::NotConverged, "it differs", true);
        check(&named, Invariant::NotConverged, before, false);
        check(&named, Invariant::NotAtRest, "it was written", false);
        check(&["--until-violation"], Invariant::NotAtRest, "it was written", true);
        check(&[], Invariant::NotAtRest, "it was written", false);
    }

    #[test]
    fn an_invariant_that_does_not_exist_is_refused() {
        assert!(Args::try_parse_from(["simulator", "--until-violation", "Nothing"]).is_err());
    }
}
