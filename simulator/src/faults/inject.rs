//! Carries faults out on the world, and records them.

use std::{collections::BTreeMap, time::Duration};

use bindery_simulator_apiserver::Revisions;

use super::{DefinitionChange, Disturbance, Fault, LEASE_MILLIS, ProcessName, RevisionsAfter};
use crate::{
    topology::Cluster,
    users::{Circumstance, Ledger, change_definition},
    world::{Backup, World},
};

/// By how much revisions are raised when they are bumped: more than any history writes.
const BUMP: u64 = 1_000_000;
/// How long a process is down that starts anew after a restore or a loss.
const DOWN: Duration = Duration::from_secs(2);

/// The backups of a seed.
#[derive(Debug, Default)]
pub struct Faults {
    backups: BTreeMap<Cluster, Backup>,
}

impl Faults {
    /// Does what a fault says. Returns the clusters whose objects are other ones afterwards, without a write.
    pub fn inject(&mut self, world: &mut World, ledger: &mut Ledger, fault: &Fault) -> Vec<Cluster> {
        world.note(&fault.to_string());
        match *fault {
            Fault::Disturb {
                process,
                target,
                how,
                percent,
                millis,
            } => {
                if let (ProcessName::Konnector { of, .. }, Disturbance::Refuse(_) | Disturbance::StallWatches) =
                    (process, how)
                    && let Some(consumer) = of.consumer()
                {
                    ledger.watches_fail(consumer, world.elapsed(), Duration::from_millis(millis));
                }
                world.disturb(process, target, how, percent, Duration::from_millis(millis));
            }
            Fault::EndWatches { of } => world.end_watches(of),
            Fault::Compact { of } => world.compact(of),
            Fault::ClockJump { process, seconds } => world.jump_clock(process, seconds),
            Fault::Crash { process, millis } => world.crash(process, Duration::from_millis(millis)),
            Fault::Freeze { process, millis } => {
                let time = Duration::from_millis(millis);
                if millis > LEASE_MILLIS && world.is_running(process) {
                    ledger.froze(process, world.elapsed(), time);
                }
                world.freeze(process, time);
            }
            Fault::Backup { of } => {
                if let Some(backup) = world.backup(of) {
                    self.backups.insert(of, backup);
                }
            }
            Fault::RestoreInPlace { of, revisions, restart } => {
                if self.restore(world, ledger, of, revisions) {
                    if restart {
                        restart_processes(world, of);
                    }
                    return vec![of];
                }
            }
            Fault::RestoreBoth {
                consumer,
                provider,
                revisions,
            } => {
                let both = [Cluster::Consumer(consumer), Cluster::Provider(provider)];
                return both
                    .into_iter()
                    .filter(|of| self.restore(world, ledger, *of, revisions))
                    .collect();
            }
            Fault::RestoreBeside { consumer, revisions } => {
                if let Some(backup) = self.backups.get(&Cluster::Consumer(consumer)) {
                    ledger.of_consumer(consumer, Circumstance::ConsumerRestoredBeside);
                    return vec![world.clone_beside(consumer, backup, revised(revisions))];
                }
            }
            Fault::LoseObjects { of, percent } => {
                restart_processes(world, of);
                world.lose(of, percent);
                match of {
                    Cluster::Consumer(number) | Cluster::Clone(number) => {
                        ledger.of_consumer(number, Circumstance::ConsumerLostObjects);
                    }
                    Cluster::Provider(number) => ledger.of_provider(number, Circumstance::ProviderLostObjects),
                }
                return vec![of];
            }
            Fault::ChangeDefinition { provider, change } => {
                let fields: &[&str] = match change {
                    DefinitionChange::AddField => &["added"],
                    DefinitionChange::AddColumn => &[],
                };
                change_definition(world, provider, fields);
            }
        }
        Vec::new()
    }

    fn restore(&self, world: &mut World, ledger: &mut Ledger, of: Cluster, revisions: RevisionsAfter) -> bool {
        let Some(backup) = self.backups.get(&of) else {
            return false;
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
        world.restore(of, backup, revised(revisions));
        true
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

/// Kills the processes that run in a cluster; they start again soon.
fn restart_processes(world: &mut World, cluster: Cluster) {
    let runs_in = |process: &ProcessName| match (cluster, process) {
        (Cluster::Provider(number), ProcessName::Server { provider, .. }) => number == *provider,
        (_, ProcessName::Konnector { of, .. }) => *of == cluster,
        _ => false,
    };
    let processes: Vec<_> = world.processes().filter(runs_in).collect();
    for process in processes {
        world.crash(process, DOWN);
    }
}
