//! The processes of a world: their start, run, crash, freeze and end.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bindery_simulator_host::{Clocks, Process, Run, set_clocks};
use futures::future::BoxFuture;
use rand::RngExt as _;
use tokio::sync::mpsc;

use super::{
    EPOCH, Event, Problem, World,
    link::{HowClosed, Outbox, SimStream},
};
use crate::{faults::ProcessName, topology::Cluster};

/// Time that the monotonic clock shows when the world begins.
const UPTIME: Duration = Duration::from_secs(1_000_000);

/// Place of a process in the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ProcessId(pub(super) usize);

/// Clocks that are wrong by no more than this many nanoseconds stay so.
const CLOCK_WRONG_MAX: i64 = 5 * 60 * 1_000_000_000;

/// A process as it was when it sent a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin {
    /// The process.
    pub process: ProcessName,
    /// How often the process had been started, beginning with 1.
    pub incarnation: u32,
    /// When the request was sent, since the world began.
    pub sent: Duration,
    /// When the API server of the process's own cluster gave the last answer that the process had got by then.
    pub informed: Duration,
    /// Whether the network delays the request, does it twice or loses its answer.
    pub is_disturbed: bool,
}

/// One process, whether it runs or not.
#[derive(Debug)]
pub(super) struct ProcessSlot {
    pub(super) name: Option<ProcessName>,
    pub(super) label: String,
    pub(super) incarnation: u32,
    pub(super) running: Option<Running>,
    /// By how much its wall clock is wrong, in nanoseconds.
    offset: i64,
    /// For how long its monotonic clock stood still, all in all.
    slept: Duration,
    /// Since when its machine sleeps, if it does.
    asleep_since: Option<Duration>,
    /// Until when it stands still, if it does.
    frozen_until: Option<Duration>,
    wake_at: Option<Duration>,
    /// When each API server gave the last answer that reached it.
    pub(super) heard: BTreeMap<Cluster, Duration>,
    /// Consecutive ends, for the pause before the next start.
    ends: u32,
    is_removed: bool,
}

/// What a running process has.
#[derive(Debug)]
pub(super) struct Running {
    process: Process<anyhow::Result<()>>,
    pub(super) outbox: Arc<Outbox>,
    /// Where connections to the process's port go, if it has one.
    pub(super) incoming: Option<mpsc::UnboundedSender<SimStream>>,
}

/// What the clocks of a process show.
pub(super) fn clocks(now: Duration, offset: i64) -> Clocks {
    let right = EPOCH + now;
    let wrong = Duration::from_nanos(offset.unsigned_abs());
    Clocks {
        monotonic: UPTIME + now,
        wall: if offset < 0 {
            right.saturating_sub(wrong)
        } else {
            right + wrong
        },
    }
}

impl ProcessSlot {
    pub(super) fn new(name: Option<ProcessName>, label: String) -> Self {
        Self {
            name,
            label,
            incarnation: 0,
            running: None,
            offset: 0,
            slept: Duration::ZERO,
            asleep_since: None,
            frozen_until: None,
            wake_at: None,
            heard: BTreeMap::new(),
            ends: 0,
            is_removed: false,
        }
    }

    /// What the clocks of the process show.
    fn clocks(&self, now: Duration) -> Clocks {
        let right = clocks(now, self.offset);
        Clocks {
            monotonic: right.monotonic.saturating_sub(self.slept),
            ..right
        }
    }

    /// Whether this is the process of that name, and was not removed.
    pub(super) fn is_named(&self, name: ProcessName) -> bool {
        self.name == Some(name) && !self.is_removed
    }
}

impl World {
    /// Starts a process that has no running incarnation.
    pub(super) fn start_id(&mut self, id: ProcessId) {
        let slot = &mut self.processes[id.0];
        let Some(name) = slot.name.filter(|_| !slot.is_removed && slot.running.is_none()) else {
            return;
        };
        let outbox = Arc::new(Outbox::default());
        set_clocks(slot.clocks(self.now));
        let (main, incoming) = self.main_of(name, &outbox);
        self.start_main(id, main, outbox, incoming);
    }

    /// Starts a process with this main function.
    pub(super) fn start_main(
        &mut self,
        id: ProcessId,
        main: BoxFuture<'static, anyhow::Result<()>>,
        outbox: Arc<Outbox>,
        incoming: Option<mpsc::UnboundedSender<SimStream>>,
    ) {
        let slot = &mut self.processes[id.0];
        slot.incarnation += 1;
        slot.frozen_until = None;
        slot.asleep_since = None;
        slot.wake_at = None;
        set_clocks(slot.clocks(self.now));
        let line = format!("{} starts (incarnation {})", slot.label, slot.incarnation);
        match Process::start(main) {
            Ok(process) => {
                slot.running = Some(Running {
                    process,
                    outbox,
                    incoming,
                });
            }
            Err(error) => self.problem(id, format!("cannot start: {error}")),
        }
        self.trace.line(self.now, &line);
        self.run(id);
    }

    /// Starts a process again after its end; false if that is void.
    pub(super) fn restart(&mut self, id: ProcessId, incarnation: u32) -> bool {
        let slot = &self.processes[id.0];
        if slot.incarnation != incarnation || slot.running.is_some() || slot.is_removed {
            return false;
        }
        self.start_id(id);
        true
    }

    /// Lets the timers of a process fire; false if it has none that is due.
    pub(super) fn wake(&mut self, id: ProcessId, incarnation: u32) -> bool {
        let slot = &mut self.processes[id.0];
        let is_due = slot.incarnation == incarnation && slot.wake_at.is_some_and(|at| at <= self.now);
        if !is_due || slot.frozen_until.is_some() || slot.running.is_none() {
            return false;
        }
        self.run(id);
        true
    }

    /// Runs a process until it waits, and takes what it sent.
    pub(super) fn run(&mut self, id: ProcessId) {
        let slot = &mut self.processes[id.0];
        if slot.frozen_until.is_some() {
            return;
        }
        set_clocks(slot.clocks(self.now));
        let Some(running) = &mut slot.running else {
            return;
        };
        slot.wake_at = None;
        let run = running.process.run();
        let sent = running.outbox.take();
        match run {
            Run::Waits(time) => {
                if let Some(time) = time {
                    let at = self.now + time;
                    slot.wake_at = Some(at);
                    let incarnation = slot.incarnation;
                    self.queue.push(
                        at,
                        Event::Wake {
                            process: id,
                            incarnation,
                        },
                    );
                }
                self.dispatch(id, sent);
            }
            Run::Ended(outcome) => {
                self.dispatch(id, sent);
                let how = match outcome {
                    Ok(()) => "without an error".to_owned(),
                    Err(error) => format!("{error:#}"),
                };
                self.ended(id, &how);
            }
            Run::Panicked(message) => {
                // What it sent before has left its machine.
                self.dispatch(id, sent);
                self.problem(id, format!("panicked: {message}"));
                self.ended(id, &format!("panicked: {message}"));
            }
            Run::Spins => {
                self.dispatch(id, sent);
                self.problem(id, "never waits".to_owned());
                self.ended(id, "is killed, since it never waits");
            }
        }
    }

    fn problem(&mut self, id: ProcessId, what: String) {
        let process = self.processes[id.0].label.clone();
        self.trace.line(self.now, &format!("PROBLEM: {process} {what}"));
        self.problems.push(Problem { process, what });
    }

    /// The process has ended by itself: its supervisor starts it again.
    fn ended(&mut self, id: ProcessId, how: &str) {
        let slot = &mut self.processes[id.0];
        slot.ends += 1;
        let pause = Duration::from_secs(1 << slot.ends.min(4));
        let line = format!("{} ends: {how}", slot.label);
        let incarnation = slot.incarnation;
        let is_person = slot.name.is_none();
        self.trace.line(self.now, &line);
        self.stop(id);
        if !is_person {
            let at = self.now + pause;
            self.late(at);
            self.queue.push(
                at,
                Event::Start {
                    process: id,
                    incarnation,
                },
            );
        }
    }

    /// Drops a running process with all its connections.
    pub(super) fn stop(&mut self, id: ProcessId) {
        let slot = &mut self.processes[id.0];
        slot.wake_at = None;
        set_clocks(slot.clocks(self.now));
        // Dropped last: what its tasks send while they end goes nowhere.
        let running = slot.running.take();
        drop(running);
        self.drop_watches_of(id);
        for (connection, to) in self.connections.ends_facing(id) {
            let delay = self.latency();
            let how = HowClosed::Reset;
            self.queue.push(self.now + delay, Event::Close { connection, to, how });
        }
    }

    /// Kills a process, which starts again after this time. Returns whether it ran.
    pub fn crash(&mut self, process: ProcessName, starts_after: Duration) -> bool {
        let Some(id) = self.process_id(process) else {
            return false;
        };
        let was_running = self.processes[id.0].running.is_some();
        self.trace
            .line(self.now, &format!("{} is killed", self.processes[id.0].label));
        self.stop(id);
        let incarnation = self.processes[id.0].incarnation;
        let at = self.now + starts_after;
        self.late(at);
        self.queue.push(
            at,
            Event::Start {
                process: id,
                incarnation,
            },
        );
        was_running
    }

    /// Stops a process for good, as when a Deployment is deleted or scaled down.
    pub fn remove(&mut self, process: ProcessName) {
        if let Some(id) = self.process_id(process) {
            self.trace
                .line(self.now, &format!("{} is removed", self.processes[id.0].label));
            self.stop(id);
            self.processes[id.0].is_removed = true;
        }
    }

    /// Freezes a process for this long. Its clocks go on. Returns whether it ran.
    pub fn freeze(&mut self, process: ProcessName, time: Duration) -> bool {
        let Some(id) = self.process_id(process) else {
            return false;
        };
        let slot = &mut self.processes[id.0];
        if slot.running.is_none() {
            return false;
        }
        let at = self.now + time;
        // Two freezes that overlap last until the end of the later one.
        slot.frozen_until = slot.frozen_until.max(Some(at));
        let incarnation = slot.incarnation;
        self.trace.line(self.now, &format!("{} freezes", slot.label));
        self.late(at);
        self.queue.push(
            at,
            Event::Thaw {
                process: id,
                incarnation,
            },
        );
        true
    }

    /// Lets the machine of a process sleep for this long: the process stands still, and so does its monotonic clock, while its wall
    /// clock goes on. Returns whether it ran.
    pub fn sleep(&mut self, process: ProcessName, time: Duration) -> bool {
        let has_frozen = self.freeze(process, time);
        if let Some(id) = self.process_id(process).filter(|_| has_frozen) {
            self.processes[id.0].asleep_since.get_or_insert(self.now);
        }
        has_frozen
    }

    /// Lets a frozen process go on; false if it is not frozen, or for longer.
    pub(super) fn thaw(&mut self, id: ProcessId, incarnation: u32) -> bool {
        let slot = &mut self.processes[id.0];
        let is_due = slot.frozen_until.is_some_and(|until| until <= self.now);
        if slot.incarnation != incarnation || !is_due {
            return false;
        }
        slot.frozen_until = None;
        if let Some(since) = slot.asleep_since.take() {
            slot.slept += self.now.saturating_sub(since);
        }
        self.trace.line(self.now, &format!("{} goes on", slot.label));
        self.run(id);
        true
    }

    /// Makes the wall clock of a process jump, backwards if negative. Returns whether there is such a process.
    pub fn jump_clock(&mut self, process: ProcessName, seconds: i64) -> bool {
        let Some(id) = self.process_id(process) else {
            return false;
        };
        let slot = &mut self.processes[id.0];
        slot.offset = slot.offset.saturating_add(seconds.saturating_mul(1_000_000_000));
        self.trace
            .line(self.now, &format!("the clock of {} jumps by {seconds} s", slot.label));
        true
    }

    /// Sets clocks right that are wrong by more than some minutes, as administrators do in the end: tokens look expired otherwise.
    pub fn correct_clocks(&mut self) {
        for slot in &mut self.processes {
            if slot.offset.abs() > CLOCK_WRONG_MAX {
                slot.offset = 0;
                self.trace
                    .line(self.now, &format!("the clock of {} is set right", slot.label));
            }
        }
    }

    /// Whether a process runs, also while it is frozen.
    pub fn is_running(&self, process: ProcessName) -> bool {
        self.process_id(process)
            .is_some_and(|id| self.processes[id.0].running.is_some())
    }

    /// All processes by name, whether they run or not.
    pub fn processes(&self) -> impl Iterator<Item = ProcessName> + '_ {
        let kept = self.processes.iter().filter(|slot| !slot.is_removed);
        kept.filter_map(|slot| slot.name)
    }

    /// Ends the konnectors of a cluster for good.
    pub(super) fn end_processes_of(&mut self, cluster: Cluster) {
        let of_cluster = |name: &ProcessName| matches!(name, ProcessName::Konnector { of, .. } if *of == cluster);
        let names: Vec<_> = self.processes().filter(of_cluster).collect();
        for name in names {
            self.remove(name);
        }
    }

    /// How long one message takes on its way.
    pub(super) fn latency(&mut self) -> Duration {
        let micros = match self.random.random_range(0..20u8) {
            0 => self.random.random_range(10_000..120_000),
            1..6 => self.random.random_range(2_000..12_000),
            _ => self.random.random_range(200..3_000),
        };
        Duration::from_micros(micros)
    }
}
