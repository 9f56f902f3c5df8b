//! The canonical form of JSON, which does not depend on the features that a program gives to `serde_json`.

use std::collections::BTreeMap;

use serde_json::Value;

/// Writes a value with the keys of all objects in the order of their UTF-8 bytes and without insignificant space.
pub(super) fn text(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let sorted: BTreeMap<_, _> = fields.iter().collect();
            let fields = sorted
                .into_iter()
                .map(|(key, value)| format!("{}:{}", quoted(key), text(value)));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(text).collect::<Vec<_>>().join(",")),
        Value::String(string) => quoted(string),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

/// Writes a string as RFC 8785 does: escaped are quotation marks, backslashes and control characters below U+0020 alone.
fn quoted(string: &str) -> String {
    Value::from(string).to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_are_sorted_by_bytes_and_little_is_escaped() {
        let value =
            json!({ "b": [1, { "z": null, "a": true }], "a": "\"\\/\u{8}\t\n\u{c}\r\u{1}\u{1f}\u{7f}<&>\u{2028}é" });
        assert_eq!(
            text(&value),
            "{\"a\":\"\\\"\\\\/\\b\\t\\n\\f\\r\\u0001\\u001f\u{7f}<&>\u{2028}é\",\"b\":[1,{\"a\":true,\"z\":null}]}"
        );
        // In UTF-16, a surrogate would come before U+FF5E.
        assert_eq!(
            text(&json!({ "\u{1f920}": 1, "\u{ff5e}": 2 })),
            "{\"\u{ff5e}\":2,\"\u{1f920}\":1}"
        );
    }
}
