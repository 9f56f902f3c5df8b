//! What holds of any schema.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{bound, check, object};

fn leaf() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!({ "type": "boolean" })),
        (0..9_u32).prop_map(|max| json!({ "type": "string", "maxLength": max })),
        (-9..9_i32).prop_map(|min| json!({ "type": "integer", "minimum": min })),
        Just(json!({ "type": "string", "enum": ["a", "b"] })),
        Just(json!({ "x-kubernetes-int-or-string": true })),
    ]
}

fn structural() -> impl Strategy<Value = Value> {
    leaf().prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            (
                prop::collection::btree_map("[a-d]", inner.clone(), 0..4),
                prop::collection::btree_set("[a-d]", 0..3)
            )
                .prop_map(|(properties, required)| {
                    let required: Vec<_> = required
                        .into_iter()
                        .filter(|name| properties.contains_key(name))
                        .collect();
                    json!({ "type": "object", "properties": properties, "required": required })
                }),
            inner.clone().prop_map(|of| json!({ "type": "array", "items": of })),
            inner.prop_map(|of| json!({ "type": "object", "additionalProperties": of })),
        ]
    })
}

fn whole() -> impl Strategy<Value = Value> {
    (structural(), structural()).prop_map(|(spec, status)| object(json!({ "spec": spec, "status": status })))
}

/// The objects with named fields, as pointers into a schema.
fn objects(schema: &Value, pointer: &str, found: &mut Vec<String>) {
    if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
        found.push(pointer.to_owned());
        for (name, field) in properties {
            objects(field, &format!("{pointer}/properties/{name}"), found);
        }
    }
    for key in ["items", "additionalProperties"] {
        if let Some(below) = schema.get(key) {
            objects(below, &format!("{pointer}/{key}"), found);
        }
    }
}

proptest! {
    #[test]
    fn nothing_changed_is_compatible(schema in whole()) {
        prop_assert_eq!(check(&bound(schema.clone()), &bound(schema)), Ok(()));
    }

    #[test]
    fn an_optional_field_may_come_anywhere_and_not_go(
        old in whole(), added in structural(), place in any::<prop::sample::Index>(),
    ) {
        let mut places = Vec::new();
        objects(&old, "", &mut places);
        let mut new = old.clone();
        new.pointer_mut(&places[place.index(places.len())]).unwrap()["properties"]["added"] = added;
        let (old, new) = (bound(old), bound(new));
        prop_assert_eq!(check(&old, &new), Ok(()));
        let error = check(&new, &old).unwrap_err();
        prop_assert!(error.path().ends_with("added"), "{}", error);
        prop_assert_eq!(error.change(), "field removed");
    }

    #[test]
    fn a_field_that_must_be_there_may_not_come(
        old in whole(), added in structural(), place in any::<prop::sample::Index>(),
    ) {
        let mut places = Vec::new();
        objects(&old, "", &mut places);
        let mut new = old.clone();
        let object = new.pointer_mut(&places[place.index(places.len())]).unwrap();
        object["properties"]["added"] = added;
        let mut required = object["required"].as_array().cloned().unwrap_or_default();
        required.push(json!("added"));
        object["required"] = json!(required);
        let error = check(&bound(old), &bound(new)).unwrap_err();
        prop_assert!(error.to_string().contains("added: is now required"), "{}", error);
    }

    #[test]
    fn what_the_old_took_the_new_takes(
        old in whole(), change in structural(), place in any::<prop::sample::Index>(), seeds in prop::collection::vec(any::<u64>(), 8),
    ) {
        let mut places = Vec::new();
        below(&old, "", &mut places);
        let mut new = old.clone();
        *new.pointer_mut(&places[place.index(places.len())]).unwrap() = change;
        let verdict = check(&bound(old.clone()), &bound(new.clone()));
        for mut seed in seeds {
            let value = sample(&old, &mut seed);
            prop_assert!(takes(&old, &value), "{} is none of {}", value, old);
            prop_assert!(verdict.is_err() || takes(&new, &value), "{} is lost on the way to {}", value, new);
        }
    }
}

/// All schemas within one but itself, as pointers.
fn below(schema: &Value, pointer: &str, found: &mut Vec<String>) {
    let mut go = |key: String, below_it: &Value| {
        let pointer = format!("{pointer}/{key}");
        found.push(pointer.clone());
        below(below_it, &pointer, found);
    };
    for (name, field) in schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        go(format!("properties/{name}"), field);
    }
    for key in ["items", "additionalProperties"] {
        if let Some(field) = schema.get(key) {
            go(key.to_owned(), field);
        }
    }
}

/// Some value that a schema of those above takes.
fn sample(schema: &Value, seed: &mut u64) -> Value {
    let mut pick = |of: u64| {
        *seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (*seed >> 33) % of
    };
    match schema["type"].as_str() {
        Some("boolean") => json!(pick(2) == 0),
        Some("string") if schema.get("enum").is_some() => json!(["a", "b"][usize::try_from(pick(2)).unwrap()]),
        Some("string") => {
            let length = pick(schema["maxLength"].as_u64().unwrap() + 1);
            json!("a".repeat(usize::try_from(length).unwrap()))
        }
        Some("integer") => json!(schema["minimum"].as_i64().unwrap() + i64::try_from(pick(20)).unwrap()),
        Some("array") => (0..pick(3)).map(|_| sample(&schema["items"], seed)).collect(),
        Some("object") if schema.get("properties").is_some() => {
            let required = schema["required"].as_array().cloned().unwrap_or_default();
            let fields = schema["properties"].as_object().unwrap();
            let skip = pick(16);
            fields
                .iter()
                .enumerate()
                .filter(|(index, (name, _))| required.contains(&json!(name)) || skip >> index & 1 == 0)
                .map(|(_, (name, field))| (name.clone(), sample(field, seed)))
                .collect::<serde_json::Map<_, _>>()
                .into()
        }
        Some("object") => (0..pick(3))
            .map(|key| (["a", "x", "y"][usize::try_from(key).unwrap()].to_owned(), key))
            .map(|(key, _)| (key, sample(&schema["additionalProperties"], seed)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        _ if pick(2) == 0 => json!(1),
        _ => json!("one"),
    }
}

/// Whether a schema of those above takes a value, and keeps all of it.
fn takes(schema: &Value, value: &Value) -> bool {
    match schema["type"].as_str() {
        Some("boolean") => value.is_boolean(),
        Some("string") => value.as_str().is_some_and(|text| {
            let length = u64::try_from(text.len()).unwrap();
            schema["enum"].as_array().is_none_or(|choices| choices.contains(value))
                && schema["maxLength"].as_u64().is_none_or(|max| length <= max)
        }),
        Some("integer") => value
            .as_i64()
            .is_some_and(|number| number >= schema["minimum"].as_i64().unwrap()),
        Some("array") => value
            .as_array()
            .is_some_and(|items| items.iter().all(|item| takes(&schema["items"], item))),
        Some("object") => value.as_object().is_some_and(|fields| {
            let required = schema["required"].as_array().cloned().unwrap_or_default();
            required.iter().all(|name| fields.contains_key(name.as_str().unwrap()))
                && fields.iter().all(|(name, field)| {
                    let of = schema["properties"]
                        .get(name)
                        .or_else(|| schema.get("additionalProperties"));
                    of.is_some_and(|of| takes(of, field))
                })
        }),
        _ => value.is_i64() || value.is_string(),
    }
}
