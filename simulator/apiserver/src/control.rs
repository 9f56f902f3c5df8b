//! The controllers of the control plane: what they would do next, kept up to date with each write.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::Value;

use crate::{
    ApiServer, Chore, ObjectKey, definition,
    endpoint::Endpoints,
    meta,
    store::{PastWrite, Store},
};

mod accounts;
mod aggregation;
pub(crate) mod conditions;
mod definitions;
mod garbage;
mod namespaces;

/// What the controllers know of the store.
#[derive(Debug, Default)]
pub(crate) struct Control {
    chores: BTreeSet<Chore>,
    /// Objects that name an owner, by the UID of the owner.
    dependents: BTreeMap<String, BTreeSet<ObjectKey>>,
    /// UIDs of owners that the garbage collector saw end: its cache of absent owners.
    absent_owners: BTreeSet<String>,
}

impl Control {
    /// What the controllers know after they start on a store.
    pub(crate) fn rebuild(store: &Store, endpoints: &Endpoints) -> Self {
        let mut control = Self::default();
        for (key, stored) in store.iter() {
            control.note_owners(key, None, Some(&stored.value));
        }
        let keys: Vec<ObjectKey> = store.iter().map(|(key, _)| key.clone()).collect();
        for key in &keys {
            control.enqueue(store, endpoints, key);
        }
        control
    }

    pub(crate) fn chores(&self) -> impl Iterator<Item = &Chore> {
        self.chores.iter()
    }

    /// Keys of the objects that name this UID as their owner.
    fn dependents_of(&self, uid: &str) -> impl Iterator<Item = &ObjectKey> {
        self.dependents.get(uid).into_iter().flatten()
    }

    fn set(&mut self, chore: Chore, is_due: bool) {
        if is_due {
            self.chores.insert(chore);
        } else {
            self.chores.remove(&chore);
        }
    }

    /// Learns of a write.
    pub(crate) fn observe(&mut self, store: &Store, endpoints: &Endpoints, write: &PastWrite) {
        let before = write.before.as_ref().map(|stored| &*stored.value);
        let after = write.after.as_ref().map(|stored| &*stored.value);
        self.note_owners(&write.key, before, after);
        self.enqueue(store, endpoints, &write.key);
        let object = after.or(before);
        let Some(object) = object else {
            return;
        };
        let uid = meta::uid(object);
        if after.is_none() && self.dependents.contains_key(uid) {
            self.absent_owners.insert(uid.to_owned());
        }
        // The start of a deletion and the end of an object concern its dependents; any change concerns its owners.
        let waits = |object: &Value| meta::is_deleting(object) && meta::has_finalizer(object, meta::FOREGROUND);
        let concerns_dependents =
            before.is_some_and(waits) != after.is_some_and(waits) || before.is_none() || after.is_none();
        if concerns_dependents {
            let dependents: Vec<ObjectKey> = self.dependents_of(uid).cloned().collect();
            for dependent in dependents {
                self.enqueue_garbage(store, endpoints, &dependent);
            }
        }
        for object in [before, after].into_iter().flatten() {
            for owner in owner_keys(endpoints, &write.key, object) {
                self.enqueue_owner(store, endpoints, &owner);
            }
        }
        self.enqueue_around(store, endpoints, &write.key, before, after);
        if before.is_none() && write.key.group.is_empty() && write.key.resource == "namespaces" {
            self.enqueue_within(store, endpoints, &write.key.name);
        }
    }

    /// Decides anew about the objects of a namespace that was made: those that a namespace of this name left can be written again.
    fn enqueue_within(&mut self, store: &Store, endpoints: &Endpoints, namespace: &str) {
        let keys = store.iter().map(|(key, _)| key);
        let left: Vec<ObjectKey> = keys.filter(|key| key.namespace == namespace).cloned().collect();
        for key in &left {
            self.enqueue_garbage(store, endpoints, key);
            self.enqueue_owner(store, endpoints, key);
        }
    }

    /// Decides anew about all chores that are named after an object.
    fn enqueue(&mut self, store: &Store, endpoints: &Endpoints, key: &ObjectKey) {
        self.enqueue_garbage(store, endpoints, key);
        self.enqueue_owner(store, endpoints, key);
        match (key.group.as_str(), key.resource.as_str()) {
            ("", "namespaces") => {
                self.enqueue_namespace(store, endpoints, &key.name);
                self.enqueue_accounts(store, &key.name);
            }
            ("", "secrets") => self.enqueue_token_secret(store, key),
            ("rbac.authorization.k8s.io", "clusterroles") => self.enqueue_aggregations(store),
            (definition::GROUP, definition::RESOURCE) => self.enqueue_definition(store, endpoints, &key.name),
            _ => {}
        }
    }

    /// Decides anew about chores of objects around one that was written.
    fn enqueue_around(
        &mut self,
        store: &Store,
        endpoints: &Endpoints,
        key: &ObjectKey,
        before: Option<&Value>,
        after: Option<&Value>,
    ) {
        let is_core = key.group.is_empty();
        if is_core && (key.resource == "serviceaccounts" || key.resource == "configmaps") {
            self.enqueue_accounts(store, &key.namespace);
        }
        if is_core && key.resource == "serviceaccounts" {
            self.enqueue_token_secrets_of(store, key);
        }
        // Only creations, deletions and their starts move namespaces and CRDs on.
        let deleting = |object: Option<&Value>| object.is_some_and(meta::is_deleting);
        if before.is_some() && after.is_some() && deleting(before) == deleting(after) {
            return;
        }
        if !key.namespace.is_empty() {
            self.enqueue_namespace(store, endpoints, &key.namespace);
        }
        if !key.group.is_empty() {
            self.enqueue_definition(store, endpoints, &format!("{}.{}", key.resource, key.group));
        }
    }

    /// Learns that other kinds are served: owners may be found now, and namespaces may have other contents.
    pub(crate) fn redefined(&mut self, store: &Store, endpoints: &Endpoints) {
        let dependents: BTreeSet<ObjectKey> = self.dependents.values().flatten().cloned().collect();
        for key in &dependents {
            self.enqueue_garbage(store, endpoints, key);
        }
        for (key, _) in store.iter().filter(|(_, stored)| meta::is_deleting(&stored.value)) {
            self.enqueue_owner(store, endpoints, key);
        }
        let namespaces: Vec<String> = store
            .of("", "namespaces", None)
            .filter(|(_, stored)| meta::is_deleting(&stored.value))
            .map(|(key, _)| key.name.clone())
            .collect();
        for name in &namespaces {
            self.enqueue_namespace(store, endpoints, name);
        }
    }

    fn note_owners(&mut self, key: &ObjectKey, before: Option<&Value>, after: Option<&Value>) {
        for owner in before.map(meta::owners).unwrap_or_default() {
            let uid = owner["uid"].as_str().unwrap_or_default();
            if let Some(dependents) = self.dependents.get_mut(uid) {
                dependents.remove(key);
                if dependents.is_empty() {
                    self.dependents.remove(uid);
                }
            }
        }
        for owner in after.map(meta::owners).unwrap_or_default() {
            let uid = owner["uid"].as_str().unwrap_or_default();
            self.dependents.entry(uid.to_owned()).or_default().insert(key.clone());
        }
    }
}

/// The keys that the owner references of an object lead to, as far as their kinds are served.
fn owner_keys(endpoints: &Endpoints, key: &ObjectKey, object: &Value) -> Vec<ObjectKey> {
    let owners = meta::owners(object).iter();
    owners.filter_map(|owner| owner_key(endpoints, key, owner)).collect()
}

/// The key that an owner reference leads to.
fn owner_key(endpoints: &Endpoints, key: &ObjectKey, owner: &Value) -> Option<ObjectKey> {
    let text = |field: &str| owner[field].as_str().unwrap_or_default();
    let group = text("apiVersion").split_once('/').map_or("", |(group, _)| group);
    let endpoint = endpoints.of_kind(group, text("kind"))?;
    let namespace = if endpoint.namespaced {
        key.namespace.as_str()
    } else {
        ""
    };
    Some(ObjectKey::new(
        &endpoint.storage_group,
        &endpoint.resource,
        namespace,
        text("name"),
    ))
}

/// Does one step of a controller.
pub(crate) fn perform(server: &mut ApiServer, now: Timestamp, chore: &Chore) {
    if !server.control.chores.contains(chore) {
        return;
    }
    match chore {
        Chore::CollectGarbage(key) => garbage::collect(server, now, key),
        Chore::Orphan { owner } => garbage::orphan(server, now, owner),
        Chore::Foreground { owner } => garbage::finish_foreground(server, now, owner),
        Chore::FinalizeNamespace(name) => namespaces::finalize(server, now, name),
        Chore::FinalizeDefinition(name) => definitions::finalize(server, now, name),
        Chore::Establish(name) => definitions::establish(server, now, name),
        Chore::DefaultServiceAccount(namespace) => accounts::default_account(server, now, namespace),
        Chore::RootCa(namespace) => accounts::root_ca(server, now, namespace),
        Chore::Aggregate(name) => aggregation::aggregate(server, now, name),
        Chore::TokenSecret(key) => accounts::token_secret(server, now, key),
    }
}
