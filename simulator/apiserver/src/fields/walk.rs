//! The fields of an object, and an object without some of its fields.

use serde_json::{Map, Value};

use super::{
    compare::grouped,
    element::Element,
    set::Set,
    types::{Shape, Type},
};

/// The set of all fields of an object.
pub(super) fn field_set(object: &Value, of: Type<'_>) -> Set {
    let (mut set, mut path) = (Set::default(), Vec::new());
    collect(object, of, &mut path, &mut set);
    set
}

fn collect(value: &Value, of: Type<'_>, path: &mut Vec<Element>, set: &mut Set) {
    match of.shape(Some(value)) {
        Shape::Scalar => set.insert(path),
        Shape::Map | Shape::Any => {
            let Some(map) = of.as_map() else { return };
            if map.is_atomic() {
                set.insert(path);
                return;
            }
            for (name, value) in value.as_object().into_iter().flatten() {
                let (inner, declared) = map.field(name);
                path.push(Element::Field(name.clone()));
                collect(value, inner.unwrap_or(Type::UNKNOWN), path, set);
                let is_empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
                if is_empty || !declared {
                    set.insert(path);
                }
                path.pop();
            }
        }
        Shape::List => {
            let Some(list) = of.as_list() else { return };
            if !list.is_associative() {
                set.insert(path);
                return;
            }
            let Some(items) = value.as_array() else { return };
            for (element, items) in grouped(items, list) {
                path.push(element);
                if let [one] = items.as_slice() {
                    collect(one, list.items(), path, set);
                }
                set.insert(path);
                path.pop();
            }
        }
    }
}

/// The value without the fields of a set; `None` if nothing is left.
pub(super) fn without(value: &Value, fields: &Set, of: Type<'_>) -> Option<Value> {
    if fields.is_empty() {
        return Some(value.clone());
    }
    match (of.shape(Some(value)), value) {
        (Shape::Map, Value::Object(values)) => {
            let map = of.as_map().filter(|map| !map.is_atomic())?;
            let mut left = Map::new();
            for (name, value) in values {
                let element = Element::Field(name.clone());
                if fields.has(&element) {
                    continue;
                }
                let below = fields.below(&element);
                if below.is_empty() {
                    left.insert(name.clone(), value.clone());
                    continue;
                }
                let inner = map.field(name).0.unwrap_or(Type::UNKNOWN);
                let value = without(value, below, inner).unwrap_or(Value::Null);
                left.insert(name.clone(), value);
            }
            (!left.is_empty()).then_some(Value::Object(left))
        }
        (Shape::List, Value::Array(items)) => {
            let list = of.as_list().filter(|list| list.is_associative())?;
            let mut left = Vec::new();
            for item in items {
                let Ok(element) = list.element(item) else {
                    left.push(item.clone());
                    continue;
                };
                if fields.has(&element) {
                    continue;
                }
                let inner = list.items();
                let item = match fields.below(&element) {
                    below if below.is_empty() => item.clone(),
                    below => without(item, below, inner).unwrap_or(Value::Null),
                };
                left.push(item);
            }
            (!left.is_empty()).then_some(Value::Array(left))
        }
        (Shape::Scalar, scalar) => Some(scalar.clone()),
        _ => None,
    }
}
