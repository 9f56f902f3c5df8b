//! What may still be written when everything is at rest: Leases, events and heartbeats.

use std::{collections::BTreeSet, sync::Arc};

use bindery_api::holder::HELD;
use bindery_simulator_apiserver::{Change, ObjectKey};
use serde_json::{Map, Value};

use crate::users::Circumstance;

/// Whether a write may come when everything is at rest.
pub fn is_of_rest(change: &Change) -> bool {
    let is = |group: &str, resource: &str| change.key.group == group && change.key.resource == resource;
    let reports = ["clusterbindings", "apiservicebindingbundles"];
    is("coordination.k8s.io", "leases")
        || is("", "events")
        || is("events.k8s.io", "events")
        || (reports.iter().any(|resource| is("kube-bind.io", resource)) && is_heartbeat(change))
}

/// Whether a write changes nothing but conditions of a ClusterBinding, which the server sets by the heartbeats that it sees, or of a
/// binding or bundle that waits for the user since another konnector holds the contract, whose steps say in time why. It may follow a
/// heartbeat, and is of rest if it is rare.
pub fn is_answer_to_heartbeat(change: &Change) -> bool {
    let (Some(before), Some(after)) = (&change.before, &change.after) else {
        return false;
    };
    let without_conditions = |object: &Arc<Value>| {
        let mut object = without_heartbeat(object);
        if let Some(status) = object.pointer_mut("/status").and_then(Value::as_object_mut) {
            status.remove("conditions");
        }
        object
    };
    let is_told = match change.key.resource.as_str() {
        "clusterbindings" => true,
        "apiservicebindings" | "apiservicebindingbundles" => waits_for_holder(before) && waits_for_holder(after),
        _ => false,
    };
    change.key.group == "kube-bind.io" && is_told && without_conditions(before) == without_conditions(after)
}

/// Whether a write is of a provider namespace for which an unbind waits: of a consumer namespace that a user forced to end with objects
/// in it. The server requests it each minute for a copy that is retained there, and the konnector gives it back.
pub(super) fn waits_for_forced_namespace(written: &ObjectKey, circumstances: &BTreeSet<Circumstance>) -> bool {
    let is_unbound = circumstances.contains(&Circumstance::Unbound);
    written.resource == "apiservicenamespaces" && is_unbound && circumstances.contains(&Circumstance::NamespaceForced)
}

/// Whether a binding or bundle says that another konnector may hold its contract.
fn waits_for_holder(object: &Value) -> bool {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    let mut held = conditions
        .into_iter()
        .flatten()
        .filter(|condition| condition["type"] == HELD);
    held.any(|condition| condition["status"] == "False" && condition["severity"] == "Error")
}

/// Whether a write changes nothing but what a heartbeat tells: that the konnector lives, reaches the provider, and how far it is.
fn is_heartbeat(change: &Change) -> bool {
    let (Some(before), Some(after)) = (&change.before, &change.after) else {
        return false;
    };
    without_heartbeat(before) == without_heartbeat(after)
}

/// The object without what heartbeats tell, and without what every write of an object changes.
fn without_heartbeat(object: &Arc<Value>) -> Value {
    let mut object = Value::clone(object);
    let fields = [
        ("/metadata", "resourceVersion"),
        ("/metadata", "managedFields"),
        ("/status", "lastSyncTime"),
        ("/status", "lastHeartbeatTime"),
        ("/status", "credentialExpirationTime"),
        ("/status", "sync"),
    ];
    for (parent, field) in fields {
        if let Some(parent) = object.pointer_mut(parent).and_then(Value::as_object_mut) {
            parent.remove(field);
        }
    }
    let conditions = object.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten() {
        if let Some(condition) = condition.as_object_mut() {
            condition.remove("lastProbeTime");
            // Each heartbeat is a new step of the contract's holder.
            if condition.get("type").is_some_and(|kind| kind == HELD) {
                condition.remove("message");
                condition.remove("lastTransitionTime");
            }
        }
    }
    object
}

/// The fields that a write changed, for people, with the text that a condition has now.
pub fn changed_fields(change: &Change) -> Vec<String> {
    let mut fields = Vec::new();
    if let (Some(before), Some(after)) = (&change.before, &change.after) {
        compare("", before, after, &mut fields);
    }
    fields.retain(|field| !["/metadata/resourceVersion", "/metadata/managedFields"].contains(&field.as_str()));
    fields
}

fn compare(path: &str, before: &Value, after: &Value, fields: &mut Vec<String>) {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) if path != "/metadata/managedFields" => {
            let new = after.keys().filter(|key| !before.contains_key(*key));
            for key in before.keys().chain(new) {
                let value = |object: &Map<String, Value>| object.get(key).cloned().unwrap_or_default();
                compare(&format!("{path}/{key}"), &value(before), &value(after), fields);
            }
        }
        (Value::Array(before), Value::Array(after))
            if before.len() == after.len() && !path.starts_with("/metadata") =>
        {
            for (index, (before, after)) in before.iter().zip(after).enumerate() {
                compare(&format!("{path}/{index}"), before, after, fields);
            }
        }
        _ if before != after => fields.push(match after {
            Value::String(text) if path.ends_with("/message") => format!("{path} ({text:?})"),
            _ => path.to_owned(),
        }),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use bindery_simulator_apiserver::Actor;
    use serde_json::json;

    use super::*;

    #[test]
    fn heartbeats_change_nothing_but_their_times() {
        let bundle = |version: &str, sync: &str, probe: &str, bound: i32| {
            json!({
                "metadata": {"name": "b", "resourceVersion": version},
                "status": {"lastSyncTime": sync, "boundServices": bound, "conditions": [
                    {"type": "ProviderReachable", "status": "True", "lastProbeTime": probe},
                ]},
            })
        };
        let check = |group: &str, resource: &str, before: Option<Value>, after: Option<Value>, expect: bool| {
            let change = Change {
                revision: 2,
                key: ObjectKey::new(group, resource, "", "b"),
                before: before.map(Arc::new),
                after: after.map(Arc::new),
                by: Actor::User("konnector".to_owned()),
                request: None,
            };
            assert_eq!(is_of_rest(&change), expect, "{change:?}");
        };
        let (group, resource) = ("kube-bind.io", "apiservicebindingbundles");
        let before = || Some(bundle("1", "10:00", "10:00", 1));
        check(group, resource, before(), Some(bundle("2", "10:01", "10:01", 1)), true);
        check(group, resource, before(), Some(bundle("2", "10:01", "10:01", 2)), false);
        check(group, resource, None, before(), false);
        check(group, resource, before(), None, false);
        check(
            group,
            "apiservicebindings",
            before(),
            Some(bundle("2", "10:01", "10:01", 1)),
            false,
        );
        check("coordination.k8s.io", "leases", None, Some(json!({})), true);
        check("example.dev", "leases", None, Some(json!({})), false);
    }

    #[test]
    fn changed_fields_are_told_by_their_paths() {
        let change = Change {
            revision: 2,
            key: ObjectKey::new("", "configmaps", "n", "c"),
            before: Some(Arc::new(
                json!({"metadata": {"resourceVersion": "1"}, "data": {"a": "1", "b": "1"}, "l": [1, 2], "message": "a"}),
            )),
            after: Some(Arc::new(
                json!({"metadata": {"resourceVersion": "2"}, "data": {"a": "2", "c": "1"}, "l": [1, 3], "message": "b"}),
            )),
            by: Actor::Controller("a"),
            request: None,
        };
        assert_eq!(
            changed_fields(&change),
            ["/data/a", "/data/b", "/data/c", "/l/1", "/message (\"b\")"]
        );
    }
}
