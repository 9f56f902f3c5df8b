//! Who owns which fields of a live object.

use bindery_runtime::managed_fields::merge;
use serde_json::{Map, Value};

use crate::wire::{FIELD_MANAGER, LAST_APPLIED};

/// Who owns which fields of an object.
#[derive(Debug, Default)]
pub(super) struct Ownership {
    /// What our applies own. What they do not say any more goes with the next one.
    pub(super) ours: Value,
    /// What anybody else owns; what is removed by us stays where it is theirs too.
    pub(super) others: Value,
    /// Ours is written by another version of the API, so that nothing is certain of it.
    pub(super) is_foreign: bool,
}

// === impl Ownership ===

impl Ownership {
    /// As `metadata.managedFields` says.
    pub(super) fn of(entries: &[Value], api_version: &str) -> Self {
        let (mut ours, mut others, mut is_foreign) = (Map::new(), Map::new(), false);
        for entry in entries {
            let fields = entry["fieldsV1"].as_object().cloned().unwrap_or_default();
            if !is_ours(entry) {
                merge(&mut others, fields);
            } else if entry["apiVersion"] == api_version {
                merge(&mut ours, fields);
            } else {
                is_foreign = true;
            }
        }
        Self {
            ours: Value::Object(ours),
            others: Value::Object(others),
            is_foreign,
        }
    }

    /// Whether the annotation with what was last applied is ours.
    pub(super) fn has_last_applied(&self) -> bool {
        let annotations = &self.ours["f:metadata"]["f:annotations"];
        annotations.get(format!("f:{LAST_APPLIED}")).is_some()
    }
}

/// The entries of an object.
pub(super) fn entries(live: &Value) -> &[Value] {
    live["metadata"]["managedFields"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default()
}

/// Whether an entry is of our applies.
pub(super) fn is_ours(entry: &Value) -> bool {
    entry["manager"] == FIELD_MANAGER
        && entry["operation"] == "Apply"
        && bindery_runtime::managed_fields::is_whole(entry)
}
