//! Retention of the copy of a deleted object: what is written to the copy, what an object is restored from, and the user's orders.

use std::collections::HashMap;

use bindery_api::{
    annotations, labels,
    retention::{self, RetentionAction, RetentionMark},
};
use jiff::Timestamp;
use parking_lot::RwLock;
use serde_json::{Map, Value, json, value::to_raw_value};

use crate::{
    bound::pair::Retained,
    model::{
        object::{Object, Version},
        uid::Uid,
    },
};

/// The orders of the user to end the retention of copies, by UID of the copy. A konnector that restarts forgets orders that it has not
/// carried out: the copies are still listed, and the user orders again.
#[derive(Debug, Default)]
pub(crate) struct RetentionOrders(RwLock<HashMap<Uid, RetentionAction>>);

/// The marks of a copy that is being retained.
pub(super) struct Marks<'a> {
    /// The UID of the copy.
    pub uid: &'a str,
    /// The version in which the copy was seen.
    pub version: Version,
    /// The namespace of the source.
    pub namespace: &'a str,
    /// What is written into the copy.
    pub mark: RetentionMark<'a>,
}

// === impl RetentionOrders ===

impl RetentionOrders {
    /// Returns the order for a copy. One that is not retained any more loses its order.
    pub(super) fn of(&self, copy: Option<&Uid>, is_retained: bool) -> Option<RetentionAction> {
        let copy = copy?;
        let order = self.0.read().get(copy).copied()?;
        if is_retained {
            return Some(order);
        }
        self.0.write().remove(copy);
        None
    }

    pub(super) fn set(&self, copy: Uid, action: RetentionAction) {
        self.0.write().insert(copy, action);
    }
}

/// The merge patch that retains a copy and suspends it: marks, `suspend`, and no record of what was written last, so that the content is
/// written again when the source is restored. `copy` is the copy as it was seen; without it nothing is suspended.
pub(super) fn retain(marks: &Marks<'_>, copy: Option<&Object>, suspend: Option<&Value>) -> Value {
    let is_suspended = copy.is_some_and(|copy| {
        let mark = |key: &str| copy.meta.annotations.get(key);
        Retained::of(mark, marks.mark.contract).is_some()
    });
    // A copy whose source was deleted again while it was restored is suspended already.
    let suspend = suspend.filter(|suspend| suspend.is_object() && !is_suspended);
    let mut patch = suspend.cloned().unwrap_or_else(|| json!({}));
    let mut notes = json!({
        annotations::CLUSTER_NAMESPACE: marks.mark.contract,
        annotations::CONSUMER_NAMESPACE: marks.namespace,
        annotations::CONSUMER_UID: marks.mark.source_uid,
        annotations::BOUND: annotations::TRUE,
        annotations::RETAINED: marks.mark.to_string(),
        annotations::RETAINED_UNTIL: null,
        annotations::RESTORING: null,
        annotations::RELEASED: null,
        annotations::PROJECTION_HASH: null,
    });
    if let Some((suspend, copy)) = suspend.zip(copy) {
        notes[annotations::RESUME] = retention::inverse(&content(copy), suspend).to_string().into();
    }
    patch["metadata"] = json!({
        "uid": marks.uid,
        "resourceVersion": marks.version.to_string(),
        "labels": { labels::RETAINED: annotations::TRUE },
        "annotations": notes,
    });
    patch
}

/// The merge patch that marks a retained copy as one whose source is being restored. The server gives it another time to end.
pub(super) fn restore(uid: &str) -> Value {
    json!({ "metadata": {
        "uid": uid,
        "annotations": {
            annotations::RESTORING: annotations::TRUE,
            annotations::RETAINED_UNTIL: null,
        },
    } })
}

/// The merge patch that makes a retained copy the copy of an object again, and undoes its suspension.
pub(super) fn relink(copy: &Object, version: Version, source_uid: &str) -> Value {
    let mut patch = resume(copy).unwrap_or_else(|| json!({}));
    let mut notes = json!({
        annotations::CONSUMER_UID: source_uid,
        annotations::RETAINED: null,
        annotations::RETAINED_UNTIL: null,
        annotations::RESTORING: null,
        annotations::RESUME: null,
    });
    if copy.meta.annotations.get(annotations::CONSUMER_UID) != Some(source_uid) {
        // The generations of an object that was created anew begin at one.
        notes[annotations::SOURCE_GENERATION] = Value::Null;
    }
    patch["metadata"] = json!({
        "uid": copy.meta.uid,
        "resourceVersion": version.to_string(),
        "labels": { labels::RETAINED: null },
        "annotations": notes,
    });
    patch
}

/// The copy as it was before it was suspended.
pub(super) fn resumed(copy: &Object) -> serde_json::Result<Object> {
    let Some(resume) = resume(copy) else {
        return Ok(copy.clone());
    };
    let mut content = content(copy);
    retention::merge(&mut content, &resume);
    let fields = content.as_object().cloned().unwrap_or_default();
    let mut body = Vec::with_capacity(fields.len());
    for (key, value) in fields {
        body.push((key.into_boxed_str(), to_raw_value(&value)?));
    }
    body.sort_by(|one, other| one.0.cmp(&other.0));
    Ok(Object { body, ..copy.clone() })
}

/// The patch that undoes the suspension of a copy: of its content only, whatever the annotation says.
fn resume(copy: &Object) -> Option<Value> {
    let text = copy.meta.annotations.get(annotations::RESUME)?;
    let Ok(Value::Object(mut resume)) = serde_json::from_str(text) else {
        return None;
    };
    resume.retain(|field, _| !matches!(field.as_str(), "apiVersion" | "kind" | "metadata" | "status"));
    Some(Value::Object(resume))
}

fn content(copy: &Object) -> Value {
    // Text that an API server sent as part of a larger document parses.
    let fields = copy.body.iter().filter_map(|(key, text)| {
        let value = serde_json::from_str(text.get()).ok()?;
        Some((String::from(&**key), value))
    });
    Value::Object(fields.collect::<Map<_, _>>())
}

/// The mark of a copy that is retained now.
pub(super) fn mark<'a>(source_uid: &'a str, contract: &'a str) -> RetentionMark<'a> {
    RetentionMark {
        source_uid,
        contract,
        since: Timestamp::from_second(Timestamp::now().as_second()).unwrap_or_default(),
    }
}

#[cfg(test)]
#[path = "tests/retention.rs"]
mod tests;
