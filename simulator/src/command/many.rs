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
    history::generate,
    report::{Report, TrackRecord},
};

/// The most new violations whose histories are shortened and told.
const TOLD_MAX: usize = 1;

/// Runs the seeds. Returns whether nothing was violated but what is known, and enough happened.
pub(super) fn run(args: &Args, record: &TrackRecord, print: &mut dyn FnMut(&str)) -> Result<bool> {
    let jobs = args
        .jobs
        .or_else(|| thread::available_parallelism().map(usize::from).ok())
        .unwrap_or(1);
    let (next, stop) = (AtomicU64::new(args.first), AtomicBool::new(false));
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
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        return;
                    }
                    let outcome = match &mut forks {
                        Ok(forks) => forks.play(seed),
                        Err(error) => Err(anyhow!("{error:#}")),
                    };
                    if sender.send((seed, outcome)).is_err() {
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
                if args.until_violation {
                    stop.store(true, Ordering::Relaxed);
                } else if told < TOLD_MAX && args.output.is_none() {
                    told += 1;
                    let history = generate(seed, args.actions);
                    let short = one::shortest(&history, args.steps, violation.invariant)?;
                    print(&format!(
                        "the shortest history found, of {} events:\n{short}",
                        short.events.len()
                    ));
                    print(&format!(
                        "its trace: simulator --seed {seed} --actions {} --trace",
                        args.actions
                    ));
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
    Ok(report.unknown().is_empty() && (short.is_empty() || args.until_violation))
}
