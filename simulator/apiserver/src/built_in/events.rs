//! The two forms of events: `v1` is stored, `events.k8s.io/v1` is converted.

use serde_json::{Value, json};

/// Names of fields in `events.k8s.io/v1` and in `v1`.
const RENAMED: [(&str, &str); 8] = [
    ("note", "message"),
    ("regarding", "involvedObject"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
    ("related", "related"),
];

/// Makes a stored event of one in `events.k8s.io/v1`.
pub(crate) fn to_core(event: &mut Value) {
    let Some(fields) = event.as_object_mut() else {
        return;
    };
    for (new, core) in RENAMED {
        if let Some(value) = fields.remove(new) {
            fields.insert(core.to_owned(), value);
        }
    }
    for (field, empty) in [("involvedObject", json!({})), ("source", json!({}))] {
        fields.entry(field).or_insert(empty);
    }
    for field in ["firstTimestamp", "lastTimestamp", "eventTime"] {
        fields.entry(field).or_insert(Value::Null);
    }
    for field in ["reportingComponent", "reportingInstance"] {
        fields.entry(field).or_insert_with(|| "".into());
    }
    fields.insert("apiVersion".to_owned(), "v1".into());
}

/// Makes an event in `events.k8s.io/v1` of a stored one.
pub(crate) fn from_core(event: &Value) -> Value {
    let mut event = event.clone();
    if let Some(fields) = event.as_object_mut() {
        for (new, core) in RENAMED {
            if let Some(value) = fields.remove(core) {
                fields.insert(new.to_owned(), value);
            }
        }
        fields.insert("apiVersion".to_owned(), "events.k8s.io/v1".into());
    }
    event
}
