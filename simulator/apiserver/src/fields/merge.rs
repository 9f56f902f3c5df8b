//! Merges an applied configuration into a live object.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::{
    element::Element,
    types::{ListType, MapType, Shape, Type},
};

/// The live object with the values of the configuration in place of its own.
pub(super) fn merge(live: &Value, applied: &Value, of: Type<'_>) -> Value {
    values(Some(live), Some(applied), of).unwrap_or(Value::Null)
}

fn values(live: Option<&Value>, applied: Option<&Value>, of: Type<'_>) -> Option<Value> {
    // With one side only there is nothing to merge; what the walk would build is that side, except that empty parts stay.
    let (live, applied) = match (live, applied) {
        (Some(one), None) | (None, Some(one)) => return Some(one.clone()),
        (None, None) => return None,
        (Some(live), Some(applied)) => (live, applied),
    };
    let shape = of.shape(Some(applied));
    let was = of.shape(Some(live));
    let shape = match (was, shape) {
        // A null takes the shape of the other side.
        (was, Shape::Any) => was,
        (_, shape) => shape,
    };
    match shape {
        Shape::Map => match (of.as_map(), live, applied) {
            (Some(map), _, _) if !map.is_atomic() => maps(live, applied, map),
            _ => Some(applied.clone()),
        },
        Shape::List => match of.as_list() {
            Some(list) if list.is_associative() => lists(live, applied, list),
            _ => Some(applied.clone()),
        },
        Shape::Scalar | Shape::Any => Some(applied.clone()),
    }
}

fn maps(live: &Value, applied: &Value, of: MapType<'_>) -> Option<Value> {
    let (was, is) = (live.as_object(), applied.as_object());
    if was.is_none_or(Map::is_empty) && is.is_none_or(Map::is_empty) {
        return Some(applied.clone());
    }
    let mut merged = Map::new();
    for (name, value) in was.into_iter().flatten() {
        let wanted = is.and_then(|is| is.get(name));
        let inner = of.field(name).0.unwrap_or(Type::UNKNOWN);
        if let Some(value) = values(Some(value), wanted, inner) {
            merged.insert(name.clone(), value);
        }
    }
    for (name, value) in is.into_iter().flatten() {
        if was.is_none_or(|was| !was.contains_key(name)) {
            merged.insert(name.clone(), value.clone());
        }
    }
    (!merged.is_empty()).then_some(Value::Object(merged))
}

/// Merges lists whose items have identities: in the order of the configuration, with what only the live list has in its places.
fn lists(live: &Value, applied: &Value, of: ListType<'_>) -> Option<Value> {
    let was = live.as_array().map_or(&[][..], Vec::as_slice);
    let is = applied.as_array().map_or(&[][..], Vec::as_slice);
    if was.is_empty() && is.is_empty() {
        return Some(applied.clone());
    }
    let (was, is) = (named(was, of), named(is, of));
    let lives: BTreeSet<&Element> = was.iter().map(|(element, _)| element).collect();
    let wanted: BTreeSet<&Element> = is.iter().map(|(element, _)| element).collect();
    let mut shared = is
        .iter()
        .map(|(element, _)| element)
        .filter(|element| lives.contains(element));
    let mut next = shared.next();
    let mut done: BTreeSet<&Element> = BTreeSet::new();
    let mut merged = Vec::with_capacity(was.len().max(is.len()));
    let inner = of.items();
    let find = |element: &Element| {
        // An item that is there twice is not merged.
        let mut found = was.iter().filter(|(other, _)| other == element);
        match (found.next(), found.next()) {
            (Some((_, item)), None) => Some(*item),
            _ => None,
        }
    };
    let (mut left, mut right) = (0, 0);
    while left < was.len() || right < is.len() {
        if let (Some((one, _)), Some((two, item))) = (was.get(left), is.get(right)) {
            if one == two {
                done.insert(one);
                merged.extend(values(find(one), Some(item), inner));
                left += 1;
                right += 1;
                next = shared.next();
                continue;
            }
            if wanted.contains(one) && next.is_some_and(|next| next != one) {
                left += 1;
                continue;
            }
        }
        if let Some((one, item)) = was.get(left) {
            if !wanted.contains(one) {
                merged.push((*item).clone());
                left += 1;
                continue;
            }
            if done.contains(one) {
                left += 1;
            }
        }
        if let Some((two, item)) = is.get(right) {
            done.insert(two);
            merged.extend(values(find(two), Some(item), inner));
            right += 1;
            if next == Some(two) {
                next = shared.next();
            }
        }
    }
    (!merged.is_empty()).then_some(Value::Array(merged))
}

fn named<'a>(list: &'a [Value], of: ListType<'_>) -> Vec<(Element, &'a Value)> {
    let named = list.iter().filter_map(|item| Some((of.element(item).ok()?, item)));
    named.collect()
}
