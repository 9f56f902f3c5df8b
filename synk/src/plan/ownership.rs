//! Reads field ownership from `metadata.managedFields`, and owners from `metadata.ownerReferences`.

use bindery_runtime::managed_fields::merge;
use serde_json::{Map, Value};

use crate::{
    object::owner_references,
    wire::{FIELD_MANAGER, LAST_APPLIED, SetName, Version, is_resource_set},
};

/// The fields of an object that synk's applies own, and those of all other managers.
#[derive(Debug, Default)]
pub(super) struct Ownership {
    /// Fields that synk's applies own. The next apply removes those that its manifest lacks.
    pub(super) ours: Value,
    /// Fields that other managers own. A field that synk gives up stays if it is among them.
    pub(super) others: Value,
    /// True if synk's entry has another version of the API, so that its fields cannot be compared.
    pub(super) is_foreign: bool,
}

// === impl Ownership ===

impl Ownership {
    /// Reads the managed-fields entries of an object.
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

    /// Whether synk's applies own the last-applied annotation.
    pub(super) fn has_last_applied(&self) -> bool {
        let annotations = &self.ours["f:metadata"]["f:annotations"];
        annotations.get(format!("f:{LAST_APPLIED}")).is_some()
    }
}

/// Returns the managed-fields entries of an object.
pub(super) fn entries(live: &Value) -> &[Value] {
    live["metadata"]["managedFields"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default()
}

/// Whether an entry belongs to synk's server-side applies.
pub(super) fn is_ours(entry: &Value) -> bool {
    entry["manager"] == FIELD_MANAGER
        && entry["operation"] == "Apply"
        && bindery_runtime::managed_fields::is_whole(entry)
}

/// Returns the owner references of an object that name a ResourceSet.
pub(super) fn owners(live: &Value) -> Vec<&Value> {
    owner_references(live)
        .iter()
        .filter(|reference| is_resource_set(reference))
        .collect()
}

/// Whether an owner reference names a version of this set.
pub(super) fn is_of(owner: &Value, set: &SetName) -> bool {
    let version: Option<Version> = owner["name"].as_str().and_then(|name| name.parse().ok());
    version.is_some_and(|version| version.set == *set)
}
