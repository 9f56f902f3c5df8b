//! Sources that vanish from the etcd of a consumer without a deletion.

use super::{CONSUMER, object, with_objects};
use crate::{
    faults::{Disturbance, Fault, ProcessName, RevisionsAfter, Target},
    history::History,
    topology::Cluster,
    users::{Action, ObjectName},
};

/// Half of eight sources vanish while the konnector is down.
pub(super) fn some_sources_are_lost() -> History {
    with_objects(8).fault(
        20_000,
        Fault::LoseObjects {
            of: CONSUMER,
            percent: 50,
        },
    )
}

/// Losses in two namespaces while the provider refuses many requests, so that the namespaces become known one after the other.
pub(super) fn losses_spread_over_namespaces() -> History {
    let mut history = with_objects(16);
    for name in 1..=16 {
        let object = ObjectName {
            namespace: 2,
            ..object(name)
        };
        history = history.user(u64::from(name) * 50, Action::Create { on: CONSUMER, object });
    }
    let refusals = Fault::Disturb {
        process: ProcessName::Konnector {
            of: CONSUMER,
            replica: 1,
        },
        target: Target::Api(Cluster::Provider(1)),
        how: Disturbance::Refuse(503),
        percent: 85,
        millis: 60_000,
    };
    let (of, percent) = (CONSUMER, 60);
    history.events.sort_by_key(|event| event.at);
    history.seed = 2;
    history
        .fault(29_000, refusals)
        .fault(30_000, Fault::LoseObjects { of, percent })
}

/// An object is edited between a backup of the consumer and its restore in place.
pub(super) fn a_consumer_restored_in_place() -> History {
    let (on, of) = (CONSUMER, CONSUMER);
    let restore = Fault::RestoreInPlace {
        of,
        revisions: RevisionsAfter::Kept,
        restart: false,
    };
    with_objects(2)
        .fault(10_000, Fault::Backup { of })
        .user(15_000, Action::Edit { on, object: object(1) })
        .fault(20_000, restore)
}

/// An object is edited between a backup of the provider and its restore, which raises all revisions.
pub(super) fn a_provider_restored_with_bumped_revisions() -> History {
    let (on, of) = (CONSUMER, Cluster::Provider(1));
    let restore = Fault::RestoreInPlace {
        of,
        revisions: RevisionsAfter::Bumped,
        restart: false,
    };
    with_objects(2)
        .fault(10_000, Fault::Backup { of })
        .user(15_000, Action::Edit { on, object: object(1) })
        .fault(20_000, restore)
}
