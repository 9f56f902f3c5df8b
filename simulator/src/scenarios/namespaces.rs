//! What happens to provider namespaces.

use super::{CONSUMER, RELATION, object, with_objects};
use crate::{
    history::History,
    topology::{Claim, ClaimedResource, ControllerPace, Owner, Selection},
    users::{Action, Kind, ObjectName},
};

/// The operator keeps an object of their own beside copies, and the consumer's namespace is deleted. The template names only the
/// first namespace, so that the second one is given back.
pub(super) fn an_operators_object_in_a_provider_namespace() -> History {
    let (on, relation, namespace) = (CONSUMER, RELATION, 2);
    let object = ObjectName { namespace, ..object(1) };
    with_objects(1)
        .user(1_000, Action::Create { on, object })
        .user(10_000, Action::PutBeside { relation, namespace })
        .user(20_000, Action::DeleteNamespace { on, namespace })
}

/// A user deletes a namespace and at once forces its end, so that an object stays that the konnector holds and nobody can write. A
/// claim has the provider namespaces looked after by a second engine.
pub(super) fn an_object_in_a_namespace_that_was_forced_to_end() -> History {
    let (on, namespace) = (CONSUMER, 2);
    let object = ObjectName { namespace, ..object(1) };
    let mut history = with_objects(1)
        .user(1_000, Action::Create { on, object })
        .user(10_000, Action::DeleteNamespace { on, namespace })
        .user(10_004, Action::ForceNamespace { on, namespace });
    history.topology.providers[0].offer.claims = vec![Claim {
        resource: ClaimedResource::Secrets,
        owner: Owner::Consumer,
        selection: Selection::Referenced,
    }];
    history
}

/// A user deletes a namespace and forces its end before its controller deletes what is in it, so that the copy of a provider's Secret
/// stays, which only a deletion can change. Then the operator changes the Secret.
pub(super) fn a_copy_in_a_namespace_that_was_forced_to_end() -> History {
    let (on, relation, namespace) = (CONSUMER, RELATION, 1);
    let object = ObjectName {
        kind: Kind::Claimed(1, ClaimedResource::Secrets),
        namespace,
        name: 0,
    };
    let write = Action::Provide {
        relation,
        object,
        delete: false,
    };
    let mut history = History::pair(1)
        .user(5_000, write)
        .user(20_000, Action::DeleteNamespace { on, namespace })
        .user(20_001, Action::ForceNamespace { on, namespace })
        .user(40_000, write);
    history.topology.pace = ControllerPace::Slow;
    history.topology.providers[0].offer.claims = vec![Claim {
        resource: ClaimedResource::Secrets,
        owner: Owner::Provider,
        selection: Selection::Labelled,
    }];
    history
}
