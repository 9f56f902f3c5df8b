//! The namespace controller: empties namespaces that are being deleted.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Control, conditions};
use crate::{
    ApiServer, Chore, ObjectKey,
    built_in::prepare::namespace_finalizers,
    endpoint::{Endpoint, Endpoints},
    handle::{Call, DeleteOptions},
    meta,
    store::Store,
};

const NAME: &str = "namespace-controller";
const FINALIZER: &str = "kubernetes";

/// What is in a namespace.
struct Contents {
    /// The objects without a deletion timestamp, by resource and name.
    undeleted: Vec<(Arc<Endpoint>, String)>,
    /// Resources with the number of their objects.
    left: Vec<(Arc<Endpoint>, usize)>,
}

fn contents(store: &Store, endpoints: &Endpoints, namespace: &str) -> Contents {
    let mut contents = Contents {
        undeleted: Vec::new(),
        left: Vec::new(),
    };
    let mut seen: Vec<(&str, &str)> = Vec::new();
    let namespaced = endpoints.iter().filter(|endpoint| endpoint.namespaced);
    for endpoint in namespaced {
        let resource = (endpoint.storage_group.as_str(), endpoint.resource.as_str());
        if seen.contains(&resource) {
            continue;
        }
        seen.push(resource);
        let mut count = 0;
        for (key, stored) in store.of(resource.0, resource.1, Some(namespace)) {
            count += 1;
            if !meta::is_deleting(&stored.value) {
                contents.undeleted.push((Arc::clone(endpoint), key.name.clone()));
            }
        }
        if count > 0 {
            contents.left.push((Arc::clone(endpoint), count));
        }
    }
    contents
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("", "namespaces", "", name)
}

impl Control {
    /// Decides anew if a namespace can be emptied further.
    pub(super) fn enqueue_namespace(&mut self, store: &Store, endpoints: &Endpoints, name: &str) {
        let namespace = store.get(&key(name)).map(|stored| &stored.value);
        let ends = namespace.is_some_and(|namespace| {
            meta::is_deleting(namespace) && namespace_finalizers(namespace).iter().any(|it| it == FINALIZER)
        });
        let is_due = ends && {
            let contents = contents(store, endpoints, name);
            !contents.undeleted.is_empty() || contents.left.is_empty()
        };
        self.set(Chore::FinalizeNamespace(name.to_owned()), is_due);
    }
}

/// Deletes one object in a namespace, or removes the finalizer of a namespace that is empty. One object at a time, so that requests and
/// watch events of others come between.
pub(super) fn finalize(server: &mut ApiServer, now: Timestamp, name: &str) {
    let contents = contents(&server.store, &server.endpoints, name);
    if !contents.undeleted.is_empty() {
        let options = DeleteOptions::with("Background");
        let count = contents.undeleted.len();
        // What admission refuses stays, and with it the namespace; the others go first.
        let deleted = contents.undeleted.into_iter().position(|(endpoint, object)| {
            let call = Call::of_controller(NAME, now, &endpoint, name, &object);
            server.delete_object(&call, &endpoint, &object, &options).is_ok()
        });
        if count == 1 || deleted.is_none() {
            report(server, now, name);
        }
        return;
    }
    if contents.left.is_empty() {
        report(server, now, name);
        remove_finalizer(server, now, name);
    }
}

/// Says in the status what is left in a namespace, as the namespace controller does while it waits.
fn report(server: &mut ApiServer, now: Timestamp, name: &str) {
    let contents = contents(&server.store, &server.endpoints, name);
    let Some(stored) = server.store.get(&key(name)).cloned() else {
        return;
    };
    let mut namespace = Value::clone(&stored.value);
    let mut set = |kind: &str, is_true: bool, reason: &str, message: &str| {
        let status = if is_true { "True" } else { "False" };
        conditions::set(&mut namespace, now, kind, status, reason, message);
    };
    set(
        "NamespaceDeletionDiscoveryFailure",
        false,
        "ResourcesDiscovered",
        "All resources successfully discovered",
    );
    set(
        "NamespaceDeletionGroupVersionParsingFailure",
        false,
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    );
    set(
        "NamespaceDeletionContentFailure",
        false,
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    );
    let left: Vec<String> = contents
        .left
        .iter()
        .map(|(endpoint, count)| {
            format!(
                "{}.{} has {count} resource instances",
                endpoint.resource, endpoint.info.group
            )
        })
        .collect();
    if left.is_empty() {
        let message = "All content successfully removed";
        set("NamespaceContentRemaining", false, "ContentRemoved", message);
    } else {
        let message = format!("Some resources are remaining: {}", left.join(", "));
        set("NamespaceContentRemaining", true, "SomeResourcesRemain", &message);
    }
    let mut finalizers: std::collections::BTreeMap<String, usize> = std::collections::BTreeMap::new();
    for (endpoint, _) in &contents.left {
        for (_, stored) in server.store.of(&endpoint.storage_group, &endpoint.resource, Some(name)) {
            for finalizer in meta::texts(&stored.value, "finalizers") {
                *finalizers.entry(finalizer.to_owned()).or_default() += 1;
            }
        }
    }
    let waiting: Vec<String> = finalizers
        .iter()
        .map(|(finalizer, count)| format!("{finalizer} in {count} resource instances"))
        .collect();
    if waiting.is_empty() {
        let message = "All content-preserving finalizers finished";
        set("NamespaceFinalizersRemaining", false, "ContentHasNoFinalizers", message);
    } else {
        let message = format!(
            "Some content in the namespace has finalizers remaining: {}",
            waiting.join(", ")
        );
        set("NamespaceFinalizersRemaining", true, "SomeFinalizersRemain", &message);
    }
    write(server, now, name, "status", namespace);
}

/// Removes the finalizer of the namespace controller from a namespace.
fn remove_finalizer(server: &mut ApiServer, now: Timestamp, name: &str) {
    let Some(stored) = server.store.get(&key(name)).cloned() else {
        return;
    };
    let mut namespace = Value::clone(&stored.value);
    let others: Vec<String> = namespace_finalizers(&namespace)
        .into_iter()
        .filter(|finalizer| finalizer != FINALIZER)
        .collect();
    namespace["spec"] = if others.is_empty() {
        json!({})
    } else {
        json!({ "finalizers": others })
    };
    write(server, now, name, "finalize", namespace);
}

fn write(server: &mut ApiServer, now: Timestamp, name: &str, subresource: &str, namespace: Value) {
    let (Some(endpoint), Some(stored)) = (
        server.endpoints.get("", "v1", "namespaces").cloned(),
        server.store.get(&key(name)).cloned(),
    ) else {
        return;
    };
    let call = Call::of_controller(NAME, now, &endpoint, name, name).at(subresource);
    // The chore stays due, and is tried again.
    let _ = server.replace(&call, &endpoint, &stored, namespace, false, true);
}
