//! Long texts, which the files of cases write as `@large:LENGTH`.

use serde_json::Value;

/// The value with each text `@large:LENGTH` replaced by one of this length.
pub(crate) fn value(value: &Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .iter()
            .map(|(key, field)| (key.clone(), self::value(field)))
            .collect(),
        Value::Array(items) => items.iter().map(self::value).collect(),
        Value::String(text) => self::text(text).into(),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

/// The text itself, or one of the length that it names.
pub(crate) fn text(text: &str) -> String {
    match text.strip_prefix("@large:").map(str::parse) {
        Some(Ok(length)) => "x".repeat(length),
        _ => text.to_owned(),
    }
}
