//! The world of one seed: clusters, processes and the network between them, run step by step in virtual time.
//!
//! Each process runs the shipped program on a runtime of its own. What a process sends lands in its outbox; the world takes it
//! from there, decides when and whether it arrives, and hands answers, watch events and bytes back. Nothing else moves: the world
//! has one queue of scheduled steps, and [`World::step`] does the next one.
//!
//! `cluster` holds the API servers, `installed` what is in them from the beginning, `process` the running programs, `link` what both
//! sides of a connection see, `rules` what the network does to requests, `armed` the crashes that wait for a request, `programs` the
//! main functions of processes, `trace` what happened as text.

mod armed;
mod arrive;
mod cluster;
mod installed;
mod link;
mod process;
mod programs;
mod queue;
mod rules;
mod setup;
mod trace;
mod watches;

pub use armed::ProcessFault;
pub(crate) use arrive::grpc_host;
pub use cluster::{Backup, cluster_host};
pub use process::Origin;
pub use rules::RuleNumber;
pub use trace::Trace;

use std::{collections::BTreeMap, fmt, time::Duration};

use bindery_simulator_apiserver::{ApiServer, Change};
use bytes::Bytes;
use http::{Request, Response};
use jiff::Timestamp;
use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;

use crate::{
    faults::ProcessName,
    topology::{Cluster, ControllerPace, Topology},
};
use armed::Armed;
use cluster::ClusterSlot;
use link::Connections;
use process::{ProcessId, ProcessSlot};
use queue::{Event, Queue};
use rules::Rules;
use watches::Watches;

/// The wall clock when the world begins: 2026-01-01T00:00:00Z.
#[expect(clippy::duration_suboptimal_units, reason = "Unix time is in seconds")]
const EPOCH: Duration = Duration::from_secs(1_767_225_600);

/// In one of this many seeds, processes install their CRDs themselves.
const INSTALLING: u64 = 16;

/// All clusters and processes of one seed.
#[derive(Debug)]
pub struct World {
    now: Duration,
    queue: Queue,
    clusters: BTreeMap<Cluster, ClusterSlot>,
    processes: Vec<ProcessSlot>,
    watches: Watches,
    connections: Connections,
    rules: Rules,
    armed: Vec<Armed>,
    /// The latest arrival of what was sent so far and is slow, and the latest end of a crash or freeze.
    late_until: Duration,
    /// What looks at the world after each step of a call.
    observer: CallObserver,
    /// How long after a write control planes work now.
    pace: ControllerPace,
    random: ChaCha8Rng,
    /// Who sent the request of each number. The number of a request is its place here.
    origins: Vec<Option<Origin>>,
    changes: Vec<WorldChange>,
    problems: Vec<Problem>,
    /// How many requests and calls of people changed something.
    changed_by_people: u64,
    trace: Trace,
    topology: Topology,
    /// Whether the processes install their CRDs themselves. In most seeds an administrator has done it, which is faster.
    processes_install: bool,
}

/// What looks at the world after each step of a call.
#[derive(Default)]
struct CallObserver(Option<Observe>);

/// Looks at the world. Returns whether the call may go on.
type Observe = Box<dyn FnMut(&mut World) -> bool>;

/// A write in one of the clusters.
#[derive(Clone, Debug)]
pub struct WorldChange {
    /// When it happened, since the world began.
    pub at: Duration,
    /// The cluster.
    pub cluster: Cluster,
    /// What changed.
    pub change: Change,
    /// The process that wrote; `None` for people and for the control plane.
    pub origin: Option<Origin>,
}

/// What no shipped program may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The process.
    pub process: String,
    /// What it did.
    pub what: String,
}

/// What one step of the world did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A request reached an API server.
    Request(Cluster),
    /// An answer reached a process.
    Answer,
    /// Events of a watch reached a process, or its end did.
    Watch(Cluster),
    /// Bytes of a gRPC connection arrived.
    Bytes,
    /// A timer of a process fired.
    Timer,
    /// A controller of a control plane worked.
    Chore(Cluster),
    /// A process began.
    Start,
    /// The network changed, or bookmarks were sent.
    Other,
}

// === impl CallObserver ===

impl fmt::Debug for CallObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallObserver").finish_non_exhaustive()
    }
}

// === impl World ===

impl World {
    /// Makes the clusters, installs what administrators install, and starts all processes. [`begin`] must have been called before
    /// with the same seed. The APIs that providers offer are not installed.
    pub fn new(seed: u64, topology: &Topology) -> Self {
        let mut world = Self {
            now: Duration::ZERO,
            queue: Queue::default(),
            clusters: BTreeMap::new(),
            processes: Vec::new(),
            watches: Watches::default(),
            connections: Connections::default(),
            rules: Rules::default(),
            armed: Vec::new(),
            late_until: Duration::ZERO,
            observer: CallObserver::default(),
            pace: ControllerPace::Quick,
            random: ChaCha8Rng::seed_from_u64(seed),
            origins: Vec::new(),
            changes: Vec::new(),
            problems: Vec::new(),
            changed_by_people: 0,
            trace: Trace::default(),
            topology: topology.clone(),
            processes_install: seed.is_multiple_of(INSTALLING),
        };
        world.set_up();
        world
    }

    /// From now on the schedule and all random bytes are those of this seed.
    pub fn reseed(&mut self, seed: u64) {
        self.random = ChaCha8Rng::seed_from_u64(seed);
        bindery_simulator_host::reseed(seed);
    }

    /// Virtual time since the world began.
    pub fn elapsed(&self) -> Duration {
        self.now
    }

    /// Virtual time as a clock that is right shows it.
    pub fn now(&self) -> Timestamp {
        timestamp(self.now)
    }

    /// When the next step is due.
    pub fn next_at(&self) -> Option<Duration> {
        self.queue.next_at()
    }

    /// Does the next step, and moves time to it. `None` if nothing will ever happen.
    pub fn step(&mut self) -> Option<Step> {
        self.step_until(Duration::MAX)
    }

    /// Does the next step that is due until then, and moves time to it. `None` if no step is due until then. Scheduled events that
    /// have become void are no steps, so the next event may be due and the next step not.
    pub fn step_until(&mut self, limit: Duration) -> Option<Step> {
        while self.queue.next_at()? <= limit {
            let (at, event) = self.queue.pop()?;
            self.now = self.now.max(at);
            if let Some(step) = self.perform(event) {
                return Some(step);
            }
        }
        None
    }

    /// Does all steps that are due until then, and moves time there.
    pub fn run_until(&mut self, time: Duration) {
        while self.step_until(time).is_some() {}
        self.now = self.now.max(time);
    }

    /// Runs for this long.
    pub fn run_for(&mut self, time: Duration) {
        self.run_until(self.now + time);
    }

    /// Sends a person's request to a cluster, which answers at once. Users are `admin`, who may do all, `alice` and `bob`.
    pub fn request(&mut self, cluster: Cluster, user: &str, request: Request<Bytes>) -> Response<Bytes> {
        self.answer_person(cluster, user, request)
    }

    /// The API server of a cluster; `None` if there is no such cluster.
    pub fn api(&self, cluster: Cluster) -> Option<&ApiServer> {
        self.clusters.get(&cluster).map(|slot| &slot.api)
    }

    /// All clusters that exist.
    pub fn clusters(&self) -> impl Iterator<Item = Cluster> + '_ {
        self.clusters.keys().copied()
    }

    /// All writes since the last call.
    pub fn changes(&mut self) -> Vec<WorldChange> {
        std::mem::take(&mut self.changes)
    }

    /// What processes did since the last call that none may do.
    pub fn problems(&mut self) -> Vec<Problem> {
        std::mem::take(&mut self.problems)
    }

    /// What happened so far.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// Adds a line to the trace, such as what a user does next.
    pub fn note(&mut self, line: &str) {
        self.trace.line(self.now, line);
    }

    /// The number of requests that processes and people sent.
    pub fn requests(&self) -> usize {
        self.origins.len()
    }

    /// Lets `observe` look at the world after each step of [`Self::call`], until [`Self::end_observation`]. A call ends if it returns
    /// false.
    pub fn observe(&mut self, observe: impl FnMut(&mut Self) -> bool + 'static) {
        self.observer = CallObserver(Some(Box::new(observe)));
    }

    /// Drops what was given to [`Self::observe`].
    pub fn end_observation(&mut self) {
        self.observer = CallObserver::default();
    }

    /// Lets the observer look at the world. Returns whether the call may go on.
    fn is_call_to_go_on(&mut self) -> bool {
        let CallObserver(Some(mut observe)) = std::mem::take(&mut self.observer) else {
            return true;
        };
        let goes_on = observe(self);
        self.observer = CallObserver(Some(observe));
        goes_on
    }

    /// When the last slow message that is on its way arrives, when the last client learns that its answer is lost, and when the last
    /// process that is down or stands still goes on.
    pub fn late_until(&self) -> Duration {
        self.late_until
    }

    /// Notes that something is to happen at this time although nothing disturbs the world any more.
    fn late(&mut self, at: Duration) {
        self.late_until = self.late_until.max(at);
    }

    /// How many requests and calls of people changed something so far.
    pub fn changed_by_people(&self) -> u64 {
        self.changed_by_people
    }

    /// The index of a process by its name.
    fn process_id(&self, name: ProcessName) -> Option<ProcessId> {
        self.processes
            .iter()
            .position(|slot| slot.is_named(name))
            .map(ProcessId)
    }

    /// Does what a scheduled event says; `None` if the event has become void.
    fn perform(&mut self, event: Event) -> Option<Step> {
        match event {
            Event::Wake { process, incarnation } => self.wake(process, incarnation).then_some(Step::Timer),
            Event::Arrive(request) => Some(self.arrive(*request)),
            Event::Answer(answer) => self.deliver_answer(*answer).then_some(Step::Answer),
            Event::WatchDue(watch) => self.deliver_watch(watch).map(Step::Watch),
            Event::WatchOver(watch) => {
                self.end_watch(watch);
                None
            }
            Event::Bookmarks(cluster) => {
                self.bookmarks(cluster);
                Some(Step::Other)
            }
            Event::Chore(cluster) => self.chore(cluster).then_some(Step::Chore(cluster)),
            Event::Connect(connect) => {
                self.connect(*connect);
                Some(Step::Other)
            }
            Event::Bytes { connection, to, bytes } => self.deliver_bytes(connection, to, bytes).then_some(Step::Bytes),
            Event::Close { connection, to, how } => self.deliver_close(connection, to, how).then_some(Step::Bytes),
            Event::Start { process, incarnation } => self.restart(process, incarnation).then_some(Step::Start),
            Event::Thaw { process, incarnation } => self.thaw(process, incarnation).then_some(Step::Other),
        }
    }
}

/// Does what all seeds have in common. To be called before [`alone`] in each process from which seeds fork.
pub fn prepare() -> anyhow::Result<()> {
    order_hash_maps();
    installed::prepare()
}

/// Does all work of a seed on a thread of its own, and begins the simulation of its beginning before. To be called once in an operating-system
/// process: afterwards nothing else may work in it, for clocks and random bytes stay simulated.
///
/// Fails if [`prepare`] does.
pub fn alone<T: Send>(seed: u64, work: impl FnOnce() -> T + Send) -> anyhow::Result<std::thread::Result<T>> {
    prepare()?;
    Ok(std::thread::scope(|scope| {
        let run = move || {
            begin(seed);
            work()
        };
        scope.spawn(run).join()
    }))
}

/// Begins the simulation in this operating-system process, for good. What this thread has asked for before, such as the
/// seeds of its hash maps, differs from run to run; so [`alone`] is better.
pub fn begin(seed: u64) {
    bindery_simulator_host::simulate(seed, process::clocks(Duration::ZERO, 0));
    order_hash_maps();
}

/// Gives the hash maps of `ahash` seeds of our own: by default they depend on addresses in memory. Only the first call has an effect.
fn order_hash_maps() {
    let _ = ahash::random_state::set_random_source(HashSeeds::default());
}

/// Seeds of hash maps, one after the other.
#[derive(Default)]
struct HashSeeds(std::sync::atomic::AtomicUsize);

impl ahash::random_state::RandomSource for HashSeeds {
    fn gen_hasher_seed(&self) -> usize {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
    }
}

/// The timestamp of a time since the world began.
fn timestamp(time: Duration) -> Timestamp {
    Timestamp::try_from(std::time::SystemTime::UNIX_EPOCH + EPOCH + time).unwrap_or(Timestamp::MAX)
}
