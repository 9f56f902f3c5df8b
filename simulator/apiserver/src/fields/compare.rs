//! Compares two versions of an object, field by field.

use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::{
    element::Element,
    set::Set,
    types::{ListType, MapType, Shape, Type},
};

/// What the second version of an object adds, changes and removes.
#[derive(Clone, Debug, Default)]
pub(super) struct Comparison {
    pub(super) added: Set,
    pub(super) modified: Set,
    pub(super) removed: Set,
}

/// A walk over two versions.
#[derive(Debug, Default)]
struct Walk {
    path: Vec<Element>,
    found: Comparison,
}

/// Compares two versions of an object of a type.
pub(super) fn compare(old: &Value, new: &Value, of: Type<'_>) -> Comparison {
    let mut walk = Walk::default();
    walk.values(Some(old), Some(new), of);
    walk.found
}

/// An empty struct.
static EMPTY: LazyLock<Value> = LazyLock::new(|| Value::Object(Map::new()));

impl Comparison {
    /// Leaves out what writes of this kind do not change.
    pub(super) fn without(self, ignored: &Set) -> Self {
        Self {
            added: self.added.without_trees(ignored),
            modified: self.modified.without_trees(ignored),
            removed: self.removed.without_trees(ignored),
        }
    }
}

impl Walk {
    fn values(&mut self, old: Option<&Value>, new: Option<&Value>, of: Type<'_>) {
        if old == new && old.is_some() {
            return;
        }
        let (before, after) = (of.shape(old), of.shape(new));
        let is_leaf = if new.is_none() {
            self.shaped(before, old, new, of)
        } else if old.is_none() || before == after {
            self.shaped(after, old, new, of)
        } else {
            self.shaped(before, old, new, of);
            self.shaped(after, old, new, of)
        };
        if !is_leaf {
            match (old, new) {
                (None, _) => self.found.added.insert(&self.path),
                (_, None) => self.found.removed.insert(&self.path),
                _ => {}
            }
        }
    }

    /// Compares as values of one shape; tells if they were compared as a whole.
    fn shaped(&mut self, shape: Shape, old: Option<&Value>, new: Option<&Value>, of: Type<'_>) -> bool {
        match shape {
            Shape::Map | Shape::Any => match of.as_map() {
                Some(map) => self.maps(old, new, map),
                None => self.leaf(old, new),
            },
            Shape::List => match of.as_list() {
                Some(list) => self.lists(old, new, list),
                None => self.leaf(old, new),
            },
            Shape::Scalar => self.leaf(old, new),
        }
    }

    fn leaf(&mut self, old: Option<&Value>, new: Option<&Value>) -> bool {
        match (old, new) {
            (None, _) => self.found.added.insert(&self.path),
            (_, None) => self.found.removed.insert(&self.path),
            _ if old != new => self.found.modified.insert(&self.path),
            _ => {}
        }
        true
    }

    fn maps(&mut self, old: Option<&Value>, new: Option<&Value>, of: MapType<'_>) -> bool {
        let was = old.and_then(Value::as_object);
        let is = new.and_then(Value::as_object);
        let always: Vec<&str> = of.always().collect();
        let are_empty = was.is_none_or(Map::is_empty) && is.is_none_or(Map::is_empty);
        if of.is_atomic() || are_empty {
            return self.leaf(old, new);
        }
        let names = was.into_iter().flatten().map(|(name, _)| name.as_str());
        let more = is.into_iter().flatten().map(|(name, _)| name.as_str());
        let more = more.filter(|name| was.is_none_or(|was| !was.contains_key(*name)));
        for name in names.chain(more) {
            let is_always = always.contains(&name);
            let before = was.and_then(|map| map.get(name));
            let after = is.and_then(|map| map.get(name));
            let before = before.or_else(|| (is_always && was.is_some()).then_some(&*EMPTY));
            let after = after.or_else(|| (is_always && is.is_some()).then_some(&*EMPTY));
            let inner = of.field(name).0.unwrap_or(Type::UNKNOWN);
            self.path.push(Element::Field(name.to_owned()));
            self.values(before, after, inner);
            self.path.pop();
        }
        false
    }

    fn lists(&mut self, old: Option<&Value>, new: Option<&Value>, of: ListType<'_>) -> bool {
        let was = old.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let is = new.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        if !of.is_associative() || (was.is_empty() && is.is_empty()) {
            return self.leaf(old, new);
        }
        let (was, is) = (grouped(was, of), grouped(is, of));
        let more = is.iter().filter(|(element, _)| items(&was, element).is_empty());
        let elements = was.iter().chain(more).map(|(element, _)| element);
        for element in elements {
            self.path.push(element.clone());
            match (items(&was, element), items(&is, element)) {
                (before @ ([] | [_]), after @ ([] | [_])) => {
                    let inner = of.items();
                    self.values(before.first().copied(), after.first().copied(), inner);
                }
                (before @ [_, _, ..], after @ [_, _, ..]) => {
                    if before != after {
                        self.found.modified.insert(&self.path);
                    }
                }
                ([_, _, ..], after) => {
                    if let Some(one) = after.first() {
                        self.values(None, Some(one), of.items());
                    }
                    self.found.removed.insert(&self.path);
                }
                (before, _) => {
                    if let Some(one) = before.first() {
                        self.values(Some(one), None, of.items());
                    }
                    self.found.added.insert(&self.path);
                }
            }
            self.path.pop();
        }
        false
    }
}

/// The items of a list by what identifies them, in the order of the list. Items without identity are left out.
pub(super) fn grouped<'a>(list: &'a [Value], of: ListType<'_>) -> Vec<(Element, Vec<&'a Value>)> {
    let mut groups: Vec<(Element, Vec<&'a Value>)> = Vec::with_capacity(list.len());
    for item in list {
        let Ok(element) = of.element(item) else { continue };
        match groups.iter_mut().find(|(other, _)| *other == element) {
            Some((_, items)) => items.push(item),
            None => groups.push((element, vec![item])),
        }
    }
    groups
}

/// The items with this identity.
pub(super) fn items<'a, 'b>(groups: &'b [(Element, Vec<&'a Value>)], element: &Element) -> &'b [&'a Value] {
    let found = groups.iter().find(|(other, _)| other == element);
    found.map_or(&[], |(_, items)| items.as_slice())
}
