//! Any bytes are read as manifests, or refused with places that exist; what is read can be printed and read again, and resolving
//! it twice changes nothing.
#![no_main]

use bindery_synk::{
    Manifest,
    input::{InputErrors, parse, resolve},
    kinds::Kinds,
};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match parse("fuzz", text) {
        Ok(manifests) => check(&manifests),
        Err(errors) => check_places(text, &errors),
    }
});

fn check(manifests: &[Manifest]) {
    let printed: String = manifests
        .iter()
        .map(|manifest| format!("{}\n", Value::from(manifest.body.clone())))
        .collect();
    let again = parse("printed", &printed).unwrap_or_else(|errors| panic!("{errors}\n{printed}"));
    let bodies = |manifests: &[Manifest]| -> Vec<Value> {
        manifests
            .iter()
            .map(|manifest| whole(Value::from(manifest.body.clone())))
            .collect()
    };
    assert_eq!(bodies(manifests), bodies(&again));
    if let Ok(once) = resolve(manifests, &Kinds::default(), "default", &[]) {
        assert_eq!(resolve(&once, &Kinds::default(), "default", &[]).as_ref(), Ok(&once));
    }
}

/// Without fractions, whose last digit may be another one after printing.
fn whole(value: Value) -> Value {
    match value {
        Value::Number(number) if number.is_f64() => Value::Null,
        Value::Array(items) => items.into_iter().map(whole).collect(),
        Value::Object(entries) => entries.into_iter().map(|(key, value)| (key, whole(value))).collect(),
        other => other,
    }
}

fn check_places(text: &str, InputErrors(errors): &InputErrors) {
    assert!(!errors.is_empty());
    let last = text.split(['\n', '\r']).count() as u64 + 1;
    for error in errors {
        assert!(error.origin.document > 0, "{error}");
        assert!((1..=last).contains(&error.origin.line), "{error}");
        assert!(!error.problem.is_empty(), "{error}");
    }
}
