//! How the watch of a bound resource tells what its objects refer to.

use std::{collections::HashSet, fmt, sync::Arc};

use bindery_api::v1alpha2::GroupResource;
use bindery_runtime::cache::ObjectKey;
use tokio::sync::watch;

use crate::{
    model::object::Object,
    references::{Listing, References, Referrer, State, Told, tell},
};

/// Tells the references of what the watch of a bound resource shows. Dropping it says that nobody watches any more.
pub(crate) struct Feed {
    pub(super) references: References,
    pub(super) resource: GroupResource,
    pub(super) id: u64,
}

// === impl Feed ===

impl fmt::Debug for Feed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Feed").field(&self.resource).finish()
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        let mut told = Told::new();
        let mut state = self.references.state.lock();
        if state.referrers.get(&self.resource).is_some_and(|one| one.id == self.id) {
            state.forget(&self.resource, &mut told);
        }
        drop(state);
        tell(told);
    }
}

impl Feed {
    /// Changes whenever all objects have to be seen again; `None` if somebody else watches by now.
    pub(crate) fn rounds(&self) -> Option<watch::Receiver<u64>> {
        let mut state = self.references.state.lock();
        self.of(&mut state).map(|referrer| referrer.round.subscribe())
    }

    /// A list begins.
    pub(crate) fn listing(&self) {
        let mut state = self.references.state.lock();
        if let Some(referrer) = self.of(&mut state) {
            let round = *referrer.round.borrow();
            let keys = HashSet::new();
            referrer.listing = Some(Listing { round, keys });
        }
    }

    /// An object was listed, created or changed.
    pub(crate) fn seen(&self, object: &Object) {
        let mut asked = {
            let mut state = self.references.state.lock();
            let Some(referrer) = self.of(&mut state) else {
                return;
            };
            Arc::clone(&referrer.asked)
        };
        loop {
            if asked.is_empty() {
                // Nothing is noted of what nobody asks about.
                return;
            }
            // Not while others wait: an object may be large.
            let targets: Vec<_> = asked
                .iter()
                .flat_map(|(asker, question)| {
                    question
                        .answer(object)
                        .into_iter()
                        .map(move |one| (Arc::clone(asker), one))
                })
                .collect();
            let mut state = self.references.state.lock();
            let Some(referrer) = self.of(&mut state) else {
                return;
            };
            if !Arc::ptr_eq(&referrer.asked, &asked) {
                // Something else is asked by now.
                asked = Arc::clone(&referrer.asked);
                continue;
            }
            let key = ObjectKey::new(Arc::clone(&object.meta.namespace), Arc::clone(&object.meta.name));
            if let Some(listing) = referrer.listing.as_mut().filter(|_| !targets.is_empty()) {
                listing.keys.insert(key.clone());
            }
            let mut told = Told::new();
            state.set(&self.resource, key, &targets, &mut told);
            drop(state);
            return tell(told);
        }
    }

    /// An object was listed that cannot be read: what it referred to, it may still refer to.
    pub(crate) fn unreadable(&self, key: ObjectKey) {
        let mut state = self.references.state.lock();
        let Some(referrer) = self.of(&mut state) else {
            return;
        };
        if let Some(listing) = referrer
            .listing
            .as_mut()
            .filter(|_| referrer.objects.contains_key(&key))
        {
            listing.keys.insert(key);
        }
    }

    /// An object is gone.
    pub(crate) fn gone(&self, key: &ObjectKey) {
        let mut told = Told::new();
        let mut state = self.references.state.lock();
        if self.of(&mut state).is_some() {
            state.set(&self.resource, key.clone(), &[], &mut told);
        }
        drop(state);
        tell(told);
    }

    /// The list is complete.
    pub(crate) fn listed(&self) {
        let mut told = Told::new();
        let mut state = self.references.state.lock();
        let Some(referrer) = self.of(&mut state) else {
            return;
        };
        let Some(listing) = referrer.listing.take() else {
            return;
        };
        let known = referrer.objects.keys();
        let gone: Vec<_> = known.filter(|key| !listing.keys.contains(*key)).cloned().collect();
        // Questions that came since it began were not asked of all.
        let complete = listing.round == *referrer.round.borrow();
        let news = complete && !std::mem::replace(&mut referrer.complete, complete);
        for key in gone {
            state.set(&self.resource, key, &[], &mut told);
        }
        if news {
            state.tell_all(&self.resource, &mut told);
        }
        drop(state);
        tell(told);
    }

    fn of<'a>(&self, state: &'a mut State) -> Option<&'a mut Referrer> {
        state.referrers.get_mut(&self.resource).filter(|one| one.id == self.id)
    }
}
