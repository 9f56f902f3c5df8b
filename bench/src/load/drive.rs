//! Makes the changes of one phase, all at once or at their times, and waits until they have arrived.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use tokio::{runtime::Handle, sync::oneshot, task::JoinSet, time::timeout};

use super::{
    Load,
    acks::Acks,
    board::{Goal, Partial},
    command::{Command, Key, Phase, Step},
    phase::{Answer, Outline, Record},
};
use crate::{order::Change, schedule};

/// A phase that is under way.
struct Drive {
    load: Arc<Load>,
    change: Change,
    steps: Vec<Step>,
    /// The length in bytes of what a change writes.
    size: usize,
    record: Arc<Record>,
    acks: Acks,
}

/// Makes the changes that a command asks for.
pub(crate) async fn drive(load: &Arc<Load>, command: Command) -> Result<Answer> {
    let change = command.phase.change().context("the phase changes nothing")?;
    ensure!(
        command.resource < load.resources.len(),
        "there is no --resource {}",
        command.resource
    );
    let chosen = command.chosen(load.consumers.len())?;
    let steps = steps(load, &command, &chosen)?;
    if change == Change::Create {
        load.make_namespaces(&steps).await?;
    }
    let drive = Arc::new(Drive {
        load: Arc::clone(load),
        change,
        record: Arc::new(Record::new(steps.len())),
        steps,
        size: command.length(),
        acks: Acks::connect(&command, load.consumers.len()).await?,
    });
    let begun = Instant::now();
    match command.rate {
        Some(rate) => paced(&drive, begun, rate, command.seed).await?,
        None => at_once(&drive, command.concurrency).await?,
    }
    let in_time = timeout(Duration::from_secs(command.timeout_s), drive.record.over()).await;
    let missing = if in_time.is_ok() { Vec::new() } else { drive.give_up() };
    let answer = drive.record.answer(Outline {
        label: command.label,
        phase: command.phase,
        is_paced: command.rate.is_some(),
        begun,
        missing,
        consumers: drive.steps.iter().map(|step| step.key.consumer).collect(),
        chosen: &chosen,
    });
    // All tasks have ended, so this is the last reference.
    if let Some(drive) = Arc::into_inner(drive) {
        drive.acks.close().await?;
    }
    Ok(answer)
}

/// The changes of a phase: those that the command describes, or one for each existing object.
fn steps(load: &Load, command: &Command, chosen: &[usize]) -> Result<Vec<Step>> {
    if command.phase != Phase::Clear {
        return command.steps(chosen);
    }
    let is_about = |key: &Key| key.resource == command.resource && chosen.contains(&key.consumer);
    let keys = load.board.keys(is_about);
    Ok(keys.into_iter().map(|key| Step { key, seq: 0 }).collect())
}

/// Makes all changes as fast as possible, with `concurrency` requests at once.
async fn at_once(drive: &Arc<Drive>, concurrency: usize) -> Result<()> {
    let next = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..concurrency.max(1) {
        let (drive, next) = (Arc::clone(drive), Arc::clone(&next));
        tasks.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= drive.steps.len() {
                    return;
                }
                drive.perform(number, Instant::now()).await;
            }
        });
    }
    joined(tasks).await
}

/// Makes each change at its scheduled time, also if earlier ones are not answered yet. A thread keeps the times, because
/// the timers of the runtime count whole milliseconds. The thread ends when its receiver is dropped, and the program does
/// not wait for it.
async fn paced(drive: &Arc<Drive>, begun: Instant, rate: f64, seed: u64) -> Result<()> {
    ensure!(rate > 0.0, "a rate is more than nothing");
    let runtime = Handle::current();
    let drive = Arc::clone(drive);
    let (sender, started) = oneshot::channel();
    thread::spawn(move || {
        let mut tasks = JoinSet::new();
        for (number, after) in schedule::poisson(seed, rate, drive.steps.len()).into_iter().enumerate() {
            let intended = begun + after;
            thread::sleep(intended.saturating_duration_since(Instant::now()));
            if sender.is_closed() {
                return;
            }
            let drive = Arc::clone(&drive);
            tasks.spawn_on(async move { drive.perform(number, intended).await }, &runtime);
        }
        // If the receiver is gone, this drops the tasks, which ends them.
        let _ = sender.send(tasks);
    });
    joined(started.await.context("the thread that keeps the times has ended")?).await
}

async fn joined(mut tasks: JoinSet<()>) -> Result<()> {
    while let Some(ended) = tasks.join_next().await {
        ended?;
    }
    Ok(())
}

// === impl Drive ===

impl Drive {
    /// Makes one change, which was scheduled for this time.
    async fn perform(&self, number: usize, intended: Instant) {
        let step = &self.steps[number];
        let goal = Goal {
            record: Arc::clone(&self.record),
            number,
            change: self.change,
            seq: step.seq,
            arrival: Partial::default(),
        };
        self.record.sent(number, intended, Instant::now());
        // A watch may show the effects of the change before its answer arrives.
        self.load.board.expect(&step.key, goal);
        match self.load.change(self.change, step, self.size).await {
            Ok(order) => {
                self.record.acked(number);
                if let Some(order) = order {
                    self.acks.tell(step.key.consumer, || order);
                }
            }
            Err(error) => {
                let is_dropped = self.load.board.withdraw(&step.key, &self.record, number).is_some();
                let text = || format!("{}/{}: {error:#}", step.key.namespace, step.key.name);
                self.record.refused(text, is_dropped);
            }
        }
    }

    /// Stops waiting for changes. Returns the objects whose change has not arrived, each with what is missing.
    fn give_up(&self) -> Vec<String> {
        let left = self.steps.iter().enumerate().filter_map(|(number, step)| {
            let left = self.load.board.withdraw(&step.key, &self.record, number)?;
            let (key, lacks) = (&step.key, left.lacks(self.change));
            Some(format!("{}/{} ({lacks})", key.namespace, key.name))
        });
        left.collect()
    }
}
