//! Compares a desired JSON value with what an API server stored for it.

use serde_json::Value;

/// Whether a value contains everything that is wanted: every field of an object, and all elements of a list in their order.
/// Fields that the API server, a webhook or another writer added are ignored, and a wanted `null`, empty object or empty list
/// may be absent.
pub fn contains(actual: &Value, wanted: &Value) -> bool {
    match (actual, wanted) {
        (Value::Object(actual), Value::Object(wanted)) => wanted.iter().all(|(key, wanted)| match actual.get(key) {
            Some(actual) => contains(actual, wanted),
            None => is_void(wanted),
        }),
        (Value::Array(actual), Value::Array(wanted)) => {
            actual.len() == wanted.len()
                && actual
                    .iter()
                    .zip(wanted)
                    .all(|(actual, wanted)| contains(actual, wanted))
        }
        (Value::Number(actual), Value::Number(wanted)) => actual == wanted || actual.as_f64() == wanted.as_f64(),
        (actual, wanted) => actual == wanted,
    }
}

/// Whether an API server may leave a value out.
fn is_void(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(actual: &Value, wanted: &Value, expect: bool) {
        assert_eq!(contains(actual, wanted), expect, "{actual} holds {wanted}");
    }

    #[test]
    fn additions_are_no_difference_and_all_else_is() {
        check(&json!({"a": 1, "b": 2}), &json!({"a": 1}), true);
        check(&json!({"a": 1}), &json!({"a": 1, "b": 2}), false);
        check(
            &json!({"a": {"b": [{"c": 1, "d": 2}]}}),
            &json!({"a": {"b": [{"c": 1}]}}),
            true,
        );
        check(&json!([1, 2]), &json!([1]), false);
        check(&json!([1, 2]), &json!([2, 1]), false);
        check(&json!({}), &json!({"a": null, "b": {}, "c": []}), true);
        check(&json!({}), &json!({"a": false}), false);
        check(&json!(1.0), &json!(1), true);
        check(&json!("1"), &json!(1), false);
    }
}
