//! The index of references: which objects bound objects refer to.
//!
//! The engine of a bound resource shows every object that it sees to its `ReferenceIndexer`. The indexer notes what the
//! object refers to, by the reference paths of the claims, and calls the listeners of claims whose objects are now referred
//! to, or no longer.

mod indexer;
mod namespaces;

use std::{
    collections::{HashMap, HashSet, hash_map::Entry},
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bindery_api::{
    claims::{ReferencePaths, Referenced, ReferencedObject},
    placement::ClaimedPlacement,
    v1alpha2::GroupResource,
};
use bindery_runtime::cache::ObjectKey;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::{index::give_back, model::object::Object};

pub(crate) use indexer::ReferenceIndexer;
use namespaces::BoundNamespaces;

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// The references of one session. Clones share one index.
#[derive(Clone, Default)]
pub struct References {
    state: Arc<Mutex<State>>,
}

/// A claimed resource and the provider namespaces of its objects. All bindings of a session that claim it alike share one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ClaimKey {
    pub resource: GroupResource,
    pub placement: ClaimedPlacement,
}

/// One of the two sets of reference rules of a claimed resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Subscriber {
    pub claim: ClaimKey,
    /// The rules of claims that are not synced at present, and whose copies are kept as they are.
    pub kept: bool,
}

/// Where the objects of one bound resource refer to claimed objects.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ReferenceRule {
    /// The bound resource.
    pub from: GroupResource,
    /// The versions of the bound resource that the paths are for; empty for all versions.
    pub versions: Vec<String>,
    pub paths: ReferencePaths,
    /// The consumer namespace that a cluster-scoped object means by a reference without a namespace; every namespace if there
    /// is none.
    pub cluster_scoped_namespace: Option<Arc<str>>,
}

/// What a listener is called with.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ReferenceChange {
    /// These objects are now referred to, or no longer.
    Objects(Vec<ReferencedObject>),
    /// The namespace got its first bound object of a resource, or lost the last.
    Namespace(Arc<str>),
    /// The references of any object may have changed.
    All,
}

pub(crate) type ReferenceListener = Arc<dyn Fn(&ReferenceChange) + Send + Sync>;
/// Calls of listeners that are due once the lock of the index is released.
type DueCalls = Vec<(ReferenceListener, ReferenceChange)>;

#[derive(Default)]
struct State {
    rules: HashMap<Subscriber, Vec<ReferenceRule>>,
    listeners: HashMap<Subscriber, ReferenceListener>,
    referrers: HashMap<GroupResource, Referrers>,
    /// The number of references to each object.
    counts: HashMap<Arc<Subscriber>, HashMap<ReferencedObject, u32>>,
}

/// The objects of one bound resource, and what each refers to.
struct Referrers {
    /// Tells one indexer of the resource from a later one.
    indexer: u64,
    version: Arc<str>,
    /// The rules for this resource and version.
    rules: Arc<[(Arc<Subscriber>, ReferenceRule)]>,
    /// All objects were read by all rules.
    complete: bool,
    /// The number of times that all objects had to be read again.
    round: watch::Sender<u64>,
    /// What each object refers to. An object without references has no entry.
    objects: HashMap<ObjectKey, Vec<(Arc<Subscriber>, ReferencedObject)>>,
    /// The objects that were deleted and whose copies are retained: what they refer to stays.
    retained: HashMap<ObjectKey, RetainedReferrer>,
    listing: Option<Listing>,
    /// The consumer namespaces that have objects of the resource.
    namespaces: BoundNamespaces,
}

/// What is known of the name of an object that was deleted and whose copy is retained.
#[derive(Default)]
struct RetainedReferrer {
    /// The copy, once it was seen.
    copy: Option<Arc<Object>>,
    /// The object that has the name now. What it refers to counts once the copy is not retained any more.
    object: Option<Arc<Object>>,
}

/// A list that is under way: the round in which it began, and its objects that have references.
struct Listing {
    round: u64,
    keys: HashSet<ObjectKey>,
}

// === impl References ===

impl fmt::Debug for References {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        f.debug_struct("References")
            .field("referrers", &state.referrers.len())
            .field("claims", &state.rules.len())
            .finish_non_exhaustive()
    }
}

impl References {
    /// Makes the indexer of a bound resource that is watched in this version from now on. It replaces an earlier one.
    pub(crate) fn indexer(&self, resource: GroupResource, version: impl Into<Arc<str>>) -> ReferenceIndexer {
        let referrers = Referrers {
            indexer: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            version: version.into(),
            rules: Arc::new([]),
            complete: false,
            round: watch::Sender::new(0),
            objects: HashMap::new(),
            retained: HashMap::new(),
            listing: None,
            namespaces: BoundNamespaces::default(),
        };
        let id = referrers.indexer;
        let mut calls = DueCalls::new();
        let mut state = self.state.lock();
        state.forget(&resource, &mut calls);
        state.referrers.insert(resource.clone(), referrers);
        state.select_rules(&resource);
        drop(state);
        call(calls);
        ReferenceIndexer {
            references: self.clone(),
            resource,
            id,
        }
    }

    /// Replaces the rules of a subscriber. One that ends has none.
    pub(crate) fn set_rules(&self, subscriber: &Subscriber, rules: Vec<ReferenceRule>) {
        let mut state = self.state.lock();
        let before = state.rules.remove(subscriber).unwrap_or_default();
        if before == rules {
            if !rules.is_empty() {
                state.rules.insert(subscriber.clone(), rules);
            }
            return;
        }
        let of = |rules: &[ReferenceRule], resource: &GroupResource| {
            let these = rules.iter().filter(|rule| rule.from == *resource);
            these.cloned().collect::<Vec<_>>()
        };
        let concerned: HashSet<_> = before.iter().chain(&rules).map(|rule| rule.from.clone()).collect();
        for resource in &concerned {
            let now = of(&rules, resource);
            if of(&before, resource) != now {
                state.drop_references(resource, subscriber, !now.is_empty());
            }
        }
        if !rules.is_empty() {
            state.rules.insert(subscriber.clone(), rules);
        }
        for resource in &concerned {
            state.select_rules(resource);
        }
        let calls = state.due_call(subscriber, ReferenceChange::All).into_iter().collect();
        drop(state);
        call(calls);
    }

    /// Registers the callback that runs when the references of a subscriber change, in place of an earlier one; `None` removes
    /// it.
    pub(crate) fn listen(&self, subscriber: &Subscriber, listener: Option<ReferenceListener>) {
        let mut state = self.state.lock();
        match listener {
            Some(listener) => drop(state.listeners.insert(subscriber.clone(), listener)),
            None => drop(state.listeners.remove(subscriber)),
        }
    }

    /// Tells whether bound objects refer to an object, by its key on the consumer.
    pub(crate) fn referenced(&self, subscriber: &Subscriber, key: &ObjectKey) -> Referenced {
        let state = self.state.lock();
        let is_known = state.counts.get(subscriber).is_some_and(|counts| {
            let named = |namespace| ReferencedObject {
                namespace,
                name: Arc::clone(&key.name),
            };
            counts.contains_key(&named(Some(Arc::clone(&key.namespace)))) || counts.contains_key(&named(None))
        });
        if is_known {
            return Referenced::Yes;
        }
        let mut rules = state.rules.get(subscriber).into_iter().flatten();
        if rules.all(|rule| state.complaint(rule).is_none()) {
            Referenced::No
        } else {
            Referenced::Unknown
        }
    }

    /// Tells whether a consumer namespace has an object of one of these bound resources.
    pub(crate) fn has_bound(&self, resources: &[GroupResource], namespace: &str) -> Referenced {
        let state = self.state.lock();
        let mut all_known = true;
        for resource in resources {
            match state.referrers.get(resource) {
                Some(referrers) if referrers.namespaces.has(namespace) => return Referenced::Yes,
                Some(referrers) => all_known &= referrers.namespaces.is_complete(),
                None => all_known = false,
            }
        }
        if all_known { Referenced::No } else { Referenced::Unknown }
    }

    /// Says why the references of a subscriber are not all known; `None` if they are.
    pub(crate) fn complaint(&self, subscriber: &Subscriber) -> Option<String> {
        let state = self.state.lock();
        let rules = state.rules.get(subscriber)?;
        rules.iter().find_map(|rule| state.complaint(rule))
    }
}

fn call(calls: DueCalls) {
    for (listener, change) in calls {
        listener(&change);
    }
}

// === impl State ===

impl State {
    fn complaint(&self, rule: &ReferenceRule) -> Option<String> {
        let from = &rule.from;
        let Some(referrers) = self.referrers.get(from) else {
            return Some(format!(
                "objects are claimed to which {from} refer, and no binding syncs those"
            ));
        };
        if !rule.is_for(&referrers.version) {
            return Some(format!(
                "{from} refer to claimed objects in version {}, and are synced in version {}",
                rule.versions.join(" or "),
                referrers.version
            ));
        }
        (!referrers.complete).then(|| format!("{from} refer to claimed objects, and are not all known yet"))
    }

    fn due_call(
        &self,
        subscriber: &Subscriber,
        change: ReferenceChange,
    ) -> Option<(ReferenceListener, ReferenceChange)> {
        let listener = self.listeners.get(subscriber)?;
        Some((Arc::clone(listener), change))
    }

    /// Drops the references that a subscriber's former rules found in a resource. If it `has_rules` still, all objects have to
    /// be read again.
    fn drop_references(&mut self, resource: &GroupResource, subscriber: &Subscriber, has_rules: bool) {
        let Some(referrers) = self.referrers.get_mut(resource) else {
            return;
        };
        for referenced in referrers.objects.values_mut() {
            referenced.retain(|(of, object)| {
                if **of == *subscriber {
                    count_down(&mut self.counts, of, object);
                }
                **of != *subscriber
            });
        }
        referrers.objects.retain(|_, referenced| !referenced.is_empty());
        if has_rules {
            referrers.complete = false;
            referrers.round.send_modify(|round| *round += 1);
        }
    }

    /// Forgets a resource that is not watched any more.
    fn forget(&mut self, resource: &GroupResource, calls: &mut DueCalls) {
        let Some(referrers) = self.referrers.remove(resource) else {
            return;
        };
        for (subscriber, object) in referrers.objects.into_values().flatten() {
            count_down(&mut self.counts, &subscriber, &object);
        }
        self.call_all(resource, calls);
        self.call_everyone(&ReferenceChange::All, calls);
    }

    /// Tells all listeners that the namespace of this object has its first object, or lost its last one.
    fn call_for_namespace(&self, key: &ObjectKey, calls: &mut DueCalls) {
        self.call_everyone(&ReferenceChange::Namespace(Arc::clone(&key.namespace)), calls);
    }

    fn call_everyone(&self, change: &ReferenceChange, calls: &mut DueCalls) {
        calls.extend(
            self.listeners
                .values()
                .map(|listener| (Arc::clone(listener), change.clone())),
        );
    }

    fn call_all(&self, resource: &GroupResource, calls: &mut DueCalls) {
        for (subscriber, rules) in &self.rules {
            if rules.iter().any(|rule| rule.from == *resource) {
                calls.extend(self.due_call(subscriber, ReferenceChange::All));
            }
        }
    }

    /// Notes what an object refers to now.
    fn set(
        &mut self,
        resource: &GroupResource,
        key: ObjectKey,
        referenced: &[(Arc<Subscriber>, ReferencedObject)],
        calls: &mut DueCalls,
    ) {
        let Some(referrers) = self.referrers.get_mut(resource) else {
            return;
        };
        let before = match referrers.objects.entry(key) {
            Entry::Occupied(entry) if referenced.is_empty() => {
                let before = entry.remove();
                give_back(&mut referrers.objects);
                before
            }
            Entry::Occupied(mut entry) => std::mem::replace(entry.get_mut(), referenced.to_vec()),
            Entry::Vacant(_) if referenced.is_empty() => return,
            Entry::Vacant(entry) => {
                entry.insert(referenced.to_vec());
                Vec::new()
            }
        };
        if before == referenced {
            return;
        }
        let mut changed: HashMap<Arc<Subscriber>, Vec<ReferencedObject>> = HashMap::new();
        // New references are counted first, so that the count of one that stays never reaches zero.
        for (subscriber, object) in referenced {
            let counts = self.counts.entry(Arc::clone(subscriber)).or_default();
            let count = counts.entry(object.clone()).or_default();
            *count += 1;
            if *count == 1 {
                changed.entry(Arc::clone(subscriber)).or_default().push(object.clone());
            }
        }
        for (subscriber, object) in &before {
            if count_down(&mut self.counts, subscriber, object) {
                changed.entry(Arc::clone(subscriber)).or_default().push(object.clone());
            }
        }
        for (subscriber, objects) in changed {
            calls.extend(self.due_call(&subscriber, ReferenceChange::Objects(objects)));
        }
    }

    /// Selects the rules by which the objects of a resource are read.
    fn select_rules(&mut self, resource: &GroupResource) {
        let Some(referrers) = self.referrers.get_mut(resource) else {
            return;
        };
        let all = self.rules.iter();
        let all = all.flat_map(|(subscriber, rules)| rules.iter().map(move |rule| (subscriber, rule)));
        let these = all.filter(|(_, rule)| rule.from == *resource && rule.is_for(&referrers.version));
        referrers.rules = these
            .map(|(subscriber, rule)| (Arc::new(subscriber.clone()), rule.clone()))
            .collect();
    }
}

/// Counts one reference less; true if that was the last one.
fn count_down(
    counts: &mut HashMap<Arc<Subscriber>, HashMap<ReferencedObject, u32>>,
    subscriber: &Subscriber,
    object: &ReferencedObject,
) -> bool {
    let Some(of_subscriber) = counts.get_mut(subscriber) else {
        return false;
    };
    let Some(count) = of_subscriber.get_mut(object) else {
        return false;
    };
    *count -= 1;
    if *count > 0 {
        return false;
    }
    of_subscriber.remove(object);
    give_back(of_subscriber);
    if of_subscriber.is_empty() {
        counts.remove(subscriber);
    }
    true
}

// === impl ReferenceRule ===

impl ReferenceRule {
    fn is_for(&self, version: &str) -> bool {
        self.versions.is_empty() || self.versions.iter().any(|one| one == version)
    }
}

#[cfg(test)]
mod tests;
