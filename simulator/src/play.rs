//! Plays a history: runs a world, lets its events happen in time, and checks each write.

use std::{
    cell::{RefCell, RefMut},
    collections::{BTreeMap, BTreeSet},
    fmt::{self, Write as _},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use bindery_simulator_apiserver::{ApiServer, Change, ObjectKey};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    faults::{Fault, Faults},
    history::{Event, History},
    invariants::{Clusters, Invariant, Invariants, Violation, Written, is_answer_to_heartbeat, is_of_rest, is_restore},
    topology::{Cluster, Topology, provider_of_group},
    users::{Action, Circumstance, Ledger, Relation, Users},
    world::{Trace, World, WorldChange},
};

/// The longest time until the bindings of the topology are ready.
const SET_UP_MAX: Duration = Duration::from_mins(3);
/// The longest time after the last fault until everything has converged.
const CONVERGED_MAX: Duration = Duration::from_mins(15);
/// The pause before the first look whether everything has converged. Each further pause is longer by half.
const FIRST_LOOK: Duration = Duration::from_secs(6);
/// The longest pause between two looks.
const LOOK_EVERY: Duration = Duration::from_mins(1);
/// After everything has converged, writes may go on for this long: longer than a minute, after which a konnector that found that it does
/// not hold a contract asks again, and a server looks for retained copies.
const GRACE: Duration = Duration::from_secs(70);
/// For this long nothing may be written at rest.
const REST: Duration = Duration::from_secs(40);
/// How often a server may set the conditions of a ClusterBinding while everything rests: once for a heartbeat of the konnector.
const ANSWERS_MAX: u32 = 2;
/// Processes that only ask write at most this often what they found out.
const LITTLE: u32 = 5;
/// A world that needs more steps does not come to rest, unless processes only ask again and again. Of the seeds that come to rest,
/// nearly all need less than a third.
const STEPS_MAX: u64 = 8_000;
/// A world in which processes only ask again and again may take this many steps.
const ASKING_STEPS_MAX: u64 = 4 * STEPS_MAX;
/// An object that is written more often than this after the last event of the history is written without end.
const WRITES_MAX: u32 = 40;

/// What became of a history.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// Number of requests that processes and people sent.
    pub requests: usize,
    /// Number of steps of the world.
    pub steps: u64,
    /// Virtual time, in milliseconds.
    pub millis: u64,
    /// Kinds of the user actions and faults that had an effect.
    pub kinds: BTreeSet<String>,
    /// Number of faults that had an effect, without backups.
    pub faults: usize,
    /// Violations in the order of their times.
    pub violations: Vec<Violation>,
    /// A hash of the trace, which is the same for the same seed everywhere.
    pub trace_hash: String,
}

/// A world in which the bindings of a topology are ready, and in which a history is played.
pub struct Player {
    world: World,
    users: Users,
    faults: Faults,
    /// Shared with the world while a user's call runs, so that each step of the call is checked too.
    checker: Rc<RefCell<WriteChecker>>,
    /// Kinds of the user actions that had an effect.
    kinds: BTreeSet<&'static str>,
}

/// Checks each write of a history, and counts steps.
struct WriteChecker {
    invariants: Invariants,
    topology: Topology,
    /// The time of the world when the history began.
    began: Duration,
    steps: u64,
    steps_max: u64,
    /// The last write that may not come at rest.
    unrest: Option<WorldChange>,
    /// Since when such writes have come without a rest between them, and how many.
    burst: (Duration, u32),
    /// How often a ClusterBinding was written because of heartbeats, since the world is to be at rest.
    answers: BTreeMap<(Cluster, ObjectKey), u32>,
    /// How often each synced object was written since the last event of the history; `None` before that.
    writes: Option<BTreeMap<(Cluster, ObjectKey), u32>>,
    /// Whether an object is written without end.
    is_endless: bool,
}

impl Clusters for World {
    fn object(&self, on: Cluster, key: &ObjectKey) -> Option<Arc<Value>> {
        self.api(on)?.get(key).cloned()
    }

    fn objects(&self, on: Cluster) -> Vec<(ObjectKey, Arc<Value>)> {
        let objects = self.api(on).into_iter().flat_map(ApiServer::objects);
        objects.map(|(key, object)| (key.clone(), Arc::clone(object))).collect()
    }
}

// === impl Player ===

impl fmt::Debug for Player {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Player").finish_non_exhaustive()
    }
}

impl Player {
    /// Makes a world, and runs it until the bindings of the topology are ready. Must be called once in an operating-system process, after
    /// [`crate::world::begin`] with the seed of the same beginning.
    pub fn begin(beginning: u64, topology: &Topology, steps_max: Option<u64>) -> Self {
        let mut world = World::new(beginning, topology);
        let users = Users::start(&mut world, topology);
        let checker = WriteChecker {
            invariants: Invariants::default(),
            topology: topology.clone(),
            began: Duration::ZERO,
            steps: 0,
            steps_max: steps_max.unwrap_or(STEPS_MAX),
            unrest: None,
            burst: (Duration::ZERO, 0),
            answers: BTreeMap::new(),
            writes: None,
            is_endless: false,
        };
        let mut player = Self {
            world,
            users,
            faults: Faults::default(),
            checker: Rc::new(RefCell::new(checker)),
            kinds: BTreeSet::new(),
        };
        player.set_up(topology);
        player
    }

    /// Plays a history of the same beginning to its end.
    pub fn play(mut self, history: &History) -> (Outcome, Trace) {
        self.world.reseed(history.seed);
        self.run(history);
        self.outcome(history.seed)
    }

    fn run(&mut self, history: &History) {
        let began = self.world.elapsed();
        self.checker().began = began;
        self.users.ledger.begin(began);
        self.world.slow_controllers();
        for event in &history.events {
            self.until(began + Duration::from_millis(event.at));
            if self.is_over() {
                return;
            }
            match &event.event {
                Event::User(action) => self.perform(*action),
                Event::Fault(fault) => self.inject(fault),
            }
            self.check();
        }
        self.until(began + Duration::from_millis(history.end()));
        self.world.calm();
        self.world.correct_clocks();
        self.come_back();
        if !self.is_over() {
            self.settle();
        }
    }

    fn checker(&self) -> RefMut<'_, WriteChecker> {
        self.checker.borrow_mut()
    }

    /// Lets a user act, and notes what the action was if it had an effect.
    fn perform(&mut self, action: Action) {
        let unbinds = match action {
            Action::Unbind { relation, .. } => Some(relation),
            _ => None,
        };
        let has_acted = self.observed(unbinds, |users, world| users.perform(world, action));
        if has_acted {
            self.kinds.extend(action.kinds());
        }
    }

    /// Tries binds again that failed. Returns whether some have still failed.
    fn bind_again(&mut self) -> bool {
        self.observed(None, Users::bind_again)
    }

    /// Lets users do something during which calls may run the world. Each step of the calls is checked and counted. `unbinds` is the
    /// relation that a call unbinds.
    fn observed<T>(&mut self, unbinds: Option<Relation>, act: impl FnOnce(&mut Users, &mut World) -> T) -> T {
        self.check();
        let checker = Rc::clone(&self.checker);
        // Users say nothing while they wait for the answer of a call, and no fault begins.
        let mut ledger = self.users.ledger.clone();
        self.faults.record_possible_hits(&self.world, &mut ledger);
        if let Some(relation) = unbinds {
            ledger.of_relation(relation, Circumstance::UnboundByCall);
        }
        self.world.observe(move |world| {
            let mut checker = checker.borrow_mut();
            checker.steps += 1;
            checker.check(&ledger, world);
            !checker.is_over()
        });
        let done = act(&mut self.users, &mut self.world);
        self.world.end_observation();
        done
    }

    fn inject(&mut self, fault: &Fault) {
        let now = self.world.elapsed();
        let ledger = &mut self.users.ledger;
        let rewound = self.faults.inject(&mut self.world, ledger, fault);
        for cluster in rewound {
            let mut checker = self.checker.borrow_mut();
            let at = checker.at(now);
            checker.invariants.pass(at);
            checker.invariants.rewound(&self.world, cluster);
        }
    }

    /// Runs until the bindings of the topology are ready.
    fn set_up(&mut self, topology: &Topology) {
        for consumer in topology.consumer_numbers() {
            let key = ObjectKey::new("", "namespaces", "", "kube-system");
            if let Some(object) = self.world.object(Cluster::Consumer(consumer), &key) {
                let identity = crate::invariants::marks::uid(&object);
                self.checker().invariants.identify(consumer, identity);
            }
        }
        while !self.users.may_bind(&mut self.world) && self.world.elapsed() < SET_UP_MAX && !self.is_over() {
            self.until(self.world.elapsed() + Duration::from_millis(100));
        }
        self.observed(None, Users::bind_all);
        while self.world.elapsed() < SET_UP_MAX && !self.is_over() {
            self.until(self.world.elapsed() + Duration::from_millis(500));
            let is_bound = !self.bind_again() && self.users.unbound(&mut self.world).is_empty();
            if is_bound && self.differences().is_empty() {
                return;
            }
        }
        for relation in self.users.unbound(&mut self.world) {
            let message = "before the history began: it was not bound".to_owned();
            self.violation(Invariant::NotReady, &relation.to_string(), message);
        }
        for mut violation in self.differences() {
            violation.message = format!("before the history began: {}", violation.message);
            self.checker().invariants.report(violation);
        }
    }

    /// Runs until what is slow and on its way has arrived, and what is down is back. A process that ends meanwhile, such as for an answer
    /// that was lost, is awaited too, unless it ends again and again.
    fn come_back(&mut self) {
        let at_most = self.world.elapsed() + CONVERGED_MAX;
        loop {
            let late = self.world.late_until().min(at_most);
            if late <= self.world.elapsed() || self.is_over() {
                return;
            }
            self.until(late);
        }
    }

    /// Runs until everything has converged, and then as long as nothing may be written.
    fn settle(&mut self) {
        self.checker().writes = Some(BTreeMap::new());
        let until = self.world.elapsed() + CONVERGED_MAX;
        loop {
            if !self.converge(until) || !self.until_asked(self.world.elapsed() + GRACE) {
                return;
            }
            // A konnector that waited for its Lease had looked at nothing yet, and what its bindings said was from before: it may ask now, or
            // a server has not yet said of what it retained until when.
            if self.world.elapsed() > until || self.differences().is_empty() {
                break;
            }
            self.consent();
        }
        {
            let mut checker = self.checker();
            checker.unrest = None;
            checker.answers.clear();
        }
        if !self.until_asked(self.world.elapsed() + REST) {
            return;
        }
        let unrest = self.checker().unrest.take();
        if let Some(unrest) = unrest {
            self.unrest(&unrest);
        }
        // What has converged stays so.
        let differences = self.differences();
        self.report(differences);
    }

    /// Runs the world until this time, with more steps than others may take if processes only ask again and again. Returns false if it
    /// was stopped before.
    fn until_asked(&mut self, time: Duration) -> bool {
        loop {
            self.until(time);
            if !self.is_over() {
                return true;
            }
            let now = self.world.elapsed();
            if !self.checker().may_go_on(now) {
                return false;
            }
        }
    }

    /// Runs until everything has converged, and lets users consent to what they are asked meanwhile. Returns whether it has; what has not
    /// at this time of the world is reported.
    fn converge(&mut self, until: Duration) -> bool {
        let mut pause = FIRST_LOOK;
        loop {
            // A world that was stopped had no time to converge: what went on in it is told instead.
            if !self.until_asked(self.world.elapsed() + pause) {
                return false;
            }
            pause = (pause * 3 / 2).min(LOOK_EVERY);
            let is_bound = !self.bind_again();
            let differences = self.differences();
            if differences.is_empty() && is_bound {
                return true;
            }
            if self.world.elapsed() > until {
                if !is_bound {
                    self.violation(Invariant::NotReady, "a bind", "it never succeeded".to_owned());
                }
                self.report(differences);
                return false;
            }
            self.consent();
        }
    }

    /// Lets users consent to what conditions ask. Returns whether any asked.
    fn consent(&mut self) -> bool {
        let asks = self.users.consent_to_all(&mut self.world);
        if asks {
            self.kinds.insert("consent");
        }
        asks
    }

    fn report(&mut self, violations: Vec<Violation>) {
        let mut checker = self.checker();
        for violation in violations {
            checker.invariants.report(violation);
        }
    }

    fn differences(&mut self) -> Vec<Violation> {
        self.checker.borrow_mut().differences(&self.users.ledger, &self.world)
    }

    /// Runs the world until this time, and checks each write.
    fn until(&mut self, time: Duration) {
        while !self.is_over() && self.world.step_until(time).is_some() {
            self.checker().steps += 1;
            self.check();
        }
        if !self.is_over() {
            self.world.run_until(time);
        }
    }

    fn is_over(&self) -> bool {
        self.checker.borrow().is_over()
    }

    /// Checks the writes since the last call.
    fn check(&mut self) {
        self.faults.record_hits(&self.world, &mut self.users.ledger);
        self.checker.borrow_mut().check(&self.users.ledger, &mut self.world);
    }

    fn violation(&mut self, invariant: Invariant, subject: &str, message: String) {
        self.checker
            .borrow_mut()
            .violation(&self.users.ledger, &self.world, invariant, subject, message);
    }

    /// Reports a write that may not come at rest.
    fn unrest(&mut self, unrest: &WorldChange) {
        let mut checker = self.checker.borrow_mut();
        let written = checker.written(unrest);
        if let Some(violation) = checker.invariants.unrest(&self.users.ledger, &self.world, &written) {
            checker.invariants.report(violation);
        }
    }

    fn outcome(mut self, seed: u64) -> (Outcome, Trace) {
        let (is_over, steps, unrest) = {
            let mut checker = self.checker();
            let is_limited = checker.steps_max < STEPS_MAX && !checker.is_endless;
            (checker.is_over() && !is_limited, checker.steps, checker.unrest.take())
        };
        if is_over {
            let is_known = self.checker().invariants.has(Invariant::NotAtRest);
            // The writes that do not end tell more than their number.
            match unrest {
                Some(unrest) => self.unrest(&unrest),
                None if is_known => {}
                None => self.violation(
                    Invariant::NotAtRest,
                    "the world",
                    format!("it took more than {steps} steps"),
                ),
            }
        }
        let happened: Vec<&Fault> = self.faults.happened(&self.world).collect();
        let of_faults = happened.iter().flat_map(|fault| fault.kinds());
        let kinds = self.kinds.iter().copied().chain(of_faults);
        let trace = self.world.trace().clone();
        let outcome = Outcome {
            seed,
            requests: self.world.requests(),
            steps,
            millis: millis(self.world.elapsed()),
            kinds: kinds.map(str::to_owned).collect(),
            faults: happened.iter().filter(|fault| !fault.is_backup()).count(),
            violations: self.checker().invariants.violations().to_vec(),
            trace_hash: hash(&trace),
        };
        (outcome, trace)
    }
}

// === impl WriteChecker ===

impl WriteChecker {
    fn is_over(&self) -> bool {
        self.steps >= self.steps_max || self.is_endless
    }

    /// Lets a world that took too many steps take more, if processes only ask again and again in it. Returns whether it may.
    fn may_go_on(&mut self, now: Duration) -> bool {
        let last = self.unrest.as_ref().map(|unrest| unrest.at);
        let may_go_on = !self.is_endless && only_asks(self.steps_max, last, self.burst, now);
        if may_go_on {
            self.steps_max = ASKING_STEPS_MAX;
        }
        may_go_on
    }

    /// Checks the writes since the last call.
    fn check(&mut self, ledger: &Ledger, world: &mut World) {
        for change in world.changes() {
            let written = self.written(&change);
            self.invariants.written(ledger, world, &written);
            if self.is_unrest(change.cluster, &change.change) {
                let last = self.unrest.as_ref().map(|unrest| unrest.at);
                let follows = last.is_some_and(|last| change.at.saturating_sub(last) <= REST);
                let (began, writes) = self.burst;
                self.burst = if follows { (began, writes + 1) } else { (change.at, 1) };
                self.unrest = Some(change);
            }
        }
        for problem in world.problems() {
            let invariant = match problem.what.as_str() {
                "never waits" => Invariant::Hang,
                _ => Invariant::Panic,
            };
            self.violation(ledger, world, invariant, &problem.process, problem.what);
        }
    }

    /// A write as the invariants see it.
    fn written<'a>(&self, change: &'a WorldChange) -> Written<'a> {
        let at = self.at(change.at);
        Written {
            on: change.cluster,
            at,
            change: &change.change,
            process: change.origin.map(|origin| origin.process),
            incarnation: change.origin.map_or(0, |origin| origin.incarnation),
            sent: change.origin.map_or(at, |origin| self.at(origin.sent)),
            informed: change.origin.map_or(at, |origin| self.at(origin.informed)),
            is_disturbed: change.origin.is_some_and(|origin| origin.is_disturbed),
        }
    }

    /// Whether a write may not come at rest. Also counts the writes of each synced object after the history.
    fn is_unrest(&mut self, on: Cluster, change: &Change) -> bool {
        if is_of_rest(change) || is_restore(change) {
            return false;
        }
        if let Some(writes) = &mut self.writes
            && provider_of_group(&change.key.group).is_some()
        {
            let count = writes.entry((on, change.key.clone())).or_default();
            *count += 1;
            self.is_endless |= *count > WRITES_MAX;
        }
        if !is_answer_to_heartbeat(change) {
            return true;
        }
        let count = self.answers.entry((on, change.key.clone())).or_default();
        *count += 1;
        *count > ANSWERS_MAX
    }

    fn differences(&mut self, ledger: &Ledger, world: &World) -> Vec<Violation> {
        let at = self.at(world.elapsed());
        self.invariants.differences(&self.topology, ledger, world, at)
    }

    fn violation(&mut self, ledger: &Ledger, world: &World, invariant: Invariant, subject: &str, message: String) {
        let all = self.topology.consumer_numbers();
        let circumstances: BTreeSet<Circumstance> = all
            .flat_map(|consumer| ledger.circumstances(Some(consumer), None))
            .collect();
        let at = self.at(world.elapsed());
        self.invariants.report(Violation {
            invariant,
            at,
            subject: subject.to_owned(),
            message,
            circumstances,
        });
    }

    /// Milliseconds of a time of the world since the history began.
    fn at(&self, time: Duration) -> u64 {
        millis(time.saturating_sub(self.began))
    }
}

/// Whether nothing was written for as long as a rest lasts, or little after such a rest. `last` is when something was written last that may
/// not come at rest, and `burst` since when such writes have come without a rest, and how many. A world that may take other than the usual
/// count of steps does not go on: it has gone on before, or the command line limits it.
fn only_asks(steps_max: u64, last: Option<Duration>, burst: (Duration, u32), now: Duration) -> bool {
    let (began, writes) = burst;
    let is_quiet = last.is_none_or(|last| now.saturating_sub(last) > REST);
    let is_little = now.saturating_sub(began) <= REST && writes <= LITTLE;
    steps_max == STEPS_MAX && (is_quiet || is_little)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// A hash of a trace.
fn hash(trace: &Trace) -> String {
    use sha2::{Digest as _, Sha256};
    let mut hash = Sha256::new();
    for line in trace.lines() {
        hash.update(line);
        hash.update("\n");
    }
    let digest = hash.finalize();
    digest[..16].iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_world_goes_on_once_if_processes_only_ask() {
        let last = Duration::from_secs(100);
        let late = last + REST + Duration::from_secs(1);
        let many = (Duration::ZERO, LITTLE + 1);
        assert!(only_asks(STEPS_MAX, Some(last), many, late));
        assert!(
            only_asks(STEPS_MAX, None, many, last),
            "nothing was written since it is to be at rest"
        );
        assert!(!only_asks(STEPS_MAX, Some(last), many, last + REST), "writes may go on");
        assert!(
            only_asks(STEPS_MAX, Some(last), (last, 1), last + REST),
            "it rested before"
        );
        assert!(!only_asks(STEPS_MAX, Some(last), (last, LITTLE + 1), last + REST));
        assert!(!only_asks(ASKING_STEPS_MAX, Some(last), many, late), "it went on once");
        assert!(!only_asks(500, Some(last), many, late), "the command line limits it");
    }
}
