//! Hashes of schemas, which show whether the source of an export has changed, and of lists of parts.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::v1alpha2::BoundSchemaSpec;

/// Returns the SHA-256 of a list of parts. Each part is preceded by its length in bytes (64 bits, big endian), so that no two
/// lists give the same input.
pub fn of_parts(parts: impl IntoIterator<Item = impl AsRef<[u8]>>) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        add_part(&mut hash, part);
    }
    hash.finalize().into()
}

/// Adds one part, preceded by its length, to a hash as [`of_parts`] computes it.
pub fn add_part(hash: &mut Sha256, part: impl AsRef<[u8]>) {
    hash.update((part.as_ref().len() as u64).to_be_bytes());
    hash.update(part);
}

/// Below this, every whole number is exactly representable as a float.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Formats bytes as lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 0xf])
        .map(|nibble| char::from(DIGITS[usize::from(nibble)]))
        .collect()
}

/// Returns the value of `kube-bind.io/source-spec-hash` on a BoundSchema.
pub fn schema_hash(spec: &BoundSchemaSpec) -> String {
    let mut hash = Sha256::new();
    hash.update(canonical_json(spec));
    hex(&hash.finalize())
}

/// Returns the value of `kube-bind.io/source-spec-hash` on an APIServiceExport, over its schemas in the order of its resources.
pub fn export_hash<'a>(schemas: impl IntoIterator<Item = &'a BoundSchemaSpec>) -> String {
    let mut hash = Sha256::new();
    for spec in schemas {
        hash.update(canonical_json(spec));
        hash.update(b"\n");
    }
    hex(&hash.finalize())
}

/// Serializes a value as JSON without spaces, with sorted keys, and with whole numbers as integers: an API server returns 10 for
/// the 10.0 that it was given.
pub fn canonical_json(value: &impl Serialize) -> String {
    // The types of this crate always serialize: their keys are strings and their numbers finite.
    let value = serde_json::to_value(value).unwrap_or(Value::Null);
    let mut text = String::new();
    write(&value, &mut text);
    text
}

fn write(value: &Value, text: &mut String) {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_unstable_by_key(|(key, _)| *key);
            list(text, ['{', '}'], entries, |(key, value), text| {
                text.push_str(&Value::from(key.as_str()).to_string());
                text.push(':');
                write(value, text);
            });
        }
        Value::Array(items) => list(text, ['[', ']'], items, write),
        Value::Number(number) => match number.as_f64().filter(|_| number.is_f64()) {
            Some(whole) if whole.fract() == 0.0 && whole.abs() < EXACT => {
                // The sum removes the sign of zero; writing to a String cannot fail.
                let _ = write!(text, "{:.0}", whole + 0.0);
            }
            _ => text.push_str(&number.to_string()),
        },
        scalar => text.push_str(&scalar.to_string()),
    }
}

fn list<T>(
    text: &mut String,
    [open, close]: [char; 2],
    items: impl IntoIterator<Item = T>,
    write: impl Fn(T, &mut String),
) {
    text.push(open);
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        write(item, text);
    }
    text.push(close);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::v1alpha2::{BoundSchemaVersion, Scope};

    fn spec(description: &str) -> BoundSchemaSpec {
        BoundSchemaSpec {
            group: "wildwest.dev".to_owned(),
            versions: vec![BoundSchemaVersion {
                name: "v1".to_owned(),
                schema: json!({ "type": "object", "description": description }).into(),
                ..BoundSchemaVersion::default()
            }],
            ..BoundSchemaSpec::default()
        }
    }

    #[test]
    fn keys_are_sorted_at_every_depth() {
        let value = json!({ "b": [{ "d": 1, "c": "x\"y" }], "a": null, "aa": { "z": true, "y": 1.5 } });
        assert_eq!(
            canonical_json(&value),
            r#"{"a":null,"aa":{"y":1.5,"z":true},"b":[{"c":"x\"y","d":1}]}"#
        );
    }

    #[test]
    fn whole_numbers_are_written_one_way() {
        let value = json!([10.0, 10, -3.0, -0.0, 0, 2.5, 1e300, u64::MAX, i64::MIN]);
        assert_eq!(
            canonical_json(&value),
            "[10,10,-3,0,0,2.5,1e+300,18446744073709551615,-9223372036854775808]"
        );
    }

    #[test]
    fn the_hash_follows_the_content() {
        let hash = schema_hash(&spec("one"));
        assert_eq!(hash.len(), 64);
        assert_eq!(hash, schema_hash(&spec("one")));
        assert_ne!(hash, schema_hash(&spec("two")));
        let cluster_scoped = BoundSchemaSpec {
            scope: Scope::Cluster,
            ..spec("one")
        };
        assert_ne!(hash, schema_hash(&cluster_scoped));
    }

    #[test]
    fn lists_of_parts_with_the_same_text_have_different_hashes() {
        assert_ne!(of_parts(["a", "bc"]), of_parts(["ab", "c"]));
        assert_ne!(of_parts(["", "a"]), of_parts(["a", ""]));
        assert_ne!(of_parts(["a"]), of_parts(["a", ""]));
        assert_eq!(of_parts(["a", "bc"]), of_parts([&b"a"[..], b"bc"]));
    }

    #[test]
    fn the_order_of_resources_counts_for_an_export() {
        let (one, two) = (spec("one"), spec("two"));
        assert_ne!(export_hash([&one, &two]), export_hash([&two, &one]));
        assert_eq!(export_hash([&one, &two]), export_hash([&one, &two]));
    }
}
