//! The garbage collector: background, foreground and orphaning deletion.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::{Control, owner_key};
use crate::{
    ApiServer, Chore, ObjectKey,
    endpoint::{Endpoint, Endpoints},
    handle::{Call, DeleteOptions},
    meta,
    store::{Store, Stored},
};

const NAME: &str = "generic-garbage-collector";

/// How the owners of an object are.
#[derive(Debug, Default)]
struct Owners {
    solid: usize,
    dangling: Vec<String>,
    /// Owners that wait for their dependents to be deleted.
    waiting: Vec<String>,
    /// The garbage collector cannot tell, because a kind is not served.
    unknown: bool,
}

/// What the garbage collector does with an object.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Keep,
    /// Remove the references to these UIDs.
    Unlink(Vec<String>),
    Delete(&'static str),
}

impl Control {
    fn owners(&self, store: &Store, endpoints: &Endpoints, key: &ObjectKey, object: &Value) -> Owners {
        let mut owners = Owners::default();
        for reference in meta::owners(object) {
            let uid = reference["uid"].as_str().unwrap_or_default();
            // The cache of absent owners knows a namespaced owner by its namespace, and so not for a dependent without one.
            if key.namespace.is_empty() && is_namespaced(endpoints, reference) {
                owners.unknown = true;
                continue;
            }
            if self.absent_owners.contains(uid) && !Self::lives(store, endpoints, key, reference) {
                owners.dangling.push(uid.to_owned());
                continue;
            }
            let Some(owner_key) = owner_key(endpoints, key, reference) else {
                owners.unknown = true;
                continue;
            };
            match store.get(&owner_key).map(|stored| &stored.value) {
                Some(owner) if meta::uid(owner) == uid => {
                    if meta::is_deleting(owner) && meta::has_finalizer(owner, meta::FOREGROUND) {
                        owners.waiting.push(uid.to_owned());
                    } else {
                        owners.solid += 1;
                    }
                }
                _ => owners.dangling.push(uid.to_owned()),
            }
        }
        owners
    }

    /// If the owner of a reference exists. One whose end was seen may be back after a restore.
    fn lives(store: &Store, endpoints: &Endpoints, key: &ObjectKey, reference: &Value) -> bool {
        let owner = owner_key(endpoints, key, reference).and_then(|key| store.get(&key));
        owner.is_some_and(|owner| meta::uid(&owner.value) == reference["uid"].as_str().unwrap_or_default())
    }

    fn verdict(&self, store: &Store, endpoints: &Endpoints, key: &ObjectKey) -> Verdict {
        let Some(stored) = store.get(key) else {
            return Verdict::Keep;
        };
        let object = &stored.value;
        if meta::owners(object).is_empty() || meta::is_deleting(object) {
            return Verdict::Keep;
        }
        let owners = self.owners(store, endpoints, key, object);
        if owners.unknown {
            return Verdict::Keep;
        }
        if owners.solid > 0 {
            let gone = [owners.dangling, owners.waiting].concat();
            return if gone.is_empty() {
                Verdict::Keep
            } else {
                Verdict::Unlink(gone)
            };
        }
        let has_dependents = self.dependents_of(meta::uid(object)).next().is_some();
        Verdict::Delete(if !owners.waiting.is_empty() && has_dependents {
            "Foreground"
        } else if meta::has_finalizer(object, meta::ORPHAN) {
            "Orphan"
        } else if meta::has_finalizer(object, meta::FOREGROUND) {
            "Foreground"
        } else {
            "Background"
        })
    }

    /// Decides anew if an object is garbage.
    pub(super) fn enqueue_garbage(&mut self, store: &Store, endpoints: &Endpoints, key: &ObjectKey) {
        let has_owners = store
            .get(key)
            .is_some_and(|stored| !meta::owners(&stored.value).is_empty());
        // An object whose kind is not served cannot be written. It is decided about anew when the kind is served again.
        let is_due = has_owners && is_served(endpoints, key) && self.verdict(store, endpoints, key) != Verdict::Keep;
        self.set(Chore::CollectGarbage(key.clone()), is_due);
    }

    /// Decides anew if a deleting owner waits for the garbage collector.
    pub(super) fn enqueue_owner(&mut self, store: &Store, endpoints: &Endpoints, key: &ObjectKey) {
        let owner = store.get(key).filter(|_| is_served(endpoints, key));
        let owner = owner.map(|stored| &stored.value);
        let owner = owner.filter(|owner| meta::is_deleting(owner));
        let waits = |finalizer: &str| owner.is_some_and(|owner| meta::has_finalizer(owner, finalizer));
        let is_free = |owner: &Arc<Value>| !self.is_blocked(store, meta::uid(owner));
        let foreground = waits(meta::FOREGROUND) && owner.is_some_and(is_free);
        self.set(Chore::Foreground { owner: key.clone() }, foreground);
        self.set(Chore::Orphan { owner: key.clone() }, waits(meta::ORPHAN));
    }

    /// If a dependent blocks the deletion of its owner.
    fn is_blocked(&self, store: &Store, uid: &str) -> bool {
        self.dependents_of(uid).any(|key| {
            let dependent = store.get(key).map(|stored| &stored.value);
            let owners = dependent.map(|dependent| meta::owners(dependent)).unwrap_or_default();
            owners
                .iter()
                .any(|owner| owner["uid"] == uid && owner["blockOwnerDeletion"] == true)
        })
    }
}

fn is_served(endpoints: &Endpoints, key: &ObjectKey) -> bool {
    endpoints.of_resource(&key.group, &key.resource).is_some()
}

fn is_namespaced(endpoints: &Endpoints, reference: &Value) -> bool {
    let text = |field: &str| reference[field].as_str().unwrap_or_default();
    let group = text("apiVersion").split_once('/').map_or("", |(group, _)| group);
    endpoints
        .of_kind(group, text("kind"))
        .is_some_and(|endpoint| endpoint.namespaced)
}

/// The endpoint and the stored object of a key.
fn find(server: &ApiServer, key: &ObjectKey) -> Option<(Arc<Endpoint>, Arc<Stored>)> {
    let endpoint = server.endpoints.of_resource(&key.group, &key.resource)?;
    Some((Arc::clone(endpoint), Arc::clone(server.store.get(key)?)))
}

fn call(now: Timestamp, endpoint: &Endpoint, key: &ObjectKey) -> Call {
    Call::of_controller(NAME, now, endpoint, &key.namespace, &key.name)
}

/// Writes a changed object for a chore. A refusal, such as in a namespace that is gone, ends the chore, which is decided about anew when
/// the object is written or its namespace is made.
fn write(server: &mut ApiServer, now: Timestamp, chore: Chore, key: &ObjectKey, change: impl FnOnce(&mut Value)) {
    let Some((endpoint, stored)) = find(server, key) else {
        server.control.set(chore, false);
        return;
    };
    let mut object = Value::clone(&crate::present::value(&stored, &endpoint));
    change(&mut object);
    let call = call(now, &endpoint, key);
    if server.replace(&call, &endpoint, &stored, object, false, true).is_err() {
        server.control.set(chore, false);
    }
}

fn without_owners(object: &mut Value, uids: &[String]) {
    let owners = meta::owners(object).iter();
    let is_other = |owner: &&Value| !uids.iter().any(|uid| owner["uid"] == uid.as_str());
    let others: Vec<Value> = owners.filter(is_other).cloned().collect();
    if others.is_empty() {
        meta::remove(object, "ownerReferences");
    } else {
        meta::set(object, "ownerReferences", others.into());
    }
}

/// Deletes an object, or unlinks it from owners that are gone.
pub(super) fn collect(server: &mut ApiServer, now: Timestamp, key: &ObjectKey) {
    match server.control.verdict(&server.store, &server.endpoints, key) {
        Verdict::Keep => {
            server.control.enqueue_garbage(&server.store, &server.endpoints, key);
        }
        Verdict::Unlink(uids) => {
            let chore = Chore::CollectGarbage(key.clone());
            write(server, now, chore, key, |object| without_owners(object, &uids));
        }
        Verdict::Delete(policy) => {
            let Some((endpoint, stored)) = find(server, key) else {
                server.control.enqueue_garbage(&server.store, &server.endpoints, key);
                return;
            };
            let options = DeleteOptions {
                uid: Some(meta::uid(&stored.value).to_owned()),
                resource_version: Some(meta::text(&stored.value, "resourceVersion").to_owned()),
                ..DeleteOptions::with(policy)
            };
            let call = call(now, &endpoint, key);
            if server.delete_object(&call, &endpoint, &key.name, &options).is_err() {
                server.control.set(Chore::CollectGarbage(key.clone()), false);
            }
        }
    }
}

/// Unlinks one dependent from an owner that leaves its dependents, or ends the wait of the owner.
pub(super) fn orphan(server: &mut ApiServer, now: Timestamp, owner: &ObjectKey) {
    let uid = server
        .store
        .get(owner)
        .map(|stored| meta::uid(&stored.value).to_owned());
    let Some(uid) = uid else {
        return;
    };
    let next = server.control.dependents_of(&uid).next().cloned();
    let chore = Chore::Orphan { owner: owner.clone() };
    match next {
        Some(dependent) => write(server, now, chore, &dependent, |object| without_owners(object, &[uid])),
        None => write(server, now, chore, owner, |object| {
            meta::without_finalizer(object, meta::ORPHAN);
        }),
    }
}

/// Ends the wait of an owner whose blocking dependents are gone.
pub(super) fn finish_foreground(server: &mut ApiServer, now: Timestamp, owner: &ObjectKey) {
    let chore = Chore::Foreground { owner: owner.clone() };
    write(server, now, chore, owner, |object| {
        meta::without_finalizer(object, meta::FOREGROUND);
    });
}
