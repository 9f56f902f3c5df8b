//! Runs the jobs of a test run beside one another, as far as the cores go.

use std::{collections::VecDeque, thread, time::Instant};

use anyhow::{Result, bail};
use parking_lot::Mutex;

use super::{job::Job, report::TestTime};

/// How many test programs run at the same time. With the threads of each, they keep two cores busy. With three programs every
/// wait takes longer, and a run took a twentieth longer in all.
const PROGRAMS_AT_ONCE: usize = 2;

/// The jobs of a test run.
#[derive(Debug)]
pub(super) struct Lanes {
    /// Run one after the other.
    pub(super) checks: Vec<Job>,
    /// Run several at once.
    pub(super) programs: Vec<Job>,
}

/// What the workers of all lanes share.
#[derive(Debug, Default)]
struct Outcome {
    failed: Vec<String>,
    times: Vec<TestTime>,
}

impl Lanes {
    /// Runs all jobs and returns the times of their tests. After a job that failed no other begins.
    pub(super) fn run(self) -> Result<Vec<TestTime>> {
        let start = Instant::now();
        eprintln!("==> lints, docs and tests: {PROGRAMS_AT_ONCE} test programs at once");
        let outcome = Mutex::new(Outcome::default());
        let checks = Mutex::new(VecDeque::from(self.checks));
        let programs = Mutex::new(VecDeque::from(self.programs));
        thread::scope(|scope| {
            scope.spawn(|| work(&checks, &outcome));
            for _ in 0..PROGRAMS_AT_ONCE {
                scope.spawn(|| work(&programs, &outcome));
            }
        });
        let Outcome { failed, times } = outcome.into_inner();
        if !failed.is_empty() {
            bail!("failed: {}", failed.join(", "));
        }
        let seconds = start.elapsed().as_secs_f64();
        eprintln!("==> lints, docs and tests: done in {seconds:.0} s");
        Ok(times)
    }
}

/// Runs jobs of one lane until none is left or one of any lane has failed.
fn work(jobs: &Mutex<VecDeque<Job>>, outcome: &Mutex<Outcome>) {
    let next = || jobs.lock().pop_front().filter(|_| outcome.lock().failed.is_empty());
    while let Some(mut job) = next() {
        let ran = job.run();
        let mut outcome = outcome.lock();
        match ran {
            Ok(output) => outcome.times.extend(TestTime::read(&job, &output)),
            Err(error) => {
                eprintln!("==> {}: {error:#}", job.name);
                outcome.failed.push(job.name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn after_a_failure_no_job_of_its_lane_begins() {
        let job = |name: &str, program: &str| Job {
            name: format!("xtask {name}"),
            command: Command::new(program),
        };
        let lanes = Lanes {
            checks: vec![job("fails", "false"), job("never", "true")],
            programs: Vec::new(),
        };
        assert_eq!(lanes.run().unwrap_err().to_string(), "failed: xtask fails");
        let both = Lanes {
            checks: vec![job("passes", "true")],
            programs: vec![job("passes too", "true")],
        };
        assert!(both.run().unwrap().is_empty());
    }
}
