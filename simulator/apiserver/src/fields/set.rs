//! Sets of fields: the trees that `fieldsV1` hold.

use std::{cmp::Ordering, fmt::Write as _};

use serde_json::{Map, Value};

use super::{element::Element, types::Type};

/// A set of fields, as a tree of path elements. An element may be in the set itself, lead to others, or both.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Set {
    /// In the order of the elements. No entry is without effect: each is a member or has entries below.
    entries: Vec<Entry>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    element: Element,
    member: bool,
    below: Set,
}

/// If an element is a member of the merged set, and what is below it, by its entries in both sets; `None` leaves it out.
type MergeRule<'a> = dyn Fn(Option<&Entry>, Option<&Entry>) -> Option<(bool, Set)> + 'a;

static EMPTY: Set = Set { entries: Vec::new() };

// === impl Set ===

impl Set {
    /// Reads `fieldsV1`.
    pub(super) fn parse(fields: &Value) -> Self {
        let Value::Object(fields) = fields else {
            return Self::default();
        };
        let entries = fields.iter().filter(|(key, _)| *key != ".");
        let entries = entries.filter_map(|(key, value)| {
            let below = Self::parse(value);
            let member = below.entries.is_empty() || value.get(".").is_some();
            let element = Element::parse(key)?;
            Some(Entry { element, member, below })
        });
        let mut entries: Vec<_> = entries.collect();
        entries.sort_by(|one, two| one.element.cmp(&two.element));
        Self { entries }
    }

    /// Writes `fieldsV1`.
    pub(super) fn fields(&self) -> Value {
        Value::Object(self.map())
    }

    fn map(&self) -> Map<String, Value> {
        let entries = self.entries.iter().map(|entry| {
            let mut below = entry.below.map();
            if entry.member && !below.is_empty() {
                below.insert(".".to_owned(), Value::Object(Map::new()));
            }
            (entry.element.text(), Value::Object(below))
        });
        entries.collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds a field. The empty path stands for the whole object, which no manager owns.
    pub(super) fn insert(&mut self, path: &[Element]) {
        let Some((first, rest)) = path.split_first() else {
            return;
        };
        let place = match self.entries.binary_search_by(|entry| entry.element.cmp(first)) {
            Ok(place) => place,
            Err(place) => {
                let entry = Entry {
                    element: first.clone(),
                    member: false,
                    below: Self::default(),
                };
                self.entries.insert(place, entry);
                place
            }
        };
        if rest.is_empty() {
            self.entries[place].member = true;
        } else {
            self.entries[place].below.insert(rest);
        }
    }

    fn entry(&self, element: &Element) -> Option<&Entry> {
        let place = self.entries.binary_search_by(|entry| entry.element.cmp(element));
        place.ok().map(|place| &self.entries[place])
    }

    /// If the element itself is in the set.
    pub(super) fn has(&self, element: &Element) -> bool {
        self.entry(element).is_some_and(|entry| entry.member)
    }

    /// What the set holds below an element.
    pub(super) fn below(&self, element: &Element) -> &Self {
        self.entry(element).map_or(&EMPTY, |entry| &entry.below)
    }

    pub(super) fn union(&self, other: &Self) -> Self {
        self.merge(other, &|one, two| match (one, two) {
            (Some(one), Some(two)) => Some((one.member || two.member, one.below.union(&two.below))),
            (Some(one), None) | (None, Some(one)) => Some((one.member, one.below.clone())),
            (None, None) => None,
        })
    }

    pub(super) fn intersection(&self, other: &Self) -> Self {
        self.merge(other, &|one, two| match (one, two) {
            (Some(one), Some(two)) => Some((one.member && two.member, one.below.intersection(&two.below))),
            _ => None,
        })
    }

    /// The fields that are not in the other set. A field stays although its parent is in the other set.
    pub(super) fn difference(&self, other: &Self) -> Self {
        self.merge(other, &|one, two| match (one, two) {
            (Some(one), Some(two)) => Some((one.member && !two.member, one.below.difference(&two.below))),
            (Some(one), None) => Some((one.member, one.below.clone())),
            _ => None,
        })
    }

    /// The fields that are not in the other set, and not below one that is.
    pub(super) fn without_trees(&self, other: &Self) -> Self {
        self.merge(other, &|one, two| match (one, two) {
            (Some(one), Some(two)) if !two.member => Some((one.member, one.below.without_trees(&two.below))),
            (Some(one), None) => Some((one.member, one.below.clone())),
            _ => None,
        })
    }

    fn merge(&self, other: &Self, rule: &MergeRule<'_>) -> Self {
        let (mut one, mut two) = (self.entries.iter().peekable(), other.entries.iter().peekable());
        let mut entries = Vec::new();
        loop {
            let order = match (one.peek(), two.peek()) {
                (None, None) => return Self { entries },
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(one), Some(two)) => one.element.cmp(&two.element),
            };
            let one = one.next_if(|_| order.is_le());
            let two = two.next_if(|_| order.is_ge());
            let (Some(Entry { element, .. }), merged) = (one.or(two), rule(one, two)) else {
                continue;
            };
            if let Some((member, below)) = merged
                && (member || !below.is_empty())
            {
                let element = element.clone();
                entries.push(Entry { element, member, below });
            }
        }
    }

    /// Adds the declared fields that lead to fields of the set.
    pub(super) fn with_declared_parents(&self, of: Type<'_>) -> Self {
        let map = of.as_map();
        let list = of.as_list();
        let entries = self.entries.iter().map(|entry| {
            let (inner, declared) = match (&entry.element, map, list) {
                (Element::Field(name), Some(map), _) => map.field(name),
                (Element::Key(_), _, Some(list)) => (Some(list.items()), false),
                _ => (None, false),
            };
            Entry {
                element: entry.element.clone(),
                member: entry.member || (declared && !entry.below.is_empty()),
                below: entry.below.with_declared_parents(inner.unwrap_or(Type::UNKNOWN)),
            }
        });
        let entries = entries.collect();
        Self { entries }
    }

    /// The paths of all fields as Kubernetes prints and orders them: those of a level before those below it.
    pub(super) fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        self.print("", &mut paths);
        paths
    }

    fn print(&self, prefix: &str, paths: &mut Vec<String>) {
        for entry in self.entries.iter().filter(|entry| entry.member) {
            paths.push(format!("{prefix}{}", entry.element));
        }
        for entry in self.entries.iter().filter(|entry| !entry.below.is_empty()) {
            let mut prefix = prefix.to_owned();
            let _ = write!(prefix, "{}", entry.element);
            entry.below.print(&prefix, paths);
        }
    }
}
