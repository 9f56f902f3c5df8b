//! Histories that were written down: those of the track record, which random seeds need not find.

use crate::{
    history::History,
    topology::Cluster,
    users::{Action, Kind, ObjectName, Relation},
};

mod cloned;
mod leaders;
mod losses;
mod namespaces;
mod network;
mod unbound;

/// A history with a name.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Its name, which is the id of the finding that it shows.
    pub name: &'static str,
    make: fn() -> History,
}

impl Scenario {
    /// The history.
    pub fn history(&self) -> History {
        (self.make)()
    }
}

/// All scenarios.
const ALL: [Scenario; 17] = [
    Scenario {
        name: "D1",
        make: cloned::a_clone_beside_its_origin,
    },
    Scenario {
        name: "D2",
        make: losses::some_sources_are_lost,
    },
    Scenario {
        name: "D3",
        make: unbound::a_foreground_delete_of_the_binding,
    },
    Scenario {
        name: "D4",
        make: namespaces::an_operators_object_in_a_provider_namespace,
    },
    Scenario {
        name: "D7",
        make: losses::losses_spread_over_namespaces,
    },
    Scenario {
        name: "N1",
        make: unbound::a_restored_provider_while_unbinding,
    },
    Scenario {
        name: "N2",
        make: unbound::a_restored_provider_while_unbinding,
    },
    Scenario {
        name: "N3",
        make: unbound::a_delete_that_orphans_dependents,
    },
    Scenario {
        name: "N4",
        make: leaders::a_leader_that_stood_still,
    },
    Scenario {
        name: "N5",
        make: losses::a_provider_restored_with_bumped_revisions,
    },
    Scenario {
        name: "unbound-by-call",
        make: unbound::objects_that_come_with_an_unbind,
    },
    Scenario {
        name: "N7",
        make: network::requests_that_arrive_twice,
    },
    Scenario {
        name: "N8",
        make: unbound::a_deleted_crd_of_a_binding_that_keeps_copies,
    },
    Scenario {
        name: "N9",
        make: namespaces::an_object_in_a_namespace_that_was_forced_to_end,
    },
    Scenario {
        name: "N10",
        make: losses::a_consumer_restored_in_place,
    },
    Scenario {
        name: "N11",
        make: namespaces::a_copy_in_a_namespace_that_was_forced_to_end,
    },
    Scenario {
        name: "S13",
        make: leaders::a_server_a_week_ahead,
    },
];

/// All scenarios, in the order of their names.
pub fn all() -> impl Iterator<Item = &'static Scenario> {
    ALL.iter()
}

/// The scenario of this name, in any case of letters.
pub fn find(name: &str) -> Option<&'static Scenario> {
    ALL.iter().find(|scenario| scenario.name.eq_ignore_ascii_case(name))
}

/// The object of this number in the first namespace of consumer 1.
fn object(name: u8) -> ObjectName {
    ObjectName {
        kind: Kind::Bound(1),
        namespace: 1,
        name,
    }
}

/// A history of a pair in which a user creates this many objects in the first second.
fn with_objects(count: u8) -> History {
    (1..=count).fold(History::pair(1), |history, name| {
        let (on, object) = (CONSUMER, object(name));
        history.user(u64::from(name) * 50, Action::Create { on, object })
    })
}

/// The one consumer of a pair, and what it has bound.
const CONSUMER: Cluster = Cluster::Consumer(1);
const RELATION: Relation = Relation {
    consumer: 1,
    provider: 1,
};
