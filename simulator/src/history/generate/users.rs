//! Draws what users and operators do.

use rand::{RngExt as _, rngs::StdRng, seq::IndexedRandom as _};

use super::clusters::{bound_by, policy};
use crate::{
    faults::Fault,
    history::{
        Event, HistoryEvent,
        objects::{self, KnownObjects, NAMESPACES, between, weighted},
    },
    topology::{BoundBy, Cluster, Owner, Scope, Topology},
    users::{Action, Consent, Ending, Kind, ObjectName, Propagation, Relation},
};

/// The share of histories with many objects.
const MANY_OBJECTS: f64 = 0.1;
/// The number of objects that are created at the beginning of such a history.
const BURST: std::ops::RangeInclusive<u8> = 14..=30;

/// Kinds of actions that are drawn together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    Objects,
    Claims,
    Operator,
    Namespaces,
    Endings,
    Pauses,
    Consents,
}

/// The users of a history, with what they remember.
#[derive(Debug)]
pub(super) struct Users<'a> {
    topology: &'a Topology,
    families: Vec<(u32, Family)>,
    known: KnownObjects,
    /// The number of names of bound objects.
    names: u8,
}

impl<'a> Users<'a> {
    /// Draws which kinds of actions the seed uses.
    pub(super) fn new(rng: &mut StdRng, topology: &'a Topology) -> Self {
        let has_claims = topology
            .providers
            .iter()
            .any(|provider| !provider.offer.claims.is_empty());
        let mut families = vec![(10, Family::Objects)];
        let mut maybe = |rng: &mut StdRng, probability, weight, family| {
            if rng.random_bool(probability) {
                families.push((weight, family));
            }
        };
        maybe(rng, if has_claims { 0.9 } else { 0.0 }, 6, Family::Claims);
        maybe(rng, 0.7, 4, Family::Operator);
        maybe(rng, 0.35, 2, Family::Namespaces);
        maybe(rng, 0.3, 2, Family::Endings);
        maybe(rng, 0.25, 1, Family::Pauses);
        maybe(rng, 0.25, 1, Family::Consents);
        let names = if rng.random_bool(MANY_OBJECTS) {
            objects::NAMES_MAX
        } else {
            objects::NAMES
        };
        Self {
            topology,
            families,
            known: KnownObjects::default(),
            names,
        }
    }

    /// Whether the history has many objects.
    pub(super) fn has_many_objects(&self) -> bool {
        self.names > objects::NAMES
    }

    /// Draws the creations with which a history of many objects begins. Others begin with none.
    pub(super) fn burst(&mut self, rng: &mut StdRng) -> Vec<Action> {
        if !self.has_many_objects() {
            return Vec::new();
        }
        let relation = self.relation(rng);
        let on = Cluster::Consumer(relation.consumer);
        let count = between(rng, BURST);
        let mut actions = Vec::new();
        for name in 1..=count {
            let object = ObjectName {
                name,
                ..objects::bound(rng, relation, self.names)
            };
            self.known.add(relation.consumer, object);
            actions.push(Action::Create { on, object });
        }
        actions
    }

    /// Draws the next action, with what belongs to it: each with the milliseconds after which it comes. Empty if the drawn kind has
    /// nothing to act on.
    pub(super) fn next(&mut self, rng: &mut StdRng) -> Vec<(u64, Action)> {
        let Some(action) = self.next_action(rng) else {
            return Vec::new();
        };
        // Objects and namespaces are only for a moment being deleted.
        match action {
            Action::StripFinalizers { on, object } => {
                let propagation = propagation(rng, [8, 3, 1]);
                let delete = Action::Delete {
                    on,
                    object,
                    propagation,
                };
                vec![(0, delete), (rng.random_range(1..40), action)]
            }
            Action::ForceNamespace { on, namespace } => {
                let delete = Action::DeleteNamespace { on, namespace };
                vec![(0, delete), (rng.random_range(1..100), action)]
            }
            action => vec![(0, action)],
        }
    }

    fn next_action(&mut self, rng: &mut StdRng) -> Option<Action> {
        let relation = self.relation(rng);
        match weighted(rng, &self.families)? {
            Family::Objects => Some(self.of_objects(rng, relation)),
            Family::Claims => self.of_claims(rng, relation),
            Family::Operator => self.of_operator(rng, relation),
            Family::Namespaces => Some(of_namespaces(rng, relation)),
            Family::Endings => Some(self.of_endings(rng, relation)),
            Family::Pauses => self.of_pauses(rng, relation),
            Family::Consents => {
                let consents = [
                    Consent::Orphans,
                    Consent::Unbind,
                    Consent::ProviderChange,
                    Consent::Force,
                    Consent::Holder,
                ];
                let to = *consents.choose(rng)?;
                Some(Action::Consent { relation, to })
            }
        }
    }

    fn relation(&self, rng: &mut StdRng) -> Relation {
        let count = |length: usize| u8::try_from(length).unwrap_or(1).max(1);
        Relation {
            consumer: between(rng, 1..=count(self.topology.consumers.len())),
            provider: between(rng, 1..=count(self.topology.providers.len())),
        }
    }

    fn of_objects(&mut self, rng: &mut StdRng, relation: Relation) -> Action {
        let on = Cluster::Consumer(relation.consumer);
        let kind = Kind::Bound(relation.provider);
        let is_ours = |consumer: u8, object: &ObjectName| consumer == relation.consumer && object.kind == kind;
        let found = self.known.any(rng, is_ours);
        let Some((_, object)) = found.filter(|_| rng.random_bool(0.65)) else {
            let object = objects::bound(rng, relation, self.names);
            self.known.add(relation.consumer, object);
            return Action::Create { on, object };
        };
        match rng.random_range(0..100_u32) {
            0..55 => Action::Edit { on, object },
            55..62 => Action::Refer {
                on,
                object,
                to: rng.random_bool(0.75).then(|| objects::referred(rng)),
            },
            62..70 if self.retains(relation) => Action::EndRetention {
                relation,
                object,
                discard: rng.random_bool(0.25),
            },
            62..94 => Action::Delete {
                on,
                object,
                propagation: propagation(rng, [8, 3, 1]),
            },
            _ => Action::StripFinalizers { on, object },
        }
    }

    /// Whether the provider retains copies of deleted objects.
    fn retains(&self, relation: Relation) -> bool {
        let offer = self.topology.offer(relation.provider);
        offer.is_some_and(|offer| offer.retention.is_some())
    }

    fn of_claims(&mut self, rng: &mut StdRng, relation: Relation) -> Option<Action> {
        let on = Cluster::Consumer(relation.consumer);
        if let Some(object) = objects::claimed(rng, self.topology, relation, Owner::Provider)
            && rng.random_bool(0.7)
        {
            let delete = rng.random_bool(0.2);
            return Some(Action::Provide {
                relation,
                object,
                delete,
            });
        }
        if rng.random_bool(0.2) {
            let kind = Kind::Bound(relation.provider);
            let (_, object) = self.known.any(rng, |consumer, object| {
                consumer == relation.consumer && object.kind == kind
            })?;
            let to = Some(objects::referred(rng));
            return Some(Action::Refer { on, object, to });
        }
        let object = objects::claimed(rng, self.topology, relation, Owner::Consumer)?;
        let is_known = self
            .known
            .any(rng, |consumer, known| consumer == relation.consumer && *known == object);
        if is_known.is_none() {
            self.known.add(relation.consumer, object);
            return Some(Action::Create { on, object });
        }
        Some(match rng.random_range(0..100_u32) {
            0..45 => Action::Edit { on, object },
            45..60 => Action::Label {
                on,
                object,
                claimed: rng.random_bool(0.6),
            },
            60..80 => Action::Delete {
                on,
                object,
                propagation: propagation(rng, [8, 1, 1]),
            },
            _ => Action::Create { on, object },
        })
    }

    fn of_operator(&self, rng: &mut StdRng, relation: Relation) -> Option<Action> {
        if rng.random_bool(0.12) {
            let namespace = between(rng, NAMESPACES);
            return Some(Action::PutBeside { relation, namespace });
        }
        let kind = Kind::Bound(relation.provider);
        let (_, object) = self.known.any(rng, |consumer, object| {
            consumer == relation.consumer && object.kind == kind
        })?;
        Some(match rng.random_range(0..100_u32) {
            0..70 => Action::SetStatus { relation, object },
            70..90 => Action::EditCopy {
                relation,
                object,
                overwrite: rng.random_bool(0.5),
            },
            _ => Action::DeleteCopy { relation, object },
        })
    }

    fn of_pauses(&self, rng: &mut StdRng, relation: Relation) -> Option<Action> {
        let paused = rng.random_bool(0.5);
        if rng.random_bool(0.3) {
            return Some(Action::PauseBinding { relation, paused });
        }
        let (consumer, object) = self.known.any(rng, |_, object| matches!(object.kind, Kind::Bound(_)))?;
        let on = Cluster::Consumer(consumer);
        Some(Action::Pause { on, object, paused })
    }

    fn of_endings(&self, rng: &mut StdRng, relation: Relation) -> Action {
        let by = self.bound_by(relation);
        match rng.random_range(0..100_u32) {
            0..35 => Action::End {
                relation,
                what: match by {
                    Some(BoundBy::Bundle) => Ending::Bundle,
                    _ => Ending::Binding,
                },
                propagation: propagation(rng, [3, 3, 2]),
            },
            35..45 => Action::End {
                relation,
                what: Ending::Definition,
                propagation: propagation(rng, [2, 1, 1]),
            },
            45..55 => Action::Prune { relation },
            55..65 => Action::Unbind {
                relation,
                force: rng.random_bool(0.5),
            },
            _ => Action::Bind {
                relation,
                by: by.unwrap_or_else(|| bound_by(rng)),
                policy: policy(rng),
            },
        }
    }

    fn bound_by(&self, relation: Relation) -> Option<BoundBy> {
        let consumer = self.topology.consumers.get(usize::from(relation.consumer) - 1)?;
        let binding = consumer
            .bindings
            .iter()
            .find(|binding| binding.provider == relation.provider);
        binding.map(|binding| binding.by)
    }
}

/// Lets some users go on with the clone of their cluster, once there is one.
pub(super) fn redirect_to_clones(rng: &mut StdRng, events: &mut [HistoryEvent]) {
    let mut cloned = Vec::new();
    for HistoryEvent { event, .. } in events {
        match event {
            Event::Fault(Fault::RestoreBeside { consumer, .. }) => cloned.push(*consumer),
            Event::User(action) => {
                let Some(Cluster::Consumer(consumer)) = action.on() else {
                    continue;
                };
                if cloned.contains(&consumer) && rng.random_bool(0.3) {
                    *action = action.moved_to(Cluster::Clone(consumer));
                }
            }
            Event::Fault(_) => {}
        }
    }
}

fn of_namespaces(rng: &mut StdRng, relation: Relation) -> Action {
    let on = Cluster::Consumer(relation.consumer);
    let namespace = between(rng, NAMESPACES);
    match rng.random_range(0..100_u32) {
        0..45 => Action::DeleteNamespace { on, namespace },
        45..80 => Action::CreateNamespace { on, namespace },
        _ => Action::ForceNamespace { on, namespace },
    }
}

fn propagation(rng: &mut StdRng, [background, foreground, orphan]: [u32; 3]) -> Propagation {
    let weights = [
        (background, Propagation::Background),
        (foreground, Propagation::Foreground),
        (orphan, Propagation::Orphan),
    ];
    weighted(rng, &weights).unwrap_or(Propagation::Background)
}

impl ObjectName {
    /// Whether the object has a namespace on the consumer.
    pub fn is_namespaced(&self, topology: &Topology) -> bool {
        match self.kind {
            Kind::Bound(provider) => topology
                .offer(provider)
                .is_none_or(|offer| offer.scope == Scope::Namespaced),
            Kind::Claimed(..) => true,
        }
    }
}
