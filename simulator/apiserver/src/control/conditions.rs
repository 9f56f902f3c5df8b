//! Conditions in the status of objects.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::meta;

/// Sets a condition. Its time of transition changes only with its status.
pub(crate) fn set(object: &mut Value, now: Timestamp, kind: &str, status: &str, reason: &str, message: &str) {
    if !object["status"].is_object() {
        object["status"] = json!({});
    }
    let conditions = &mut object["status"]["conditions"];
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Some(list) = conditions.as_array_mut() else {
        return;
    };
    let mut condition = json!({
        "type": kind,
        "status": status,
        "lastTransitionTime": meta::time(now),
        "reason": reason,
        "message": message,
    });
    match list.iter_mut().find(|other| other["type"] == kind) {
        Some(other) => {
            if other["status"] == status {
                condition["lastTransitionTime"] = other["lastTransitionTime"].clone();
            }
            *other = condition;
        }
        None => list.push(condition),
    }
}
