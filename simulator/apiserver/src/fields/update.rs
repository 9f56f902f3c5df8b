//! Tracks the managers of fields through creates, updates and patches.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    compare::compare,
    ignored::{UNOWNED, ignored},
    managed::{Managed, ManagerId, Operation},
    managed_fields, put_managed_fields, same_but_managers, take_managed_fields,
    types::Type,
};
use crate::kind::KindInfo;

/// A write, as far as its manager is told by it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Write<'a> {
    pub(super) manager: &'a str,
    pub(super) subresource: &'a str,
    pub(super) kind: &'a KindInfo,
    pub(super) now: Timestamp,
}

/// Brings `metadata.managedFields` of `new` up to date after a create, an update or a patch that is not an apply.
/// `managedFields` that the client sent in `new` are honoured as Kubernetes does: `[]` or `[{}]` resets them.
pub(crate) fn track_update(
    live: Option<&Value>,
    new: &mut Value,
    manager: &str,
    subresource: &str,
    kind: &KindInfo,
    now: Timestamp,
) {
    let sent = take_managed_fields(new);
    let stored = live.and_then(managed_fields);
    let is_stored = sent.is_none() || sent.as_ref() == stored || !subresource.is_empty();
    if let Some(live) = live
        && is_stored
        && same_but_managers(live, new)
    {
        put_managed_fields(new, stored.cloned());
        return;
    }
    let stored_managers = || Managed::read(stored).unwrap_or_default();
    let owners = match &sent {
        _ if is_stored => stored_managers(),
        Some(sent) if is_reset(sent) => Managed::default(),
        sent => match Managed::read(sent.as_ref()) {
            Some(owners) if !owners.is_empty() => owners,
            _ => stored_managers(),
        },
    };
    // Nobody tracks an object whose managers were reset, until somebody applies it.
    let exists = live.is_some_and(|live| live.pointer("/metadata/uid").is_some());
    if owners.is_empty() && exists {
        return;
    }
    let write = Write {
        manager,
        subresource,
        kind,
        now,
    };
    let owners = tracked(live, new, owners, write).written();
    put_managed_fields(new, owners);
    keep_times(live, new);
}

/// The managers after a write that is not an apply.
pub(super) fn tracked(live: Option<&Value>, new: &Value, mut owners: Managed, write: Write<'_>) -> Managed {
    let kind = write.kind;
    let of = Type::root(kind.schema.as_deref());
    let empty = json!({"apiVersion": new.get("apiVersion"), "kind": new.get("kind")});
    let ignored = ignored(kind, write.subresource);
    let changes = compare(live.unwrap_or(&empty), new, of).without(ignored);
    let taken = changes.modified.union(&changes.added);
    if !taken.is_empty() || !changes.removed.is_empty() {
        for manager in owners.iter_mut() {
            let set = manager.set();
            *set = set.difference(&taken).difference(&changes.removed);
        }
        owners.drop_empty();
    }
    let own = taken.difference(&UNOWNED);
    if !own.is_empty() {
        let version = kind.api_version();
        let id = ManagerId::new(write.manager, Operation::Update, &version, write.subresource);
        let own = match owners.get(&id) {
            Some(before) => before.set().union(&own),
            None => own,
        };
        owners.put(&id, &version, own);
        owners.stamp(&id, &time(write.now));
    }
    owners.cap();
    owners
}

/// Keeps the times of a write that changes nothing else.
pub(super) fn keep_times(live: Option<&Value>, new: &mut Value) {
    let Some(live) = live else { return };
    let (Some(Value::Array(before)), Some(Value::Array(after))) = (managed_fields(live), managed_fields(new)) else {
        return;
    };
    if before.len() == after.len()
        && before != after
        && before
            .iter()
            .zip(after)
            .all(|(before, after)| same_but_time(before, after))
        && same_but_managers(live, new)
    {
        put_managed_fields(new, Some(Value::Array(before.clone())));
    }
}

fn same_but_time(one: &Value, two: &Value) -> bool {
    let parts = |entry: &Value| {
        let mut entry = entry.clone();
        if let Some(entry) = entry.as_object_mut() {
            entry.remove("time");
        }
        entry
    };
    parts(one) == parts(two)
}

/// If a client asks to forget all managers.
fn is_reset(sent: &Value) -> bool {
    match sent.as_array().map(Vec::as_slice) {
        Some([]) => true,
        Some([one]) => one.as_object().is_some_and(serde_json::Map::is_empty),
        _ => false,
    }
}

/// A time as `managedFields` hold it, in whole seconds.
pub(super) fn time(now: Timestamp) -> String {
    Timestamp::from_second(now.as_second()).unwrap_or(now).to_string()
}
