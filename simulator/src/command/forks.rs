//! Plays seeds in forks of one process, which has made before the clusters that all seeds have in common. A fork plays the beginning of
//! some seeds, and from there each seed goes on in a fork of its own.

use std::{
    io::{self, BufRead as _, BufReader, Write as _},
    ops::Range,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use bindery_simulator_host::in_child;
use nix::sys::{
    resource::{UsageWho, getrusage},
    time::TimeValLike as _,
};

use super::{Args, broken};
use crate::{
    history::generate,
    play::{Outcome, Player},
    world,
};

/// A process of this program that plays the seeds of one beginning after the other.
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
        // A process of several threads cannot fork.
        command.env("_RJEM_MALLOC_CONF", "background_thread:false");
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

    /// Begins to play these seeds, which have the same beginning. Then [`Self::next`] has to be called for each.
    pub(super) fn play(&mut self, seeds: &Range<u64>) -> Result<()> {
        let input = self.seeds.as_mut().context("no standard input")?;
        writeln!(input, "{} {}", seeds.start, seeds.end)?;
        input.flush()?;
        Ok(())
    }

    /// Returns what became of the next seed, which is this one, and the time of a core that it took. The first seed of a beginning takes
    /// the time of the beginning too.
    pub(super) fn next(&mut self, seed: u64) -> Result<(Outcome, Duration)> {
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

/// Reads a range of seeds from each line of standard input, which have the same beginning, and plays each in a fork. Prints two lines for
/// each: its outcome, and how many microseconds of a core it took. A fork that panics, is killed or takes too long violates an invariant.
/// Fails at the first fork that reports an error.
pub(super) fn serve(args: &Args) -> Result<bool> {
    world::prepare()?;
    for line in io::stdin().lock().lines() {
        let line = line?;
        let (first, end) = line.split_once(' ').context("a line is not two numbers")?;
        let seeds = first.parse()?..end.trim().parse()?;
        let start = Instant::now();
        // A thread of its own, as `world::alone` has it: hash maps of this one begin with numbers that differ from run to run.
        let code = in_child(0, || {
            match thread::scope(|scope| scope.spawn(|| go_on(args, &seeds)).join()) {
                Ok(ended) => u8::from(ended.is_err()),
                Err(_) => broken::PANICKED,
            }
        })?;
        // Only a beginning can end it in another way. No seed was told then.
        if code != Some(0) {
            for seed in seeds {
                tell(&broken_outcome(seed, code, start)?)?;
                writeln!(io::stdout(), "0")?;
            }
        }
    }
    Ok(true)
}

/// Plays the beginning of these seeds, and each of them in a fork.
fn go_on(args: &Args, seeds: &Range<u64>) -> Result<()> {
    broken::limit_time();
    let first = generate(seeds.start, args.actions);
    world::begin(first.beginning);
    let player = Player::begin(first.beginning, &first.topology, args.steps);
    broken::end_limit();
    let mut player = Some(player);
    let mut before = time_of(UsageWho::RUSAGE_CHILDREN)?;
    let mut beginning = time_of(UsageWho::RUSAGE_SELF)?;
    for seed in seeds.clone() {
        let start = Instant::now();
        // The thread that began this one waits.
        let code = in_child(1, || {
            broken::limit_time();
            let told = player.take().map(|player| {
                let (outcome, _) = player.play(&generate(seed, args.actions));
                tell(&outcome)
            });
            u8::from(!matches!(told, Some(Ok(()))))
        })?;
        if code != Some(0) {
            tell(&broken_outcome(seed, code, start)?)?;
        }
        let after = time_of(UsageWho::RUSAGE_CHILDREN)?;
        writeln!(io::stdout(), "{}", after - before + beginning)?;
        io::stdout().flush()?;
        (before, beginning) = (after, 0);
    }
    Ok(())
}

/// The outcome of a seed whose fork did not come to its end.
fn broken_outcome(seed: u64, code: Option<u8>, start: Instant) -> Result<Outcome> {
    let outcome = broken::outcome(seed, code.map(i32::from), start.elapsed());
    outcome.with_context(|| format!("seed {seed} did not come to its end"))
}

/// The time of a core that this process took, or all its children that have ended, in microseconds.
fn time_of(whom: UsageWho) -> Result<i64> {
    let usage = getrusage(whom)?;
    Ok((usage.user_time() + usage.system_time()).num_microseconds())
}

/// Prints an outcome.
fn tell(outcome: &Outcome) -> Result<()> {
    writeln!(io::stdout(), "{}", serde_json::to_string(outcome)?)?;
    io::stdout().flush()?;
    Ok(())
}
