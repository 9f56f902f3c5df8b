//! Draws what goes wrong.

use rand::{RngExt as _, rngs::StdRng, seq::IndexedRandom as _};

use crate::{
    faults::{DefinitionChange, Disturbance, Fault, ProcessName, RevisionsAfter, Target, TriggerPoint},
    history::{
        Event, HistoryEvent,
        objects::{between, weighted},
    },
    topology::{Cluster, Topology},
    users::{Action, Consent, Relation},
};

/// Kinds of faults that are drawn together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    Network,
    Watches,
    Processes,
    Clocks,
    Restores,
    Losses,
    Definitions,
    Controllers,
}

/// The times at which users act, in milliseconds.
#[derive(Debug)]
pub(super) struct ActionTimes {
    /// The times of their actions.
    pub actions: Vec<u64>,
    /// The time of the last one.
    pub end: u64,
}

impl ActionTimes {
    /// A moment shortly after a user's action, at which processes have something to do.
    fn soon_after_action(&self, rng: &mut StdRng) -> u64 {
        let action = self.actions.choose(rng).copied().unwrap_or_default();
        action + rng.random_range(0..60_u64)
    }
}

/// Draws this many faults; the last one may be two. Backups do not count: a restore comes with those that it needs.
pub(super) fn draw(
    rng: &mut StdRng,
    topology: &Topology,
    count: u32,
    when: &ActionTimes,
    has_many_objects: bool,
) -> Vec<HistoryEvent> {
    let families = families(rng, has_many_objects);
    let end = when.end.max(1_000);
    let mut faults: Vec<HistoryEvent> = Vec::new();
    let is_harmful = |event: &&HistoryEvent| matches!(&event.event, Event::Fault(fault) if !fault.is_backup());
    while faults.iter().filter(is_harmful).count() < count as usize {
        let at = rng.random_range(0..end);
        let Some(family) = weighted(rng, &families) else {
            break;
        };
        match family {
            Family::Network => push(&mut faults, at, disturb(rng, topology)),
            Family::Watches => {
                let of = cluster(rng, topology);
                let fault = if rng.random_bool(0.6) {
                    Fault::EndWatches { of }
                } else {
                    Fault::Compact { of }
                };
                push(&mut faults, at, fault);
                if matches!(fault, Fault::Compact { .. }) && rng.random_bool(0.6) {
                    push(&mut faults, at, Fault::EndWatches { of });
                }
            }
            Family::Processes => {
                let process = process(rng, topology);
                let (at, fault) = of_process(rng, process, at, when);
                push(&mut faults, at, fault);
            }
            Family::Controllers => {
                let of = cluster(rng, topology);
                let millis = rng.random_range(1_000..45_000);
                let at = when.soon_after_action(rng).saturating_sub(500);
                push(&mut faults, at, Fault::StopControllers { of, millis });
            }
            Family::Clocks => {
                let process = process(rng, topology);
                let steps = [5_i64, 20, 120, 900, 4_000, 30_000, 700_000];
                let step = steps.choose(rng).copied().unwrap_or(5);
                let seconds = if rng.random_bool(0.5) { step } else { -step };
                push(&mut faults, at, Fault::ClockJump { process, seconds });
            }
            Family::Restores => restore(rng, topology, &mut faults, end, when),
            Family::Losses => lose(rng, topology, &mut faults, at),
            Family::Definitions => {
                let provider = provider(rng, topology);
                let change = if rng.random_bool(0.7) {
                    DefinitionChange::AddField
                } else {
                    DefinitionChange::AddColumn
                };
                push(&mut faults, at, Fault::ChangeDefinition { provider, change });
            }
        }
    }
    faults
}

fn push(faults: &mut Vec<HistoryEvent>, at: u64, fault: Fault) {
    let event = Event::Fault(fault);
    faults.push(HistoryEvent { at, event });
}

/// Draws which kinds of faults the seed has. Losses and restores are in few seeds, for they end in what is known to be open.
/// They are in more of the seeds that have many objects.
fn families(rng: &mut StdRng, has_many_objects: bool) -> Vec<(u32, Family)> {
    let (restores, losses) = if has_many_objects { (0.4, 0.5) } else { (0.3, 0.1) };
    let all = [
        (0.7, 5, Family::Network),
        (0.5, 2, Family::Watches),
        (0.6, 4, Family::Processes),
        (0.25, 1, Family::Clocks),
        (restores, 2, Family::Restores),
        (losses, 1, Family::Losses),
        (0.15, 1, Family::Definitions),
        (0.2, 1, Family::Controllers),
    ];
    let mut drawn: Vec<_> = all
        .into_iter()
        .filter(|(probability, ..)| rng.random_bool(*probability))
        .map(|(_, weight, family)| (weight, family))
        .collect();
    if drawn.is_empty() {
        drawn.push((1, Family::Processes));
    }
    drawn
}

fn disturb(rng: &mut StdRng, topology: &Topology) -> Fault {
    let process = process(rng, topology);
    disturb_process(rng, topology, process)
}

fn disturb_process(rng: &mut StdRng, topology: &Topology, process: ProcessName) -> Fault {
    let target = match process {
        ProcessName::Konnector { of, .. } if rng.random_bool(0.4) => Target::Api(of),
        ProcessName::Konnector { .. } if rng.random_bool(0.3) => Target::Grpc(provider(rng, topology)),
        ProcessName::Konnector { .. } => Target::Api(Cluster::Provider(provider(rng, topology))),
        ProcessName::Server { provider, .. } => Target::Api(Cluster::Provider(provider)),
    };
    let kinds = [
        (4, Disturbance::LoseAnswers),
        (3, Disturbance::DoubleRequests),
        (3, Disturbance::Partition),
        (3, Disturbance::Slow),
        (3, Disturbance::StallWatches),
        (3, Disturbance::StaleWatches),
        (1, Disturbance::Refuse(429)),
        (1, Disturbance::Refuse(500)),
        (1, Disturbance::Refuse(503)),
    ];
    // On a connection of bytes there are no requests to do twice or to refuse, and no watches of objects.
    let kinds_of_grpc = [
        (4, Disturbance::LoseAnswers),
        (3, Disturbance::Partition),
        (3, Disturbance::Slow),
    ];
    let kinds: &[_] = match target {
        Target::Api(_) => &kinds,
        Target::Grpc(_) => &kinds_of_grpc,
    };
    let how = weighted(rng, kinds).unwrap_or(Disturbance::Partition);
    // Processes call each other rarely, and a watch has to lag for a while to matter.
    let longest = match (how, target) {
        (Disturbance::StaleWatches, _) | (_, Target::Grpc(_)) => 90_000,
        _ => 40_000,
    };
    Fault::Disturb {
        process,
        target,
        how,
        percent: match how {
            Disturbance::Partition | Disturbance::StallWatches | Disturbance::StaleWatches => 100,
            _ => between(rng, 10..=100),
        },
        millis: rng.random_range(200..longest),
    }
}

/// Draws a crash or a freeze of a process at this time, or at a moment in the life of a request that a user's action causes.
fn of_process(rng: &mut StdRng, process: ProcessName, at: u64, when: &ActionTimes) -> (u64, Fault) {
    let is_crash = rng.random_bool(0.6);
    let millis = if is_crash {
        rng.random_range(10..20_000)
    } else {
        rng.random_range(100..45_000)
    };
    if !is_crash && rng.random_bool(0.2) {
        return (at, Fault::Sleep { process, millis });
    }
    if rng.random_bool(0.3) {
        let fault = if is_crash {
            Fault::Crash { process, millis }
        } else {
            Fault::Freeze { process, millis }
        };
        return (at, fault);
    }
    let points = [
        (3, TriggerPoint::Sent),
        (3, TriggerPoint::Arrived),
        (2, TriggerPoint::Answered),
        (2, TriggerPoint::Watch),
    ];
    let point = weighted(rng, &points).unwrap_or(TriggerPoint::Sent);
    let after = between(rng, 0..=6);
    let fault = if is_crash {
        Fault::CrashAt {
            process,
            after,
            point,
            millis,
        }
    } else {
        Fault::FreezeAt {
            process,
            after,
            point,
            millis,
        }
    };
    (when.soon_after_action(rng), fault)
}

fn restore(rng: &mut StdRng, topology: &Topology, faults: &mut Vec<HistoryEvent>, end: u64, when: &ActionTimes) {
    let (early, late) = (rng.random_range(0..end / 2), rng.random_range(end / 2..end));
    let revisions = if rng.random_bool(0.5) {
        RevisionsAfter::Kept
    } else {
        RevisionsAfter::Bumped
    };
    let (consumer, provider) = (consumer(rng, topology), provider(rng, topology));
    let mut backup = |at, of| push(faults, at, Fault::Backup { of });
    let fault = match rng.random_range(0..100_u32) {
        0..30 => {
            backup(early, Cluster::Consumer(consumer));
            Fault::RestoreBeside { consumer, revisions }
        }
        30..45 => {
            backup(early, Cluster::Consumer(consumer));
            // Backups of two clusters are rarely of the same moment.
            let other = if rng.random_bool(0.7) {
                rng.random_range(0..late)
            } else {
                early
            };
            backup(other, Cluster::Provider(provider));
            Fault::RestoreBoth {
                consumer,
                provider,
                revisions,
                restart: rng.random_bool(0.5),
            }
        }
        kind => {
            let of = if kind < 75 {
                Cluster::Consumer(consumer)
            } else {
                Cluster::Provider(provider)
            };
            backup(early, of);
            Fault::RestoreInPlace {
                of,
                revisions,
                restart: rng.random_bool(0.5),
            }
        }
    };
    push(faults, late, fault);
    if let Fault::RestoreBeside { .. } = fault {
        beside(rng, topology, faults, consumer, late, when);
    }
}

/// Draws what happens to a clone and its origin.
fn beside(
    rng: &mut StdRng,
    topology: &Topology,
    faults: &mut Vec<HistoryEvent>,
    consumer: u8,
    late: u64,
    when: &ActionTimes,
) {
    if rng.random_bool(0.4) {
        let millis = rng.random_range(5_000..60_000);
        // Shortly before or after the clone has taken the Lease.
        let at = late + rng.random_range(1..20_000_u64);
        push(faults, at, Fault::StopOrigin { consumer, millis });
    }
    if rng.random_bool(0.4) {
        let process = ProcessName::Konnector {
            of: Cluster::Clone(consumer),
            replica: 1,
        };
        let at = late + rng.random_range(1_000..15_000_u64);
        let (at, fault) = if rng.random_bool(0.5) {
            (at, disturb_process(rng, topology, process))
        } else {
            let (drawn, fault) = of_process(rng, process, at, when);
            (drawn.max(at), fault)
        };
        push(faults, at, fault);
    }
}

/// Draws objects that vanish from an etcd. More of them may vanish between a user's order about the first and its execution.
fn lose(rng: &mut StdRng, topology: &Topology, faults: &mut Vec<HistoryEvent>, at: u64) {
    let percent = between(rng, 10..=100);
    let of = cluster(rng, topology);
    push(faults, at, Fault::LoseObjects { of, percent });
    let Cluster::Consumer(consumer) = of else {
        return;
    };
    if rng.random_bool(0.6) {
        return;
    }
    // Konnectors see what is missing when they list.
    push(faults, at, Fault::EndWatches { of });
    let ordered = at + rng.random_range(5_000..20_000_u64);
    let millis = rng.random_range(2_000..10_000);
    for replica in 1..=replicas(topology, consumer) {
        let process = ProcessName::Konnector { of, replica };
        push(faults, ordered, Fault::Crash { process, millis });
    }
    let relation = Relation {
        consumer,
        provider: provider(rng, topology),
    };
    let to = Consent::Orphans;
    faults.push(HistoryEvent {
        at: ordered + 1,
        event: Event::User(Action::Consent { relation, to }),
    });
    let percent = between(rng, 10..=100);
    push(faults, ordered + 2, Fault::LoseObjects { of, percent });
}

/// The number of konnectors of a consumer.
fn replicas(topology: &Topology, consumer: u8) -> u8 {
    let setup = topology.consumers.get(usize::from(consumer) - 1);
    setup.map_or(1, |setup| setup.replicas)
}

fn process(rng: &mut StdRng, topology: &Topology) -> ProcessName {
    if rng.random_bool(0.7) {
        let number = consumer(rng, topology);
        ProcessName::Konnector {
            of: Cluster::Consumer(number),
            replica: between(rng, 1..=replicas(topology, number)),
        }
    } else {
        let provider = provider(rng, topology);
        let replicas = topology
            .providers
            .get(usize::from(provider) - 1)
            .map_or(1, |setup| setup.replicas);
        ProcessName::Server {
            provider,
            replica: between(rng, 1..=replicas),
        }
    }
}

fn cluster(rng: &mut StdRng, topology: &Topology) -> Cluster {
    if rng.random_bool(0.55) {
        Cluster::Consumer(consumer(rng, topology))
    } else {
        Cluster::Provider(provider(rng, topology))
    }
}

fn consumer(rng: &mut StdRng, topology: &Topology) -> u8 {
    between(rng, 1..=u8::try_from(topology.consumers.len()).unwrap_or(1).max(1))
}

fn provider(rng: &mut StdRng, topology: &Topology) -> u8 {
    between(rng, 1..=u8::try_from(topology.providers.len()).unwrap_or(1).max(1))
}
