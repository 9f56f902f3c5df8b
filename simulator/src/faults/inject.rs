//! Carries faults out on the world, and records which of them had an effect.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bindery_simulator_apiserver::{ObjectKey, Revisions};
use serde_json::Value;

use super::{DefinitionChange, Disturbance, Fault, LEASE_MILLIS, ProcessName, RevisionsAfter, Target};
use crate::{
    topology::{Cluster, definition_name},
    users::{Circumstance, Ledger, change_definition},
    world::{Backup, ProcessFault, RuleNumber, World},
};

/// By how much revisions are raised when they are bumped: more than any history writes.
const BUMP: u64 = 1_000_000;
/// For how long a credential can be renewed, in seconds: a week.
const RENEWAL_SECONDS: i64 = 7 * 24 * 3600;
/// How long a process is down that starts anew after a restore or a loss.
const DOWN: Duration = Duration::from_secs(2);

/// The backups of a seed, and the faults that had an effect.
#[derive(Debug, Default)]
pub struct Faults {
    backups: BTreeMap<Cluster, Backup>,
    /// Faults that had an effect at once.
    done: Vec<Fault>,
    /// Faults that have an effect only if something meets their rule.
    ruled: Vec<(Fault, RuleNumber)>,
    /// What the ledger has to know as soon as a rule has an effect.
    notices: Vec<(RuleNumber, LedgerNotice)>,
}

/// What a fault did, as far as that is known when it begins.
#[derive(Debug)]
enum FaultEffect {
    /// It did nothing.
    Nothing,
    /// It did something.
    Done,
    /// The objects of these clusters are other ones, without a write. It did nothing else if `is_felt` is false.
    Rewound { clusters: Vec<Cluster>, is_felt: bool },
    /// It does something as soon as this rule has a hit.
    Rule(RuleNumber),
}

/// A circumstance that begins with the first hit of a rule.
#[derive(Clone, Copy, Debug)]
enum LedgerNotice {
    /// The process stands still for this long, which is longer than its Lease lasts.
    Froze(ProcessName, Duration),
    /// Watches and lists of the consumer's konnector may fail for this long.
    WatchFailed(u8, Duration),
}

// === impl Faults ===

impl Faults {
    /// Does what a fault says. Returns the clusters whose objects are other ones afterwards, without a write.
    pub fn inject(&mut self, world: &mut World, ledger: &mut Ledger, fault: &Fault) -> Vec<Cluster> {
        world.note(&fault.to_string());
        match self.begin(world, ledger, fault) {
            FaultEffect::Nothing => {}
            FaultEffect::Done => self.done.push(*fault),
            FaultEffect::Rewound { clusters, is_felt } => {
                if is_felt {
                    self.done.push(*fault);
                }
                return clusters;
            }
            FaultEffect::Rule(rule) => self.ruled.push((*fault, rule)),
        }
        Vec::new()
    }

    /// The faults that have had an effect so far: they changed a cluster or a process, or hit at least one request or watch event.
    pub fn happened(&self, world: &World) -> impl Iterator<Item = &Fault> {
        let ruled = self.ruled.iter().filter(move |(_, rule)| world.hits(*rule) > 0);
        self.done.iter().chain(ruled.map(|(fault, _)| fault))
    }

    /// Records in the ledger what rules have done since the last call.
    pub fn record_hits(&mut self, world: &World, ledger: &mut Ledger) {
        for (_, notice) in self.notices.extract_if(.., |(rule, _)| world.hits(*rule) > 0) {
            notice.record(world.elapsed(), ledger);
        }
    }

    /// Records in the ledger what rules may do while nobody calls [`Self::record_hits`].
    pub fn record_possible_hits(&self, world: &World, ledger: &mut Ledger) {
        for (_, notice) in &self.notices {
            notice.record(world.elapsed(), ledger);
        }
    }

    fn begin(&mut self, world: &mut World, ledger: &mut Ledger, fault: &Fault) -> FaultEffect {
        match *fault {
            Fault::Disturb { .. } | Fault::CrashAt { .. } | Fault::FreezeAt { .. } | Fault::StopControllers { .. } => {
                self.begin_rule(world, fault)
            }
            Fault::EndWatches { of } => FaultEffect::done(world.end_watches(of) > 0),
            Fault::Compact { of } => FaultEffect::done(world.compact(of)),
            Fault::ClockJump { process, seconds } => {
                let has_jumped = world.jump_clock(process, seconds);
                if let ProcessName::Server { provider, .. } = process
                    && has_jumped
                    && seconds >= RENEWAL_SECONDS
                {
                    ledger.of_provider(provider, Circumstance::ServerClockAhead);
                }
                FaultEffect::done(has_jumped)
            }
            Fault::Crash { process, millis } => FaultEffect::done(world.crash(process, Duration::from_millis(millis))),
            Fault::Freeze { process, millis } => {
                let time = Duration::from_millis(millis);
                let has_frozen = world.freeze(process, time);
                if has_frozen && millis > LEASE_MILLIS {
                    ledger.froze(process, world.elapsed(), time);
                }
                FaultEffect::done(has_frozen)
            }
            Fault::Sleep { process, millis } => {
                let time = Duration::from_millis(millis);
                let sleeps = world.sleep(process, time);
                if sleeps && millis > LEASE_MILLIS {
                    ledger.froze(process, world.elapsed(), time);
                }
                FaultEffect::done(sleeps)
            }
            Fault::Backup { of } => {
                let backup = world.backup(of);
                let is_taken = backup.is_some();
                self.backups.extend(backup.map(|backup| (of, backup)));
                FaultEffect::done(is_taken)
            }
            Fault::RestoreInPlace { of, revisions, restart } => self.restore(world, ledger, &[of], revisions, restart),
            Fault::RestoreBoth {
                consumer,
                provider,
                revisions,
                restart,
            } => {
                let both = [Cluster::Consumer(consumer), Cluster::Provider(provider)];
                self.restore(world, ledger, &both, revisions, restart)
            }
            Fault::RestoreBeside { consumer, revisions } => {
                let Some(backup) = self.backups.get(&Cluster::Consumer(consumer)) else {
                    return FaultEffect::Nothing;
                };
                ledger.of_consumer(consumer, Circumstance::ConsumerRestoredBeside);
                let clone = world.clone_beside(consumer, backup, revised(revisions));
                FaultEffect::Rewound {
                    clusters: vec![clone],
                    is_felt: true,
                }
            }
            Fault::StopOrigin { consumer, millis } => {
                if world.api(Cluster::Clone(consumer)).is_none() {
                    return FaultEffect::Nothing;
                }
                let down = Duration::from_millis(millis);
                FaultEffect::done(crash_processes(world, Cluster::Consumer(consumer), down))
            }
            Fault::LoseObjects { of, percent } => {
                crash_processes(world, of, DOWN);
                let is_felt = world.lose(of, percent) > 0;
                match of {
                    _ if !is_felt => {}
                    Cluster::Consumer(number) | Cluster::Clone(number) => {
                        ledger.of_consumer(number, Circumstance::ConsumerLostObjects);
                    }
                    Cluster::Provider(number) => ledger.of_provider(number, Circumstance::ProviderLostObjects),
                }
                let clusters = vec![of];
                FaultEffect::Rewound { clusters, is_felt }
            }
            Fault::ChangeDefinition { provider, change } => {
                let fields: &[&str] = match change {
                    DefinitionChange::AddField => &["added"],
                    DefinitionChange::AddColumn => &[],
                };
                let before = definition(world, provider);
                change_definition(world, provider, fields);
                FaultEffect::done(definition(world, provider) != before)
            }
        }
    }

    /// Begins a fault that waits for what it hits.
    fn begin_rule(&mut self, world: &mut World, fault: &Fault) -> FaultEffect {
        let mut notice = None;
        let rule = match *fault {
            Fault::Disturb {
                process,
                target,
                how,
                percent,
                millis,
            } => {
                if let (ProcessName::Konnector { of, .. }, Disturbance::Refuse(_) | Disturbance::StallWatches) =
                    (process, how)
                    && matches!(target, Target::Api(_))
                {
                    let time = Duration::from_millis(millis);
                    notice = of.consumer().map(|consumer| LedgerNotice::WatchFailed(consumer, time));
                }
                world.disturb(process, target, how, percent, Duration::from_millis(millis))
            }
            Fault::CrashAt {
                process,
                after,
                point,
                millis,
            } => world.arm(
                process,
                point,
                after,
                ProcessFault::Crash(Duration::from_millis(millis)),
            ),
            Fault::FreezeAt {
                process,
                after,
                point,
                millis,
            } => {
                let time = Duration::from_millis(millis);
                notice = (millis > LEASE_MILLIS).then_some(LedgerNotice::Froze(process, time));
                world.arm(process, point, after, ProcessFault::Freeze(time))
            }
            Fault::StopControllers { of, millis } => world.stop_controllers(of, Duration::from_millis(millis)),
            _ => return FaultEffect::Nothing,
        };
        self.notices.extend(notice.map(|notice| (rule, notice)));
        FaultEffect::Rule(rule)
    }

    /// Restores those of the clusters that have a backup, and starts their processes anew if that is wanted.
    fn restore(
        &self,
        world: &mut World,
        ledger: &mut Ledger,
        clusters: &[Cluster],
        revisions: RevisionsAfter,
        restart: bool,
    ) -> FaultEffect {
        let mut restored = Vec::new();
        let mut is_felt = false;
        for &of in clusters {
            let Some(backup) = self.backups.get(&of) else {
                continue;
            };
            match of {
                Cluster::Consumer(number) | Cluster::Clone(number) => {
                    ledger.of_consumer(number, Circumstance::ConsumerRestoredInPlace);
                }
                Cluster::Provider(number) => ledger.of_provider(number, Circumstance::ProviderRestoredInPlace),
            }
            if revisions == RevisionsAfter::Bumped {
                rewind_unseen(ledger, of);
            }
            is_felt |= world.restore(of, backup, revised(revisions));
            restored.push(of);
        }
        if restart {
            for of in &restored {
                crash_processes(world, *of, DOWN);
            }
        }
        FaultEffect::Rewound {
            clusters: restored,
            is_felt,
        }
    }
}

// === impl FaultEffect ===

impl FaultEffect {
    fn done(is_done: bool) -> Self {
        if is_done { Self::Done } else { Self::Nothing }
    }
}

// === impl LedgerNotice ===

impl LedgerNotice {
    /// Records it as of a time of the world.
    fn record(self, from: Duration, ledger: &mut Ledger) {
        match self {
            Self::Froze(process, time) => ledger.froze(process, from, time),
            Self::WatchFailed(consumer, time) => ledger.watches_fail(consumer, from, time),
        }
    }
}

/// Notes that nothing in a running process tells that the cluster went back in time.
fn rewind_unseen(ledger: &mut Ledger, of: Cluster) {
    match of {
        Cluster::Consumer(number) | Cluster::Clone(number) => ledger.of_consumer(number, Circumstance::RewindUnseen),
        Cluster::Provider(number) => ledger.of_provider(number, Circumstance::RewindUnseen),
    }
}

fn revised(revisions: RevisionsAfter) -> Revisions {
    match revisions {
        RevisionsAfter::Kept => Revisions::Kept,
        RevisionsAfter::Bumped => Revisions::Bumped(BUMP),
    }
}

/// The CRD of a provider.
fn definition(world: &World, provider: u8) -> Option<Arc<Value>> {
    let name = definition_name(provider);
    let key = ObjectKey::new("apiextensions.k8s.io", "customresourcedefinitions", "", &name);
    world.api(Cluster::Provider(provider))?.get(&key).cloned()
}

/// Kills the processes that run in a cluster; they start again after this time. Returns whether one of them ran.
fn crash_processes(world: &mut World, cluster: Cluster, down: Duration) -> bool {
    let runs_in = |process: &ProcessName| match (cluster, process) {
        (Cluster::Provider(number), ProcessName::Server { provider, .. }) => number == *provider,
        (_, ProcessName::Konnector { of, .. }) => *of == cluster,
        _ => false,
    };
    let processes: Vec<_> = world.processes().filter(runs_in).collect();
    let mut has_run = false;
    for process in processes {
        has_run |= world.crash(process, down);
    }
    has_run
}
