//! The use of an API ends.

use super::{CONSUMER, RELATION, object, with_objects};
use crate::{
    faults::{Fault, ProcessName, RevisionsAfter},
    history::History,
    topology::{BoundBy, Cluster, DeletionPolicy},
    users::{Action, Consent, Ending, Propagation},
};

/// A foreground deletion of a binding whose user said nothing of copies, as a prune does it: the copies stay.
pub(super) fn a_foreground_delete_of_the_binding() -> History {
    let end = Action::End {
        relation: RELATION,
        what: Ending::Binding,
        propagation: Propagation::Foreground,
    };
    with_objects(3).user(20_000, end)
}

/// A user deletes the CRD of a binding with deletionPolicy Orphan: the objects of the CRD end with it, and their copies stay.
pub(super) fn a_deleted_crd_of_a_binding_that_keeps_copies() -> History {
    let end = Action::End {
        relation: RELATION,
        what: Ending::Definition,
        propagation: Propagation::Background,
    };
    let mut history = with_objects(3).user(20_000, end);
    history.topology.consumers[0].bindings[0].policy = DeletionPolicy::Orphan;
    history
}

/// A deletion of the binding that orphans its dependents, which are the CRD and by that the objects. The binding then asks for force.
pub(super) fn a_delete_that_orphans_dependents() -> History {
    let end = Action::End {
        relation: RELATION,
        what: Ending::Binding,
        propagation: Propagation::Orphan,
    };
    let (relation, to) = (RELATION, Consent::Force);
    with_objects(5)
        .user(20_000, end)
        .user(60_000, Action::Consent { relation, to })
}

/// Users create objects while the owner unbinds the export by a call. The bundle ends its binding as one without objects.
pub(super) fn objects_that_come_with_an_unbind() -> History {
    let (relation, on) = (RELATION, CONSUMER);
    let mut history = History::pair(1).user(5_000, Action::Unbind { relation, force: false });
    history.topology.consumers[0].bindings[0].by = BoundBy::Bundle;
    (1..=20).fold(history, |history, name| {
        let object = object(name);
        history.user(5_000 + u64::from(name) * 10, Action::Create { on, object })
    })
}

/// The provider is restored while an unbind goes on, and the konnector starts anew. What the restore brought back stays.
pub(super) fn a_restored_provider_while_unbinding() -> History {
    let of = Cluster::Provider(1);
    let process = ProcessName::Konnector {
        of: CONSUMER,
        replica: 1,
    };
    let end = Action::End {
        relation: RELATION,
        what: Ending::Binding,
        propagation: Propagation::Background,
    };
    with_objects(5)
        .fault(15_000, Fault::Backup { of })
        .user(20_000, end)
        .fault(
            20_015,
            Fault::RestoreInPlace {
                of,
                revisions: RevisionsAfter::Bumped,
                restart: false,
            },
        )
        .fault(20_045, Fault::Crash { process, millis: 500 })
}
