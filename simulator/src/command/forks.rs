//! Plays seeds in forks of one process, which has done before what all seeds have in common.

use std::{
    io::{self, BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use bindery_simulator_host::in_child;
use nix::sys::{
    resource::{UsageWho, getrusage},
    time::TimeValLike as _,
};

use super::{Args, broken, play_here};
use crate::{history::generate, play::Outcome, world};

/// A process of this program that plays one seed after the other.
#[derive(Debug)]
pub(super) struct Forks {
    process: Child,
    seeds: Option<ChildStdin>,
    outcomes: BufReader<ChildStdout>,
}

impl Forks {
    /// Starts such a process.
    pub(super) fn start(args: &Args) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--seeds-of-stdin", "--actions", &args.actions.to_string()]);
        command.args(
            args.steps
                .iter()
                .flat_map(|steps| ["--steps".to_owned(), steps.to_string()]),
        );
        // Standard error is discarded; a run of the seed alone shows it.
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut process = command.spawn().context("cannot run the simulator again")?;
        let seeds = process.stdin.take();
        let outcomes = process.stdout.take().context("no standard output")?;
        Ok(Self {
            process,
            seeds,
            outcomes: BufReader::new(outcomes),
        })
    }

    /// Plays a seed. Returns what became of it, and the time of a core that it took.
    pub(super) fn play(&mut self, seed: u64) -> Result<(Outcome, Duration)> {
        let seeds = self.seeds.as_mut().context("no standard input")?;
        writeln!(seeds, "{seed}")?;
        seeds.flush()?;
        let (outcome, micros) = (self.line(seed)?, self.line(seed)?);
        let outcome = serde_json::from_str(&outcome).with_context(|| format!("it said {outcome:?}"))?;
        let micros = micros.trim().parse().with_context(|| format!("it said {micros:?}"))?;
        Ok((outcome, Duration::from_micros(micros)))
    }

    fn line(&mut self, seed: u64) -> Result<String> {
        let mut line = String::new();
        self.outcomes.read_line(&mut line)?;
        let is_whole = line.ends_with('\n');
        ensure!(is_whole, "it did not come to its end: see simulator --seed {seed}");
        Ok(line)
    }
}

impl Drop for Forks {
    fn drop(&mut self) {
        // It ends with its standard input.
        self.seeds = None;
        let _ = self.process.wait();
    }
}

/// Plays each seed of standard input in a fork, and prints two lines: its outcome, and how many microseconds of a core it took. A fork
/// that panics, is killed or takes too long violates an invariant. Fails at the first fork that reports an error.
pub(super) fn serve(args: &Args, print: &mut dyn FnMut(&str)) -> Result<bool> {
    world::prepare()?;
    let mut before = time_of_children()?;
    for line in io::stdin().lock().lines() {
        let seed = line?.trim().parse()?;
        let start = Instant::now();
        let code = in_child(|| u8::from(tell(args, seed, print).is_err()))?;
        if code != Some(0) {
            let outcome = broken::outcome(seed, code.map(i32::from), start.elapsed());
            let outcome = outcome.with_context(|| format!("seed {seed} did not come to its end"))?;
            print(&serde_json::to_string(&outcome)?);
        }
        let after = time_of_children()?;
        print(&(after - before).to_string());
        io::stdout().flush()?;
        before = after;
    }
    Ok(true)
}

/// The time of cores that all children took that have ended, in microseconds.
fn time_of_children() -> Result<i64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    Ok((usage.user_time() + usage.system_time()).num_microseconds())
}

/// Plays a seed in this process, and prints its outcome.
fn tell(args: &Args, seed: u64, print: &mut dyn FnMut(&str)) -> Result<()> {
    let (outcome, _) = play_here(&generate(seed, args.actions), args.steps)?;
    print(&serde_json::to_string(&outcome)?);
    io::stdout().flush()?;
    Ok(())
}
