//! Counts what contracts and principals have, from the changes in the caches, so that no question about a limit looks at all objects.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use bindery_api::v1alpha2::{APIServiceExportRequest, APIServiceNamespace, BindableResourcesRequest, GroupResource};
use bindery_runtime::cache::{Change, ObjectKey, Subscription};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Resource, ResourceExt as _};
use parking_lot::Mutex;

use super::{
    LimitName, Limits,
    admission::{Admission, AdmissionRank, rank},
};
use crate::{contract, request, state::Caches};

/// What each contract and each principal has. Clones share the counts.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    tables: Arc<Mutex<Tables>>,
    _subscriptions: Arc<Vec<Subscription>>,
}

#[derive(Debug, Default)]
struct Tables {
    /// Requests, by the username of their author.
    requests: HashMap<String, Admission>,
    /// Export requests, by contract.
    export_requests: HashMap<String, Admission>,
    /// Mapped namespaces, by contract.
    namespaces: HashMap<String, MappedNamespaces>,
    /// Number of contracts, by the username of each owner.
    contracts: HashMap<String, usize>,
    /// Retained copies, by contract and resource. Only the leader counts them.
    retained: HashMap<String, BTreeMap<GroupResource, usize>>,
}

/// The namespaces of one contract: APIServiceNamespaces, and what is there for them on the provider.
#[derive(Debug, Default)]
pub(crate) struct MappedNamespaces {
    /// APIServiceNamespaces that have no provider namespace yet.
    waiting: Admission,
    /// Names of all APIServiceNamespaces.
    mapped: HashSet<Arc<str>>,
    /// Names of those that have a provider namespace.
    assigned: BTreeSet<Arc<str>>,
    /// The namespaces on the provider, each with the name of the APIServiceNamespace that it was made for.
    made: HashMap<Arc<str>, Option<Arc<str>>>,
    /// The namespaces on the provider by that name.
    made_for: HashMap<Arc<str>, BTreeSet<Arc<str>>>,
    /// Number of namespaces on the provider that no APIServiceNamespace is for.
    kept: usize,
}

// === impl Counts ===

impl Counts {
    /// Follows the caches. Subscribes before every other subscriber, so that those find the counts up to date.
    pub(crate) fn start(caches: &Caches, server_namespace: &str) -> Self {
        let tables: Arc<Mutex<Tables>> = Arc::default();
        let mut subscriptions = Vec::new();
        let (shared, home) = (Arc::clone(&tables), server_namespace.to_owned());
        subscriptions.push(caches.requests.subscribe(move |change| {
            let author = |request: &BindableResourcesRequest| request::principal(request, &home).username;
            note(&mut shared.lock().requests, change, author);
        }));
        let shared = Arc::clone(&tables);
        subscriptions.push(caches.export_requests.subscribe(move |change| {
            let contract = |request: &APIServiceExportRequest| request.namespace().unwrap_or_default();
            note(&mut shared.lock().export_requests, change, contract);
        }));
        let shared = Arc::clone(&tables);
        subscriptions.push(caches.service_namespaces.subscribe(move |change| {
            let mut tables = shared.lock();
            let contract = tables.namespaces.entry(change.key.namespace.to_string()).or_default();
            contract.note_mapped(change.key, change.old.map(AsRef::as_ref), change.new.map(AsRef::as_ref));
            tables.forget_empty(&change.key.namespace);
        }));
        let shared = Arc::clone(&tables);
        subscriptions.push(caches.namespaces.subscribe(move |change| {
            shared
                .lock()
                .note_namespace(change.old.map(AsRef::as_ref), change.new.map(AsRef::as_ref));
        }));
        Self {
            tables,
            _subscriptions: Arc::new(subscriptions),
        }
    }

    /// Number of contracts that a user owns.
    pub fn contracts(&self, username: &str) -> usize {
        self.tables.lock().contracts.get(username).copied().unwrap_or_default()
    }

    /// Number of requests of a user.
    pub fn requests(&self, username: &str) -> usize {
        self.tables.lock().requests.get(username).map_or(0, Admission::len)
    }

    /// Whether a request is among the first `limit` of its author.
    pub fn admits_request(&self, request: &BindableResourcesRequest, author: &str, limit: u32) -> bool {
        let mut tables = self.tables.lock();
        admits(&mut tables.requests, author, request, limit)
    }

    /// Number of export requests of a contract.
    pub fn export_requests(&self, contract: &str) -> usize {
        self.tables
            .lock()
            .export_requests
            .get(contract)
            .map_or(0, Admission::len)
    }

    /// Whether an export request is among the first `limit` of its contract.
    pub fn admits_export_request(&self, request: &APIServiceExportRequest, contract: &str, limit: u32) -> bool {
        let mut tables = self.tables.lock();
        admits(&mut tables.export_requests, contract, request, limit)
    }

    /// Number of namespaces that count against the limit of a contract.
    pub fn namespaces(&self, contract: &str) -> usize {
        self.tables
            .lock()
            .namespaces
            .get(contract)
            .map_or(0, MappedNamespaces::len)
    }

    /// Whether an APIServiceNamespace is within the limit of its contract. One with a provider namespace always is, also if the limit was
    /// lowered since; the others are admitted by age, and those of one age by name.
    pub fn admits_namespace(&self, object: &APIServiceNamespace, contract: &str, limit: u32) -> bool {
        let mut tables = self.tables.lock();
        let contract = tables.namespaces.get_mut(contract);
        contract.is_none_or(|contract| contract.admits(object, limit))
    }

    /// Names of the APIServiceNamespaces of a contract that are within its limit and have no provider namespace yet.
    pub fn admitted_namespaces(&self, contract: &str, limit: u32) -> Vec<Arc<str>> {
        let mut tables = self.tables.lock();
        let contract = tables.namespaces.get_mut(contract);
        contract.map_or_else(Vec::new, |contract| contract.admitted(limit))
    }

    /// Names of the APIServiceNamespaces of a contract that have a provider namespace, or are within its limit and get one.
    pub(crate) fn served_namespaces(&self, contract: &str, limit: u32) -> BTreeSet<Arc<str>> {
        let mut tables = self.tables.lock();
        let contract = tables.namespaces.get_mut(contract);
        contract.map_or_else(BTreeSet::new, |contract| contract.served(limit))
    }

    /// Notes how many copies of a resource are retained for each contract that has some.
    pub fn note_retained(&self, resource: &GroupResource, counts: &HashMap<String, usize>) {
        let mut tables = self.tables.lock();
        for of_contract in tables.retained.values_mut() {
            of_contract.remove(resource);
        }
        for (contract, count) in counts {
            let of_contract = tables.retained.entry(contract.clone()).or_default();
            of_contract.insert(resource.clone(), *count);
        }
        tables.retained.retain(|_, of_contract| !of_contract.is_empty());
    }

    /// Number of copies of other resources that are retained for a contract.
    pub fn retained_of_others(&self, contract: &str, resource: &GroupResource) -> usize {
        let tables = self.tables.lock();
        let counts = tables.retained.get(contract).into_iter().flatten();
        counts
            .filter(|(other, _)| *other != resource)
            .map(|(_, count)| *count)
            .sum()
    }

    /// What a contract uses of a limit; `None` where this replica does not count it.
    pub fn of_contract(&self, caches: &Caches, contract: &str, name: LimitName) -> Option<usize> {
        match name {
            LimitName::ExportRequests => Some(self.export_requests(contract)),
            LimitName::Exports => Some(caches.exports.list_in(contract).len()),
            LimitName::Namespaces => Some(self.namespaces(contract)),
            LimitName::RetainedObjects => {
                let tables = self.tables.lock();
                tables.retained.get(contract).map(|counts| counts.values().sum())
            }
            LimitName::Contracts | LimitName::Requests | LimitName::Streams | LimitName::CallsPerSecond => None,
        }
    }

    /// What a principal uses of a limit; `None` where this replica does not count it.
    pub fn of_principal(&self, username: &str, name: LimitName) -> Option<usize> {
        match name {
            LimitName::Contracts => Some(self.contracts(username)),
            LimitName::Requests => Some(self.requests(username)),
            _ => None,
        }
    }
}

/// Notes a change of an object in the table of its tenants.
fn note<K: Resource>(table: &mut HashMap<String, Admission>, change: &Change<'_, K>, tenant: impl Fn(&K) -> String) {
    let place = |object: &Arc<K>| (tenant(object), rank(&**object));
    let (old, new) = (change.old.map(place), change.new.map(place));
    if old == new {
        return;
    }
    if let Some((tenant, rank)) = old
        && let Some(admission) = table.get_mut(&tenant)
    {
        admission.remove(&rank);
        if admission.is_empty() {
            table.remove(&tenant);
        }
    }
    if let Some((tenant, rank)) = new {
        table.entry(tenant).or_default().insert(rank);
    }
}

fn admits<K: Resource>(table: &mut HashMap<String, Admission>, tenant: &str, object: &K, limit: u32) -> bool {
    // An object that the table does not show yet is new.
    let limit = limit as usize;
    match table.get_mut(tenant) {
        Some(admission) => admission.admits(&rank(object), limit),
        None => limit > 0,
    }
}

// === impl Tables ===

impl Tables {
    fn note_namespace(&mut self, old: Option<&Namespace>, new: Option<&Namespace>) {
        let owners = |namespace: Option<&Namespace>| -> BTreeSet<String> {
            let contract = namespace.filter(|namespace| contract::is_contract(namespace));
            let owners = contract.map(contract::owners).unwrap_or_default();
            owners.into_iter().map(|owner| owner.username).collect()
        };
        let (before, after) = (owners(old), owners(new));
        for owner in before.difference(&after) {
            if let Some(count) = self.contracts.get_mut(owner) {
                *count -= 1;
                if *count == 0 {
                    self.contracts.remove(owner);
                }
            }
        }
        for owner in after.difference(&before) {
            *self.contracts.entry(owner.clone()).or_default() += 1;
        }
        let made = |namespace: Option<&Namespace>| {
            let namespace = namespace.filter(|namespace| !contract::is_contract(namespace))?;
            let contract = contract::of(namespace)?.to_owned();
            let made_for = contract::made_for(namespace).map(|key| key.name);
            Some((contract, Arc::<str>::from(namespace.name_any()), made_for))
        };
        let (before, after) = (made(old), made(new));
        if before == after {
            return;
        }
        if let Some((contract, name, _)) = before
            && let Some(of_contract) = self.namespaces.get_mut(&contract)
        {
            of_contract.remove_made(&name);
            self.forget_empty(&contract);
        }
        if let Some((contract, name, made_for)) = after {
            self.namespaces.entry(contract).or_default().add_made(name, made_for);
        }
    }

    fn forget_empty(&mut self, contract: &str) {
        let is_empty = self
            .namespaces
            .get(contract)
            .is_some_and(|of_contract| of_contract.mapped.is_empty() && of_contract.made.is_empty());
        if is_empty {
            self.namespaces.remove(contract);
        }
    }
}

// === impl MappedNamespaces ===

impl MappedNamespaces {
    pub(crate) fn note_mapped(
        &mut self,
        key: &ObjectKey,
        old: Option<&APIServiceNamespace>,
        new: Option<&APIServiceNamespace>,
    ) {
        let name = &key.name;
        if let Some(old) = old {
            self.assigned.remove(name);
            self.waiting.remove(&rank(old));
        }
        if let Some(new) = new {
            if is_assigned(new) {
                self.assigned.insert(Arc::clone(name));
            } else {
                self.waiting.insert(rank(new));
            }
        }
        let made = self.made_for.get(name).map_or(0, BTreeSet::len);
        if new.is_some() {
            if self.mapped.insert(Arc::clone(name)) {
                self.kept -= made;
            }
        } else if self.mapped.remove(name) {
            self.kept += made;
        }
    }

    pub(crate) fn add_made(&mut self, name: Arc<str>, made_for: Option<Arc<str>>) {
        self.remove_made(&name);
        let is_mapped = made_for.as_ref().is_some_and(|mapped| self.mapped.contains(mapped));
        if !is_mapped {
            self.kept += 1;
        }
        if let Some(mapped) = &made_for {
            self.made_for
                .entry(Arc::clone(mapped))
                .or_default()
                .insert(Arc::clone(&name));
        }
        self.made.insert(name, made_for);
    }

    pub(crate) fn remove_made(&mut self, name: &Arc<str>) {
        let Some(made_for) = self.made.remove(name) else {
            return;
        };
        let is_mapped = made_for.as_ref().is_some_and(|mapped| self.mapped.contains(mapped));
        if !is_mapped {
            self.kept -= 1;
        }
        if let Some(mapped) = made_for
            && let Some(names) = self.made_for.get_mut(&mapped)
        {
            names.remove(name);
            if names.is_empty() {
                self.made_for.remove(&mapped);
            }
        }
    }

    /// Number of namespaces that count against the limit: the mapped ones, and those that are kept for the objects in them. Otherwise a
    /// consumer could get any number by leaving an object in each.
    fn len(&self) -> usize {
        self.mapped.len() + self.kept
    }

    /// How many APIServiceNamespaces may get a provider namespace.
    fn room(&self, limit: u32) -> usize {
        (limit as usize).saturating_sub(self.kept + self.assigned.len())
    }

    pub(crate) fn admits(&mut self, object: &APIServiceNamespace, limit: u32) -> bool {
        let room = self.room(limit);
        // The object may have got its provider namespace since it was seen.
        let name = object.metadata.name.as_deref();
        let got_one = name.is_some_and(|name| self.assigned.contains(name));
        got_one || is_assigned(object) || self.waiting.admits(&rank(object), room)
    }

    pub(crate) fn admitted(&mut self, limit: u32) -> Vec<Arc<str>> {
        let room = self.room(limit);
        let admitted = self.waiting.admitted(room);
        admitted.map(|(_, _, name): &AdmissionRank| Arc::clone(name)).collect()
    }

    fn served(&mut self, limit: u32) -> BTreeSet<Arc<str>> {
        let admitted = self.admitted(limit);
        self.assigned.iter().cloned().chain(admitted).collect()
    }
}

fn is_assigned(object: &APIServiceNamespace) -> bool {
    let status = object.status.as_ref();
    status.is_some_and(|status| status.namespace.is_some())
}

impl Limits {
    /// The limits of the contract of that name, by the caches; these where it is not known.
    pub(crate) fn of(&self, caches: &Caches, contract: &str) -> Self {
        let namespace = caches.namespaces.get("", contract);
        namespace.map_or(*self, |namespace| self.of_contract(&namespace))
    }
}

#[cfg(test)]
mod tests;
