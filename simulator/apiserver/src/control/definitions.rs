//! The controllers of CRDs: names, establishing, and the end of a CRD with its custom resources.

use std::{collections::BTreeSet, sync::Arc};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Control, conditions};
use crate::{
    ApiServer, Chore, ObjectKey,
    definition::{self, CLEANUP, GROUP, RESOURCE},
    endpoint::Endpoints,
    handle::{Call, DeleteOptions},
    meta,
    store::{Store, Stored},
};

const NAME: &str = "crd controller";
const FINALIZER_NAME: &str = "crd finalizer";

fn key(name: &str) -> ObjectKey {
    ObjectKey::new(GROUP, RESOURCE, "", name)
}

/// Group and plural name of the custom resources of a CRD.
fn resource(definition: &Value) -> (&str, &str) {
    let text = |path: &str| definition.pointer(path).and_then(Value::as_str).unwrap_or_default();
    (text("/spec/group"), text("/spec/names/plural"))
}

impl Control {
    /// Decides anew what a CRD waits for.
    pub(super) fn enqueue_definition(&mut self, store: &Store, _endpoints: &Endpoints, name: &str) {
        let stored = store.get(&key(name)).map(|stored| Arc::clone(&stored.value));
        let definition = stored.as_deref();
        let establish =
            definition.is_some_and(|definition| next_status(store, definition, Timestamp::UNIX_EPOCH).is_some());
        self.set(Chore::Establish(name.to_owned()), establish);
        let ends = definition.is_some_and(|it| meta::is_deleting(it) && meta::has_finalizer(it, CLEANUP));
        let is_due = ends
            && definition.is_some_and(|definition| {
                let (group, plural) = resource(definition);
                let mut left = store.of(group, plural, None).peekable();
                left.peek().is_none() || left.any(|(_, stored)| !meta::is_deleting(&stored.value))
            });
        self.set(Chore::FinalizeDefinition(name.to_owned()), is_due);
    }
}

/// The CRD with the next step of its status, if one is due.
fn next_status(store: &Store, definition: &Value, now: Timestamp) -> Option<Value> {
    let names = &definition["spec"]["names"];
    let accepted = &definition["status"]["acceptedNames"];
    if names != accepted {
        let next = with_names(store, definition, now);
        if next["status"] != definition["status"] {
            return Some(next);
        }
    }
    if definition::is_true(definition, "NamesAccepted") && !definition::is_true(definition, "Established") {
        let mut next = definition.clone();
        let message = "the initial names have been accepted";
        conditions::set(&mut next, now, "Established", "True", "InitialNamesAccepted", message);
        return Some(next);
    }
    None
}

/// Names of resources and kinds that other CRDs of the group have.
fn taken(store: &Store, definition: &Value) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut resources, mut kinds) = (BTreeSet::new(), BTreeSet::new());
    for (key, stored) in store.of(GROUP, RESOURCE, None) {
        let other = &stored.value;
        if key.name == meta::name(definition) || other["spec"]["group"] != definition["spec"]["group"] {
            continue;
        }
        let names = &other["status"]["acceptedNames"];
        let short = names["shortNames"].as_array().into_iter().flatten();
        let texts = [&names["plural"], &names["singular"]].into_iter().chain(short);
        resources.extend(texts.filter_map(Value::as_str).map(ToOwned::to_owned));
        let of_kind = [&names["kind"], &names["listKind"]].into_iter();
        kinds.extend(of_kind.filter_map(Value::as_str).map(ToOwned::to_owned));
    }
    (resources, kinds)
}

fn with_names(store: &Store, definition: &Value, now: Timestamp) -> Value {
    let (resources, kinds) = taken(store, definition);
    let names = &definition["spec"]["names"];
    let before = &definition["status"]["acceptedNames"];
    let mut next = definition.clone();
    let mut accepted = if before.is_object() {
        before.clone()
    } else {
        json!({"plural": "", "kind": ""})
    };
    let mut conflict = None;
    let fields = [
        ("plural", "PluralConflict", &resources),
        ("singular", "SingularConflict", &resources),
        ("kind", "KindConflict", &kinds),
        ("listKind", "ListKindConflict", &kinds),
    ];
    for (field, reason, used) in fields {
        let wanted = names[field].as_str().unwrap_or_default();
        if before[field] != wanted && used.contains(wanted) {
            conflict = Some((reason, format!("{wanted:?} is already in use")));
        } else {
            accepted[field] = wanted.into();
        }
    }
    let short = names["shortNames"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str);
    let mine: Vec<&str> = before["shortNames"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let clash: Vec<&str> = short
        .filter(|name| !mine.contains(name) && resources.contains(*name))
        .collect();
    if let Some(name) = clash.first() {
        conflict = Some(("ShortNamesConflict", format!("{name:?} is already in use")));
    } else {
        crate::strategy::put_field(&mut accepted, "shortNames", names.get("shortNames").cloned());
    }
    crate::strategy::put_field(&mut accepted, "categories", names.get("categories").cloned());
    next["status"]["acceptedNames"] = accepted;
    match conflict {
        None => conditions::set(
            &mut next,
            now,
            "NamesAccepted",
            "True",
            "NoConflicts",
            "no conflicts found",
        ),
        Some((reason, message)) => conditions::set(&mut next, now, "NamesAccepted", "False", reason, &message),
    }
    if !definition::is_true(&next, "Established") {
        let (reason, message) = if definition::is_true(&next, "NamesAccepted") {
            ("Installing", "the initial names have been accepted")
        } else {
            ("NotAccepted", "not all names are accepted")
        };
        conditions::set(&mut next, now, "Established", "False", reason, message);
    }
    next
}

fn write(server: &mut ApiServer, now: Timestamp, controller: &'static str, definition: Value) {
    let name = meta::name(&definition).to_owned();
    let (Some(endpoint), Some(stored)) = (
        server.endpoints.get(GROUP, "v1", RESOURCE).cloned(),
        server.store.get(&key(&name)).cloned(),
    ) else {
        return;
    };
    let mut call = Call::of_controller(controller, now, &endpoint, "", &name).at("status");
    "kube-apiserver".clone_into(&mut call.manager);
    // The chore stays due, and is tried again.
    let _ = server.replace(&call, &endpoint, &stored, definition, false, true);
}

/// Does the next step of a CRD's way to being served.
pub(super) fn establish(server: &mut ApiServer, now: Timestamp, name: &str) {
    let stored = server.store.get(&key(name)).map(|stored| Arc::clone(&stored.value));
    let next = stored.and_then(|definition| next_status(&server.store, &definition, now));
    if let Some(next) = next {
        write(server, now, NAME, next);
        enqueue_group(server, name);
    }
}

/// A CRD that frees or takes names concerns the others of its group.
fn enqueue_group(server: &mut ApiServer, name: &str) {
    let group = name.split_once('.').map_or("", |(_, group)| group).to_owned();
    let of = server.store.of(GROUP, RESOURCE, None);
    let names: Vec<String> = of.map(|(key, _)| key.name.clone()).collect();
    for other in names.iter().filter(|other| other.ends_with(&group)) {
        server
            .control
            .enqueue_definition(&server.store, &server.endpoints, other);
    }
}

/// Deletes one custom resource, or removes the cleanup finalizer of the CRD when none are left.
pub(super) fn finalize(server: &mut ApiServer, now: Timestamp, name: &str) {
    let Some(stored) = server.store.get(&key(name)).cloned() else {
        return;
    };
    let mut definition = Value::clone(&stored.value);
    let reason = definition::condition(&definition, "Terminating").map(|condition| condition["reason"].clone());
    if reason.is_none_or(|reason| reason != "InstanceDeletionInProgress") {
        let message = "CustomResource deletion is in progress";
        conditions::set(
            &mut definition,
            now,
            "Terminating",
            "True",
            "InstanceDeletionInProgress",
            message,
        );
        write(server, now, FINALIZER_NAME, definition);
        return;
    }
    let is_established = definition::is_true(&definition, "Established");
    if is_established && delete_one(server, now, &definition) {
        return;
    }
    let (group, plural) = resource(&definition);
    if is_established && server.store.of(group, plural, None).next().is_some() {
        return;
    }
    let (reason, message) = if is_established {
        ("InstanceDeletionCompleted", "removed all instances")
    } else {
        ("NeverEstablished", "resource was never established")
    };
    conditions::set(&mut definition, now, "Terminating", "False", reason, message);
    meta::without_finalizer(&mut definition, CLEANUP);
    write(server, now, FINALIZER_NAME, definition);
    enqueue_group(server, name);
}

/// Deletes the first custom resource that is not yet deleting. Returns whether there was one. One at a time, so that requests and watch
/// events of others come between.
fn delete_one(server: &mut ApiServer, now: Timestamp, definition: &Value) -> bool {
    let (group, plural) = resource(definition);
    let is_undeleted = |(_, stored): &(&ObjectKey, &Arc<Stored>)| !meta::is_deleting(&stored.value);
    let first = server.store.of(group, plural, None).find(is_undeleted);
    let Some(key) = first.map(|(key, _)| key.clone()) else {
        return false;
    };
    let Some(endpoint) = server.endpoints.of_resource(group, plural).cloned() else {
        return false;
    };
    let call = Call::of_controller(FINALIZER_NAME, now, &endpoint, &key.namespace, &key.name).unadmitted();
    // The chore stays due, and is tried again.
    let _ = server.delete_object(&call, &endpoint, &key.name, &DeleteOptions::default());
    true
}
