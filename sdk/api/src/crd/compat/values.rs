//! Compares what two schemas demand of values: limits, choices and rules. A new schema may demand less, but not more.

use std::cmp::Ordering;

use serde_json::{Number, Value};

use super::walk::Walk;
use crate::hash::canonical_json;

/// The keywords that this module compares.
pub(super) const KEYWORDS: [&str; 20] = [
    "allOf",
    "anyOf",
    "enum",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "format",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "not",
    "oneOf",
    "pattern",
    "uniqueItems",
    RULES,
];
const RULES: &str = "x-kubernetes-validations";

/// Length at which texts of a schema are cut in messages.
const SHOWN: usize = 80;

pub(super) fn compare(old: &Value, new: &Value, walk: &mut Walk) {
    for key in ["maxItems", "maxLength", "maxProperties"] {
        upper(key, limit(old, key), limit(new, key), walk);
    }
    for key in ["minItems", "minLength", "minProperties"] {
        lower(
            key,
            limit(old, key),
            limit(new, key).filter(|limit| !limit.is_zero()),
            walk,
        );
    }
    let bound = |schema, key, exclusive| limit(schema, key).map(|limit| limit.exclusive(schema, exclusive));
    let of = |schema| bound(schema, "maximum", "exclusiveMaximum");
    upper("maximum", of(old), of(new), walk);
    let of = |schema| bound(schema, "minimum", "exclusiveMinimum");
    lower("minimum", of(old), of(new), walk);
    multiple(old, new, walk);
    choices(old, new, walk);
    format(old, new, walk);
    changed_or_added("pattern", old, new, walk);
    if is_true(new, "uniqueItems") && !is_true(old, "uniqueItems") {
        walk.found("items must now be unique");
    }
    alternatives(old, new, walk);
    rules(old, new, walk);
}

/// Whether two parts of schemas are equal, however their numbers are written.
pub(super) fn is_same(old: Option<&Value>, new: Option<&Value>) -> bool {
    old == new || canonical_json(&old) == canonical_json(&new)
}

#[derive(Clone, Copy)]
struct Limit<'a> {
    number: &'a Number,
    exclusive: bool,
}

fn limit<'a>(schema: &'a Value, key: &str) -> Option<Limit<'a>> {
    match schema.get(key) {
        Some(Value::Number(number)) => Some(Limit {
            number,
            exclusive: false,
        }),
        _ => None,
    }
}

fn upper(key: &str, old: Option<Limit<'_>>, new: Option<Limit<'_>>, walk: &mut Walk) {
    bounded(key, old, new, Ordering::Less, walk);
}

fn lower(key: &str, old: Option<Limit<'_>>, new: Option<Limit<'_>>, walk: &mut Walk) {
    bounded(key, old, new, Ordering::Greater, walk);
}

fn bounded(key: &str, old: Option<Limit<'_>>, new: Option<Limit<'_>>, tighter: Ordering, walk: &mut Walk) {
    let Some(new) = new else {
        return;
    };
    let Some(old) = old else {
        return walk.found(format!("{key} {} added", new.number));
    };
    match order(new.number, old.number) {
        Ordering::Equal if new.exclusive && !old.exclusive => {
            walk.found(format!("{key} {} is now exclusive", new.number));
        }
        Ordering::Equal => {}
        order if order == tighter => walk.found(format!("{key} changed from {} to {}", old.number, new.number)),
        _ => {}
    }
}

fn order(one: &Number, other: &Number) -> Ordering {
    if let (Some(one), Some(other)) = (one.as_i128(), other.as_i128()) {
        return one.cmp(&other);
    }
    let float = |number: &Number| number.as_f64().unwrap_or(f64::NAN);
    float(one).total_cmp(&float(other))
}

fn multiple(old: &Value, new: &Value, walk: &mut Walk) {
    let number = |schema: &Value| schema.get("multipleOf").and_then(Value::as_f64);
    match (number(old), number(new)) {
        (None, Some(new)) => walk.found(format!("multipleOf {new} added")),
        (Some(old), Some(new)) if old % new != 0.0 => walk.found(format!("multipleOf changed from {old} to {new}")),
        _ => {}
    }
}

fn choices(old: &Value, new: &Value, walk: &mut Walk) {
    let Some(allowed) = new.get("enum").and_then(Value::as_array) else {
        return;
    };
    match old.get("enum").and_then(Value::as_array) {
        None => walk.found("enum added"),
        Some(before) => {
            let gone = before.iter().find(|value| !contains(allowed, value));
            if let Some(value) = gone {
                walk.found(format!("{} removed from enum", shown(&value.to_string())));
            }
        }
    }
}

fn format(old: &Value, new: &Value, walk: &mut Walk) {
    const WIDER: [(&str, &str); 2] = [("int32", "int64"), ("float", "double")];
    let name = |schema: &Value| {
        schema
            .get("format")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    if !WIDER.contains(&(name(old).as_str(), name(new).as_str())) {
        changed_or_added("format", old, new, walk);
    }
}

fn changed_or_added(key: &str, old: &Value, new: &Value, walk: &mut Walk) {
    let text = |schema: &Value| {
        schema
            .get(key)
            .map(|value| value.as_str().unwrap_or_default().to_owned())
    };
    match (text(old), text(new)) {
        (None, Some(new)) => walk.found(format!("{key} {} added", shown(&new))),
        (Some(old), Some(new)) if old != new => {
            walk.found(format!("{key} changed from {} to {}", shown(&old), shown(&new)));
        }
        _ => {}
    }
}

/// Compares `allOf`, `anyOf` and the like. Fewer schemas that must all hold, or more of which one must hold, allow more; any other
/// change may allow less.
fn alternatives(old: &Value, new: &Value, walk: &mut Walk) {
    let list = |schema: &Value, key: &str| schema.get(key).and_then(Value::as_array).cloned();
    let wider = |key: &str, old: Option<Vec<Value>>, new: Option<Vec<Value>>| match (key, old, new) {
        (_, _, None) => true,
        ("allOf", old, Some(new)) => new.iter().all(|one| contains(&old.clone().unwrap_or_default(), one)),
        ("anyOf", Some(old), Some(new)) => old.iter().all(|one| contains(&new, one)),
        (_, _, Some(_)) => false,
    };
    for key in ["allOf", "anyOf", "oneOf"] {
        if !is_same(old.get(key), new.get(key)) && !wider(key, list(old, key), list(new, key)) {
            walk.found(format!("{key} changed"));
        }
    }
    if new.get("not").is_some() && !is_same(old.get("not"), new.get("not")) {
        walk.found("not changed");
    }
}

fn rules(old: &Value, new: &Value, walk: &mut Walk) {
    let rules = |schema: &Value| schema.get(RULES).and_then(Value::as_array).cloned().unwrap_or_default();
    let text = |rule: &Value| rule.get("rule").and_then(Value::as_str).unwrap_or_default().to_owned();
    let is_met = |rule: &Value, old: &Value| {
        text(rule) == text(old) && is_true(rule, "optionalOldSelf") == is_true(old, "optionalOldSelf")
    };
    let before = rules(old);
    for rule in rules(new) {
        if !before.iter().any(|old| is_met(&rule, old)) {
            walk.found(format!("validation rule added: {}", shown(&text(&rule))));
        }
    }
}

fn contains(list: &[Value], value: &Value) -> bool {
    list.iter().any(|other| is_same(Some(other), Some(value)))
}

fn is_true(schema: &Value, key: &str) -> bool {
    schema.get(key).and_then(Value::as_bool) == Some(true)
}

fn shown(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

// === impl Limit ===

impl Limit<'_> {
    fn is_zero(&self) -> bool {
        self.number.as_f64() == Some(0.0)
    }

    fn exclusive(self, schema: &Value, key: &str) -> Self {
        Self {
            exclusive: is_true(schema, key),
            ..self
        }
    }
}
