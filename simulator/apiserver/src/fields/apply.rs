//! Server-side apply.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    BEFORE_FIRST_APPLY,
    compare::compare,
    conflict::conflict,
    ignored::{UNOWNED, ignored},
    managed::{Managed, ManagerId, Operation},
    managed_fields,
    merge::merge,
    put_managed_fields, same_but_managers,
    set::Set,
    take_managed_fields,
    types::Type,
    update::{Write, keep_times, time, tracked},
    validate::fault,
    walk::{field_set, without},
};
use crate::{kind::KindInfo, status::StatusError};

/// Applies `applied` to the live object. Without a live object the result is the object to create. The result's
/// `metadata.managedFields` are up to date; its other metadata of the system (UID, revision) is that of the live object.
///
/// `subresource` is empty or `status`. A conflict is answered with 409 and one cause per field.
pub(crate) fn apply(
    live: Option<&Value>,
    applied: &Value,
    manager: &str,
    force: bool,
    subresource: &str,
    kind: &KindInfo,
    now: Timestamp,
) -> Result<Value, StatusError> {
    let of = Type::root(kind.schema.as_deref());
    check(applied, kind, of)?;
    let empty = json!({"apiVersion": applied.get("apiVersion"), "kind": applied.get("kind")});
    let before = live.unwrap_or(&empty);
    let mut owners = Managed::read(managed_fields(before)).unwrap_or_default();
    if owners.is_empty() && live.is_some() {
        let manager = BEFORE_FIRST_APPLY;
        let write = Write {
            manager,
            subresource,
            kind,
            now,
        };
        owners = tracked(None, before, owners, write);
    }

    let version = kind.api_version();
    let id = ManagerId::new(manager, Operation::Apply, &version, subresource);
    let ignored = ignored(kind, subresource);
    let last = owners.get(&id).map(|manager| manager.set().clone());
    let set = field_set(applied, of).without_trees(ignored);
    owners.put(&id, &version, set.clone());

    let mut after = merge(before, applied, of);
    take_managed_fields(&mut after);
    if let Some(last) = last.filter(|last| !last.difference(&set).is_empty()) {
        after = pruned(after, &last, &owners.all(), of);
        if kind.schema.as_ref().is_some_and(|schema| schema.get("$ref").is_some()) {
            drop_nulls(&mut after);
        }
    }

    let is_same = same_but_managers(before, &after);
    if !is_same {
        let changes = compare(before, &after, of).without(ignored);
        let taken = changes.modified.union(&changes.added);
        let mut conflicts = Vec::new();
        for rival in owners.iter_mut().filter(|rival| rival.id != id) {
            let set = rival.set();
            let contested = set.intersection(&taken);
            let kept = set
                .difference(&contested)
                .difference(&without_managers(&changes.removed));
            if !contested.is_empty() {
                conflicts.push((rival.id.clone(), contested));
            }
            *rival.set() = kept;
        }
        if !force && !conflicts.is_empty() {
            return Err(conflict(conflicts));
        }
        owners.stamp(&id, &time(now));
    }
    owners.put(&id, &version, set.difference(&UNOWNED));
    owners.drop_empty();
    put_managed_fields(&mut after, owners.written());
    keep_times(live, &mut after);
    Ok(after)
}

/// The removed fields without `managedFields`, which no manager owns, so that an applier that leaves them out removes no field.
fn without_managers(removed: &Set) -> Set {
    removed.difference(&UNOWNED)
}

/// Built-in kinds have no nulls, which is what emptied parts become.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// Refuses an applied configuration of another kind, or with fields that an applier may not set.
fn check(applied: &Value, kind: &KindInfo, of: Type<'_>) -> Result<(), StatusError> {
    let text = |key: &str| applied.get(key).and_then(Value::as_str).unwrap_or_default();
    let (group, version) = text("apiVersion")
        .split_once('/')
        .unwrap_or_else(|| ("", text("apiVersion")));
    let named = format!("{group}/{version}, Kind={}", text("kind"));
    if (group, version, text("kind")) != (kind.group.as_str(), kind.version.as_str(), kind.kind.as_str()) {
        return Err(StatusError::bad_request(format!("invalid object type: {named}")));
    }
    if managed_fields(applied).is_some_and(|fields| !fields.is_null()) {
        return Err(StatusError::bad_request("metadata.managedFields must be nil"));
    }
    let Some(fault) = fault(applied, of) else {
        return Ok(());
    };
    let meta = |key: &str| {
        applied
            .get("metadata")
            .and_then(|meta| meta.get(key))
            .and_then(Value::as_str)
    };
    let (namespace, name) = (meta("namespace").unwrap_or_default(), meta("name").unwrap_or_default());
    let message = format!("failed to create typed patch object ({namespace}/{name}; {named}): {fault}");
    Err(StatusError::plain(500, "", message))
}

/// Removes what the manager applied last time, does not apply now, and no other manager owns.
fn pruned(merged: Value, last: &Set, owned: &Set, of: Type<'_>) -> Value {
    let last = last.with_declared_parents(of);
    let all = field_set(&merged, of).with_declared_parents(of);
    let fields = |object: &Value| field_set(object, of).with_declared_parents(of);
    let left = without(&merged, &last, of).unwrap_or_else(|| json!({}));
    let kept = fields(&left).union(&owned.with_declared_parents(of));
    let left = without(&merged, &all.difference(&kept), of).unwrap_or_else(|| json!({}));
    let gone = all.difference(&fields(&left)).intersection(&last);
    if gone.is_empty() {
        return merged;
    }
    without(&merged, &gone, of).unwrap_or(merged)
}
