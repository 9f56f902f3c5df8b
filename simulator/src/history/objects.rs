//! A rough memory of which objects a history has made, so that most generated actions find an object to act on.

use rand::{Rng, RngExt as _, rngs::StdRng, seq::IteratorRandom as _};

use crate::{
    topology::{Owner, Selection, Topology},
    users::{Kind, ObjectName, Relation},
};

/// Namespaces of a consumer that a history uses: 1 and 2.
pub(super) const NAMESPACES: std::ops::RangeInclusive<u8> = 1..=2;
/// The number of names of bound objects that a history uses.
pub(super) const NAMES: u8 = 5;
/// The number of names of bound objects in a history with many objects, of which a cluster can lose many at once.
pub(super) const NAMES_MAX: u8 = 30;
/// Names of claimed objects that a history uses; 0 is the one that claims select by name.
const CLAIMED_NAMES: std::ops::RangeInclusive<u8> = 0..=2;

/// Objects that a history has made, with the number of their consumer.
#[derive(Debug, Default)]
pub(super) struct KnownObjects {
    made: Vec<(u8, ObjectName)>,
}

impl KnownObjects {
    /// Notes an object.
    pub(super) fn add(&mut self, consumer: u8, object: ObjectName) {
        if !self.made.contains(&(consumer, object)) {
            self.made.push((consumer, object));
        }
    }

    /// Any object that a history has made for which the condition holds.
    pub(super) fn any(&self, rng: &mut StdRng, is: impl Fn(u8, &ObjectName) -> bool) -> Option<(u8, ObjectName)> {
        let found = self.made.iter().filter(|(consumer, object)| is(*consumer, object));
        found.copied().choose(rng)
    }
}

/// A name for a bound object of a relation, of this many names.
pub(super) fn bound(rng: &mut StdRng, relation: Relation, names: u8) -> ObjectName {
    ObjectName {
        kind: Kind::Bound(relation.provider),
        namespace: between(rng, NAMESPACES),
        name: between(rng, 1..=names),
    }
}

/// A name for an object that a side makes and the provider of a relation may claim; `None` if the provider claims nothing of
/// that side.
pub(super) fn claimed(rng: &mut StdRng, topology: &Topology, relation: Relation, owner: Owner) -> Option<ObjectName> {
    let offer = topology.offer(relation.provider)?;
    let claim = offer.claims.iter().filter(|claim| claim.owner == owner).choose(rng)?;
    let name = match claim.selection {
        Selection::Named if rng.random_ratio(3, 4) => 0,
        _ => between(rng, CLAIMED_NAMES),
    };
    Some(ObjectName {
        kind: Kind::Claimed(relation.provider, claim.resource),
        namespace: between(rng, NAMESPACES),
        name,
    })
}

/// The number of a Secret or ConfigMap that a bound object may refer to.
pub(super) fn referred(rng: &mut StdRng) -> u8 {
    between(rng, CLAIMED_NAMES)
}

/// A number of a range, drawn as 32 bits, so that all machines draw the same.
pub(super) fn between(rng: &mut StdRng, range: std::ops::RangeInclusive<u8>) -> u8 {
    let drawn = rng.random_range(u32::from(*range.start())..=u32::from(*range.end()));
    u8::try_from(drawn).unwrap_or(u8::MAX)
}

/// Draws an item by its weight. Returns `None` if all weights are 0.
pub(super) fn weighted<T: Copy>(rng: &mut impl Rng, items: &[(u32, T)]) -> Option<T> {
    let sum: u32 = items.iter().map(|(weight, _)| weight).sum();
    if sum == 0 {
        return None;
    }
    let mut drawn = rng.random_range(0..sum);
    for (weight, item) in items {
        if drawn < *weight {
            return Some(*item);
        }
        drawn -= weight;
    }
    None
}
