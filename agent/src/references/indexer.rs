//! How the watch of a bound resource shows its objects to the index of references.

use std::{borrow::Cow, collections::HashSet, fmt, sync::Arc};

use bindery_api::{
    claims::{ReferencedObject, referrer_metadata},
    v1alpha2::GroupResource,
};
use bindery_runtime::cache::ObjectKey;
use serde_json::{Value, value::RawValue};
use tokio::sync::watch;

use super::{DueCalls, Listing, ReferenceChange, ReferenceRule, References, Referrers, RetainedReferrer, State, call};
use crate::model::object::Object;

/// Indexes the references of one bound resource. When it is dropped, the references of the resource are forgotten.
pub(crate) struct ReferenceIndexer {
    pub(super) references: References,
    pub(super) resource: GroupResource,
    pub(super) id: u64,
}

// === impl ReferenceIndexer ===

impl fmt::Debug for ReferenceIndexer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReferenceIndexer").field(&self.resource).finish()
    }
}

impl Drop for ReferenceIndexer {
    fn drop(&mut self) {
        let mut calls = DueCalls::new();
        let mut state = self.references.state.lock();
        if self.referrers(&mut state).is_some() {
            state.forget(&self.resource, &mut calls);
        }
        drop(state);
        call(calls);
    }
}

impl ReferenceIndexer {
    /// Subscribes to a number that changes whenever all objects have to be shown again; `None` if a later indexer took over.
    pub(crate) fn relists(&self) -> Option<watch::Receiver<u64>> {
        let mut state = self.references.state.lock();
        self.referrers(&mut state).map(|referrers| referrers.round.subscribe())
    }

    /// Notes that a list begins.
    pub(crate) fn listing(&self) {
        let mut state = self.references.state.lock();
        if let Some(referrers) = self.referrers(&mut state) {
            referrers.namespaces.begin();
            let round = *referrers.round.borrow();
            let keys = HashSet::new();
            referrers.listing = Some(Listing { round, keys });
            for retained in referrers.retained.values_mut() {
                retained.object = None;
            }
        }
    }

    /// Notes what an object refers to that was listed, created or changed.
    pub(crate) fn seen(&self, object: &Object) {
        let key = object.key();
        self.note(&key);
        let mut state = self.references.state.lock();
        let retained = self
            .referrers(&mut state)
            .and_then(|referrers| referrers.retained.get_mut(&key));
        if let Some(retained) = retained {
            // An object of the same name as a deleted one is not synced while the copy of that is retained.
            retained.object = Some(Arc::new(object.clone()));
            return;
        }
        drop(state);
        self.read(&key, object);
    }

    /// Keeps the references of an object whose copy is retained after the object was deleted, until [`Self::unretain`]: those of the
    /// object until the copy is shown, and then those of the copy, which was not written for the last changes of an object that was deleted
    /// right after them.
    pub(crate) fn retain(&self, key: &ObjectKey, copy: Option<&Object>) {
        // The copy that is retained needs the claimed objects of its namespace.
        self.note(key);
        let mut state = self.references.state.lock();
        let Some(referrers) = self.referrers(&mut state) else {
            return;
        };
        let kept = referrers.retained.entry(key.clone()).or_default();
        if let Some(copy) = copy {
            // Rules that come later read it again.
            kept.copy = Some(Arc::new(copy.clone()));
        }
        drop(state);
        if let Some(copy) = copy {
            self.read(key, copy);
        }
    }

    /// Notes that the copy of an object is not retained any more. The references go with it, unless the object is there: then those of
    /// the object count.
    pub(crate) fn unretain(&self, key: &ObjectKey, has_object: bool) {
        let mut state = self.references.state.lock();
        let retained = self
            .referrers(&mut state)
            .and_then(|referrers| referrers.retained.remove(key));
        drop(state);
        match retained {
            Some(_) if !has_object => self.gone(key),
            Some(RetainedReferrer {
                object: Some(object), ..
            }) => self.read(key, &object),
            _ => {}
        }
    }

    /// Notes that there is an object in a namespace.
    fn note(&self, key: &ObjectKey) {
        let mut calls = DueCalls::new();
        let mut state = self.references.state.lock();
        let is_first = self
            .referrers(&mut state)
            .is_some_and(|referrers| referrers.namespaces.add(key));
        if is_first {
            state.call_for_namespace(key, &mut calls);
        }
        drop(state);
        call(calls);
    }

    /// Notes what an object refers to, by itself or by its copy.
    fn read(&self, key: &ObjectKey, object: &Object) {
        let mut rules = {
            let mut state = self.references.state.lock();
            let Some(referrers) = self.referrers(&mut state) else {
                return;
            };
            Arc::clone(&referrers.rules)
        };
        loop {
            if rules.is_empty() {
                return;
            }
            // The object is read without the lock: it may be large.
            let references: Vec<_> = rules
                .iter()
                .flat_map(|(subscriber, rule)| {
                    let found = evaluate(rule, key, object).into_iter();
                    found.map(move |one| (Arc::clone(subscriber), one))
                })
                .collect();
            let mut state = self.references.state.lock();
            let Some(referrers) = self.referrers(&mut state) else {
                return;
            };
            if !Arc::ptr_eq(&referrers.rules, &rules) {
                // The rules changed meanwhile.
                rules = Arc::clone(&referrers.rules);
                continue;
            }
            if let Some(listing) = referrers.listing.as_mut().filter(|_| !references.is_empty()) {
                listing.keys.insert(key.clone());
            }
            let mut calls = DueCalls::new();
            state.set(&self.resource, key.clone(), &references, &mut calls);
            drop(state);
            return call(calls);
        }
    }

    /// Keeps the references of an object that was listed and cannot be read.
    pub(crate) fn unreadable(&self, key: ObjectKey) {
        self.note(&key);
        let mut state = self.references.state.lock();
        let Some(referrers) = self.referrers(&mut state) else {
            return;
        };
        if let Some(listing) = referrers
            .listing
            .as_mut()
            .filter(|_| referrers.objects.contains_key(&key))
        {
            listing.keys.insert(key);
        }
    }

    /// Forgets the references of an object that was deleted, unless its copy is retained.
    pub(crate) fn gone(&self, key: &ObjectKey) {
        let mut calls = DueCalls::new();
        let mut state = self.references.state.lock();
        let is_retained = self.referrers(&mut state).map(|referrers| {
            let retained = referrers.retained.get_mut(key);
            retained.map(|retained| retained.object = None).is_some()
        });
        if is_retained == Some(false) {
            state.set(&self.resource, key.clone(), &[], &mut calls);
            let is_last = self
                .referrers(&mut state)
                .is_some_and(|referrers| referrers.namespaces.remove(key));
            if is_last {
                state.call_for_namespace(key, &mut calls);
            }
        }
        drop(state);
        call(calls);
    }

    /// Notes that the list is complete, and forgets the objects that were not in it.
    pub(crate) fn listed(&self) {
        self.read_retained();
        let mut calls = DueCalls::new();
        let mut state = self.references.state.lock();
        let Some(referrers) = self.referrers(&mut state) else {
            return;
        };
        let Some(listing) = referrers.listing.take() else {
            return;
        };
        let retained = &referrers.retained;
        let lost = referrers.namespaces.end(|key| retained.contains_key(key));
        let known = referrers.objects.keys();
        let is_kept = |key: &ObjectKey| listing.keys.contains(key) || referrers.retained.contains_key(key);
        let gone: Vec<_> = known.filter(|key| !is_kept(key)).cloned().collect();
        // Rules that came after the list began were not applied to all of its objects.
        let complete = listing.round == *referrers.round.borrow();
        let is_news = complete && !std::mem::replace(&mut referrers.complete, complete);
        for key in gone {
            state.set(&self.resource, key, &[], &mut calls);
        }
        if is_news {
            state.call_all(&self.resource, &mut calls);
        }
        match lost {
            None => state.call_everyone(&ReferenceChange::All, &mut calls),
            Some(lost) => {
                for namespace in lost {
                    state.call_everyone(&ReferenceChange::Namespace(namespace), &mut calls);
                }
            }
        }
        drop(state);
        call(calls);
    }

    /// Reads the retained copies by the rules of now, since no list of the consumer's objects shows what they refer to.
    fn read_retained(&self) {
        let mut state = self.references.state.lock();
        let Some(referrers) = self.referrers(&mut state) else {
            return;
        };
        let copies: Vec<_> = referrers
            .retained
            .iter()
            .filter_map(|(key, retained)| Some((key.clone(), retained.copy.clone()?)))
            .collect();
        drop(state);
        for (key, copy) in copies {
            self.read(&key, &copy);
        }
    }

    fn referrers<'a>(&self, state: &'a mut State) -> Option<&'a mut Referrers> {
        let referrers = state.referrers.get_mut(&self.resource);
        referrers.filter(|referrers| referrers.indexer == self.id)
    }
}

fn evaluate(rule: &ReferenceRule, key: &ObjectKey, object: &Object) -> Vec<ReferencedObject> {
    let of_export = rule.cluster_scoped_namespace.as_ref();
    let field = |name: &str| field(object, key, name).map(Cow::Owned);
    rule.paths.evaluate(&key.namespace, of_export, field)
}

/// Parses a top-level field of an object.
fn field(object: &Object, key: &ObjectKey, name: &str) -> Option<Value> {
    let meta = &object.meta;
    let text: &RawValue = match name {
        "metadata" => {
            let key = (&*key.namespace, &*key.name);
            return Some(referrer_metadata(key, meta.labels.iter(), meta.annotations.iter()));
        }
        "status" => object.status.as_deref()?,
        _ => object
            .body
            .iter()
            .find(|(key, _)| **key == *name)
            .map(|(_, text)| text)?,
    };
    serde_json::from_str(text.get()).ok()
}
