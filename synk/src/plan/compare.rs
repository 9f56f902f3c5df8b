//! Compares one live object with its manifest.

use base64::Engine as _;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{
    Decision, FieldChange, PlanInput,
    desired::{desired, last_applied, said, strip},
    diff::{differences, shown},
    merged::{Merged, merged},
    ownership::{Ownership, entries, owners},
    takeover::{TakeOver, due},
};
use crate::{
    input::Manifest,
    wire::{FIELD_MANAGER, LAST_APPLIED, SetName, Version},
};

/// Path under which a plan shows that field ownership is transferred to synk.
const FIELDS: &str = "metadata.managedFields";
/// Path under which a plan shows that the set becomes the owner.
const OWNERS: &str = "metadata.ownerReferences";

/// Returns the decision for an object that exists, and the fields that differ, with all values (Secrets included).
pub(super) fn compared(input: &PlanInput<'_>, manifest: &Manifest, live: &Value) -> (Decision, Vec<FieldChange>) {
    let taken = due(live, manifest, &input.allowed.fields_of);
    let entries = taken.as_ref().map_or_else(|| entries(live), |taken| &taken.entries);
    let wanted = said(manifest);
    let last = last_applied(live);
    let is_same = last.as_ref().is_some_and(|last| equal(last, &wanted));
    let expected = expected(live, manifest, entries);
    let differences = differences(live, &expected.object);
    let marks = marks(input, manifest, live, taken.as_ref());

    let decision = if !marks.is_empty() {
        Decision::Change
    } else if differences.is_empty() && !expected.doubtful {
        Decision::Unchanged
    } else if is_same && is_as_written(input, manifest, live, &differences) {
        return (Decision::Unchanged, Vec::new());
    } else if expected.doubtful || is_same || is_large(input, manifest, live) {
        Decision::Unsure
    } else {
        Decision::Change
    };
    (decision, marks.into_iter().chain(differences).collect())
}

/// Computes the object that a server-side apply of the manifest would make, given these managed fields.
pub(super) fn expected(live: &Value, manifest: &Manifest, entries: &[Value]) -> Merged {
    let ownership = Ownership::of(entries, &manifest.object.gvk.api_version());
    let last = last_applied(live).filter(|_| ownership.has_last_applied());
    let mut is = live.clone();
    strip(&mut is);
    let mut expected = merged(&is, &said(manifest), &ownership, last.as_ref());
    expected.doubtful |= ownership.is_foreign;
    expected
}

/// Returns the changes that synk makes beside the manifest: fields whose ownership is transferred, and a new owner.
fn marks(input: &PlanInput<'_>, manifest: &Manifest, live: &Value, taken: Option<&TakeOver>) -> Vec<FieldChange> {
    let mark = |path: &str, from: Option<String>, to: String| FieldChange {
        path: path.to_owned(),
        from: from.map(Value::String),
        to: Some(Value::String(to)),
        hidden: false,
    };
    let mut marks = Vec::new();
    if let Some(taken) = taken.filter(|taken| !taken.from.is_empty()) {
        marks.push(mark(FIELDS, Some(taken.from.join(", ")), FIELD_MANAGER.to_owned()));
    }
    let owners = owners(live);
    let is_owned = owners
        .iter()
        .any(|owner| owner["uid"].as_str().is_some_and(|uid| input.versions.has_uid(uid)));
    if !manifest.object.gvk.is_crd() && !is_owned {
        let names: Vec<_> = owners.iter().filter_map(|owner| owner["name"].as_str()).collect();
        let from = (!names.is_empty()).then(|| names.join(", "));
        marks.push(mark(OWNERS, from, input.set.to_string()));
    }
    marks
}

pub(super) fn is_mark(change: &FieldChange) -> bool {
    (change.path == FIELDS || change.path == OWNERS) && matches!(change.to, Some(Value::String(_)))
}

pub(super) fn shown_but_marks(changes: Vec<FieldChange>, manifest: &Manifest) -> Vec<FieldChange> {
    let (mut marks, changes): (Vec<_>, Vec<_>) = changes.into_iter().partition(is_mark);
    marks.extend(shown(changes, &manifest.object.gvk));
    marks
}

/// Returns the name of the ResourceSet that owns an object, if it belongs to another set, or to a version of this set
/// above `highest`.
pub(super) fn stranger(live: &Value, set: &SetName, highest: u64) -> Option<String> {
    let names = owners(live)
        .into_iter()
        .map(|owner| owner["name"].as_str().unwrap_or_default());
    let mut strangers = names.filter(|name| {
        let version: Option<Version> = name.parse().ok();
        version.is_none_or(|version| version.set != *set || version.number > highest)
    });
    strangers.next().map(str::to_owned)
}

/// Whether the live object differs from the manifest only because the API server normalized what was applied.
fn is_as_written(input: &PlanInput<'_>, manifest: &Manifest, live: &Value, differences: &[FieldChange]) -> bool {
    let record = input
        .versions
        .newest()
        .and_then(|newest| newest.records.get(&manifest.object.identity()));
    let metadata = &live["metadata"];
    let is_recorded = record.is_some_and(|record| {
        let generation = record.generation.is_some() && record.generation == metadata["generation"].as_i64();
        generation && metadata["uid"] == *record.uid
    });
    is_recorded
        && differences
            .iter()
            .all(|change| !change.path.starts_with("metadata.") && change.to.is_some())
}

/// Whether an object is too large for the last-applied annotation.
fn is_large(input: &PlanInput<'_>, manifest: &Manifest, live: &Value) -> bool {
    let owner = input
        .versions
        .newest()
        .map(|newest| (&newest.version, newest.uid.as_str()));
    let is_noted = |object: &Value| object["metadata"]["annotations"].get(LAST_APPLIED).is_some();
    !is_noted(live) && !is_noted(&desired(manifest, owner))
}

/// Whether two manifests have the same content.
fn equal(left: &Value, right: &Value) -> bool {
    differences(left, right).is_empty()
}

/// Returns a hash of the changes of a step that also covers the values of Secrets without containing them.
pub(super) fn fingerprint(changes: &[FieldChange]) -> String {
    let text = json!(changes).to_string();
    let digest = Sha256::digest(text.as_bytes());
    base64::engine::general_purpose::STANDARD.encode(digest)
}
