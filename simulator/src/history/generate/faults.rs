//! Draws what goes wrong.

use rand::{RngExt as _, rngs::StdRng, seq::IndexedRandom as _};

use crate::{
    faults::{DefinitionChange, Disturbance, Fault, ProcessName, RevisionsAfter, Target},
    history::{
        Event, HistoryEvent,
        objects::{between, weighted},
    },
    topology::{Cluster, Topology},
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
}

/// Draws about this many faults before `end`. A restore comes with the backup that it needs.
pub(super) fn draw(rng: &mut StdRng, topology: &Topology, count: u32, end: u64) -> Vec<HistoryEvent> {
    let families = families(rng);
    let end = end.max(1_000);
    let mut faults = Vec::new();
    while faults.len() < count as usize {
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
            Family::Processes => push(&mut faults, at, of_process(rng, topology)),
            Family::Clocks => {
                let process = process(rng, topology);
                let steps = [5_i64, 20, 120, 900, 4_000, 30_000, 700_000];
                let step = steps.choose(rng).copied().unwrap_or(5);
                let seconds = if rng.random_bool(0.5) { step } else { -step };
                push(&mut faults, at, Fault::ClockJump { process, seconds });
            }
            Family::Restores => restore(rng, topology, &mut faults, end),
            Family::Losses => {
                let percent = between(rng, 10..=100);
                let of = cluster(rng, topology);
                push(&mut faults, at, Fault::LoseObjects { of, percent });
            }
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
fn families(rng: &mut StdRng) -> Vec<(u32, Family)> {
    let all = [
        (0.7, 5, Family::Network),
        (0.5, 2, Family::Watches),
        (0.6, 4, Family::Processes),
        (0.25, 1, Family::Clocks),
        (0.3, 2, Family::Restores),
        (0.1, 1, Family::Losses),
        (0.15, 1, Family::Definitions),
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
        (3, Disturbance::StaleLists),
        (1, Disturbance::Refuse(429)),
        (1, Disturbance::Refuse(500)),
        (1, Disturbance::Refuse(503)),
    ];
    let how = weighted(rng, &kinds).unwrap_or(Disturbance::Partition);
    Fault::Disturb {
        process,
        target,
        how,
        percent: match how {
            Disturbance::Partition | Disturbance::StallWatches | Disturbance::StaleLists => 100,
            _ => between(rng, 10..=100),
        },
        millis: rng.random_range(200..40_000),
    }
}

fn of_process(rng: &mut StdRng, topology: &Topology) -> Fault {
    let process = process(rng, topology);
    if rng.random_bool(0.6) {
        let millis = rng.random_range(10..20_000);
        Fault::Crash { process, millis }
    } else {
        let millis = rng.random_range(100..45_000);
        Fault::Freeze { process, millis }
    }
}

fn restore(rng: &mut StdRng, topology: &Topology, faults: &mut Vec<HistoryEvent>, end: u64) {
    let (early, late) = (rng.random_range(0..end / 2), rng.random_range(end / 2..end));
    let revisions = if rng.random_bool(0.5) {
        RevisionsAfter::Kept
    } else {
        RevisionsAfter::Bumped
    };
    let (consumer, provider) = (consumer(rng, topology), provider(rng, topology));
    let mut backup = |of| push(faults, early, Fault::Backup { of });
    let fault = match rng.random_range(0..100_u32) {
        0..30 => {
            backup(Cluster::Consumer(consumer));
            Fault::RestoreBeside { consumer, revisions }
        }
        30..45 => {
            backup(Cluster::Consumer(consumer));
            backup(Cluster::Provider(provider));
            Fault::RestoreBoth {
                consumer,
                provider,
                revisions,
            }
        }
        kind => {
            let of = if kind < 75 {
                Cluster::Consumer(consumer)
            } else {
                Cluster::Provider(provider)
            };
            backup(of);
            Fault::RestoreInPlace {
                of,
                revisions,
                restart: rng.random_bool(0.5),
            }
        }
    };
    push(faults, late, fault);
    if let Fault::RestoreBeside { .. } = fault
        && rng.random_bool(0.3)
    {
        let process = ProcessName::Konnector {
            of: Cluster::Clone(consumer),
            replica: 1,
        };
        let millis = rng.random_range(100..30_000);
        push(faults, late + 5_000, Fault::Crash { process, millis });
    }
}

fn process(rng: &mut StdRng, topology: &Topology) -> ProcessName {
    if rng.random_bool(0.7) {
        let number = consumer(rng, topology);
        let replicas = topology
            .consumers
            .get(usize::from(number) - 1)
            .map_or(1, |setup| setup.replicas);
        ProcessName::Konnector {
            of: Cluster::Consumer(number),
            replica: between(rng, 1..=replicas),
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
