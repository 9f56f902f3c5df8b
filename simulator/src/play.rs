//! Plays a history: runs a world, lets its events happen in time, and checks each write.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use bindery_simulator_apiserver::{Change, ObjectKey};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    faults::Faults,
    history::{Event, History},
    invariants::{Clusters, Invariant, Invariants, Violation, Written, is_answer_to_heartbeat, is_of_rest, is_restore},
    topology::Cluster,
    users::Users,
    world::{Trace, World},
};

/// The longest time until the bindings of the topology are ready.
const SET_UP_MAX: Duration = Duration::from_mins(3);
/// The longest time after the last fault until everything has converged.
const CONVERGED_MAX: Duration = Duration::from_mins(20);
/// The pause between two looks whether everything has converged.
const LOOK_EVERY: Duration = Duration::from_secs(15);
/// After everything has converged, writes may go on for this long.
const GRACE: Duration = Duration::from_secs(45);
/// For this long nothing may be written at rest.
const REST: Duration = Duration::from_secs(45);
/// How often a server may set the conditions of a ClusterBinding while everything rests: once for a heartbeat of the konnector.
const ANSWERS_MAX: u32 = 2;
/// A world that needs more steps does not come to rest.
const STEPS_MAX: u64 = 30_000;

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
    /// Kinds of the user actions and faults that happened.
    pub kinds: BTreeSet<String>,
    /// Number of faults.
    pub faults: usize,
    /// Violations in the order of their times.
    pub violations: Vec<Violation>,
    /// A hash of the trace, which is the same for the same seed everywhere.
    pub trace_hash: String,
}

/// A history that is being played.
struct Player<'a> {
    history: &'a History,
    world: World,
    users: Users,
    faults: Faults,
    invariants: Invariants,
    /// The time of the world when the history began.
    began: Duration,
    steps: u64,
    steps_max: u64,
    /// The last write that may not come at rest.
    unrest: Option<Violation>,
    /// How often a ClusterBinding was written because of heartbeats, since the world is to be at rest.
    answers: BTreeMap<(Cluster, ObjectKey), u32>,
}

impl Clusters for World {
    fn object(&self, on: Cluster, key: &ObjectKey) -> Option<Arc<Value>> {
        self.api(on)?.get(key).cloned()
    }

    fn objects(&self, on: Cluster) -> Vec<(ObjectKey, Arc<Value>)> {
        let objects = self.api(on).into_iter().flat_map(|api| api.objects());
        objects.map(|(key, object)| (key.clone(), Arc::clone(object))).collect()
    }
}

/// Plays a history to its end. Must be called once in an operating-system process, after [`crate::world::begin`].
pub fn play(history: &History, steps_max: Option<u64>) -> (Outcome, Trace) {
    let mut world = World::new(history.seed, &history.topology);
    let users = Users::start(&mut world, &history.topology);
    let mut player = Player {
        history,
        world,
        users,
        faults: Faults::default(),
        invariants: Invariants::default(),
        began: Duration::ZERO,
        steps: 0,
        steps_max: steps_max.unwrap_or(STEPS_MAX),
        unrest: None,
        answers: BTreeMap::new(),
    };
    player.run();
    player.outcome()
}

impl Player<'_> {
    fn run(&mut self) {
        self.set_up();
        self.began = self.world.elapsed();
        self.users.ledger.begin(self.began);
        let history = self.history;
        for event in &history.events {
            self.until(self.began + Duration::from_millis(event.at));
            match &event.event {
                Event::User(action) => self.users.perform(&mut self.world, action),
                Event::Fault(fault) => {
                    let ledger = &mut self.users.ledger;
                    for cluster in self.faults.inject(&mut self.world, ledger, fault) {
                        self.invariants.rewound(&self.world, cluster);
                    }
                }
            }
            self.check();
        }
        self.until(self.began + Duration::from_millis(history.end()));
        self.world.calm();
        self.world.correct_clocks();
        if !self.is_over() {
            self.settle();
        }
    }

    /// Runs until the bindings of the topology are ready.
    fn set_up(&mut self) {
        for consumer in self.history.topology.consumer_numbers() {
            let key = ObjectKey::new("", "namespaces", "", "kube-system");
            if let Some(object) = self.world.object(Cluster::Consumer(consumer), &key) {
                self.invariants
                    .identify(consumer, crate::invariants::marks::uid(&object));
            }
        }
        while !self.users.may_bind(&mut self.world) && self.world.elapsed() < SET_UP_MAX && !self.is_over() {
            self.until(self.world.elapsed() + Duration::from_millis(100));
        }
        self.users.bind_all(&mut self.world);
        while self.world.elapsed() < SET_UP_MAX && !self.is_over() {
            self.until(self.world.elapsed() + Duration::from_millis(500));
            let is_bound = !self.users.bind_again(&mut self.world) && self.users.unbound(&mut self.world).is_empty();
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
            self.invariants.report(violation);
        }
    }

    /// Runs until everything has converged, and then as long as nothing may be written.
    fn settle(&mut self) {
        let until = self.world.elapsed() + CONVERGED_MAX;
        let left = loop {
            self.until(self.world.elapsed() + LOOK_EVERY);
            let is_bound = !self.users.bind_again(&mut self.world);
            let differences = self.differences();
            if differences.is_empty() && is_bound {
                break differences;
            }
            if self.world.elapsed() > until || self.is_over() {
                if !is_bound {
                    self.violation(Invariant::NotReady, "a bind", "it never succeeded".to_owned());
                }
                break differences;
            }
            self.users.consent_to_all(&mut self.world);
        };
        if !left.is_empty() || self.world.elapsed() > until {
            for violation in left {
                self.invariants.report(violation);
            }
            return;
        }
        self.until(self.world.elapsed() + GRACE);
        self.unrest = None;
        self.answers.clear();
        self.until(self.world.elapsed() + REST);
        if let Some(unrest) = self.unrest.take() {
            self.invariants.report(unrest);
        }
        // What had converged stays so.
        if !self.is_over() {
            for violation in self.differences() {
                self.invariants.report(violation);
            }
        }
    }

    fn differences(&mut self) -> Vec<Violation> {
        let at = millis(self.world.elapsed().saturating_sub(self.began));
        let topology = &self.history.topology;
        self.invariants
            .differences(topology, &self.users.ledger, &self.world, at)
    }

    /// Runs the world until this time, and checks each write.
    fn until(&mut self, time: Duration) {
        while self.world.next_at().is_some_and(|at| at <= time) && !self.is_over() {
            self.world.step();
            self.steps += 1;
            self.check();
        }
        if !self.is_over() {
            self.world.run_until(time);
        }
    }

    fn is_over(&self) -> bool {
        self.steps >= self.steps_max
    }

    /// Checks the writes since the last call.
    fn check(&mut self) {
        for change in self.world.changes() {
            let at = millis(change.at.saturating_sub(self.began));
            let written = Written {
                on: change.cluster,
                at,
                change: &change.change,
                process: change.origin.map(|origin| origin.process),
                incarnation: change.origin.map_or(0, |origin| origin.incarnation),
                sent: change
                    .origin
                    .map_or(at, |origin| millis(origin.sent.saturating_sub(self.began))),
                is_disturbed: change.origin.is_some_and(|origin| origin.is_disturbed),
            };
            self.invariants.written(&self.users.ledger, &self.world, &written);
            if self.is_unrest(change.cluster, &change.change) {
                let unrest = self.invariants.unrest(&self.users.ledger, &self.world, &written);
                self.unrest = Some(unrest);
            }
        }
        for problem in self.world.problems() {
            let invariant = match problem.what.as_str() {
                "never waits" => Invariant::Hang,
                _ => Invariant::Panic,
            };
            self.violation(invariant, &problem.process, problem.what);
        }
    }

    /// Whether a write may not come at rest.
    fn is_unrest(&mut self, on: Cluster, change: &Change) -> bool {
        if is_of_rest(change) || is_restore(change) {
            return false;
        }
        if !is_answer_to_heartbeat(change) {
            return true;
        }
        let count = self.answers.entry((on, change.key.clone())).or_default();
        *count += 1;
        *count > ANSWERS_MAX
    }

    fn violation(&mut self, invariant: Invariant, subject: &str, message: String) {
        let all = self.history.topology.consumer_numbers();
        let circumstances = all
            .flat_map(|consumer| self.users.ledger.circumstances(Some(consumer), None))
            .collect();
        self.invariants.report(Violation {
            invariant,
            at: millis(self.world.elapsed().saturating_sub(self.began)),
            subject: subject.to_owned(),
            message,
            circumstances,
        });
    }

    fn outcome(mut self) -> (Outcome, Trace) {
        if self.is_over() && self.steps_max >= STEPS_MAX {
            let steps = self.steps;
            // The writes that do not end tell more than their number.
            match self.unrest.take() {
                Some(unrest) => self.invariants.report(unrest),
                None if self.invariants.has(Invariant::NotAtRest) => {}
                None => self.violation(
                    Invariant::NotAtRest,
                    "the world",
                    format!("it took more than {steps} steps"),
                ),
            }
        }
        let kinds = self.history.actions().flat_map(crate::users::Action::kinds);
        let faults = self.history.faults().flat_map(crate::faults::Fault::kinds);
        let trace = self.world.trace().clone();
        let outcome = Outcome {
            seed: self.history.seed,
            requests: self.world.requests(),
            steps: self.steps,
            millis: millis(self.world.elapsed()),
            kinds: kinds.chain(faults).map(str::to_owned).collect(),
            faults: self.history.faults().count(),
            violations: self.invariants.violations().to_vec(),
            trace_hash: hash(&trace),
        };
        (outcome, trace)
    }
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
    digest[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}
