//! The claims of all bindings of a session, and what runs for them.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
    sync::Arc,
};

use bindery_api::v1alpha2::GroupResource;
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, watch},
    time::sleep_until,
};
use tokio_util::task::AbortOnDropHandle;

use super::{Progress, Wanted, lookout::Lookout, rules, rules::Terms, selection::Selection, unit, unit::Unit};
use crate::{
    connection::Sides,
    contract::Contract,
    engine::{Deletions, Surroundings},
    references::{ClaimKey, References},
};

/// The claims of one session. They end when dropped.
pub struct Claims {
    shared: Arc<Shared>,
    _task: AbortOnDropHandle<()>,
}

/// Where claims are served.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    pub contract: Contract,
    pub sides: Sides,
    pub around: Surroundings,
    /// The konnector's own namespace.
    pub home: Arc<str>,
}

struct Shared {
    site: Site,
    references: References,
    state: Mutex<State>,
    /// Something changed.
    news: Arc<Notify>,
}

#[derive(Default)]
struct State {
    bindings: BTreeMap<Arc<str>, Binding>,
    progress: HashMap<Arc<str>, watch::Sender<Progress>>,
    units: BTreeMap<ClaimKey, Unit>,
    lookouts: BTreeMap<GroupResource, Lookout>,
}

struct Binding {
    wanted: Wanted,
    deletions: Arc<Deletions>,
}

// === impl Claims ===

impl fmt::Debug for Claims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claims")
            .field("site", &self.shared.site)
            .finish_non_exhaustive()
    }
}

impl Claims {
    /// Nothing is claimed yet.
    pub(crate) fn new(site: Site) -> Self {
        let shared = Arc::new(Shared {
            site,
            references: References::default(),
            state: Mutex::default(),
            news: Arc::default(),
        });
        Self {
            _task: AbortOnDropHandle::new(tokio::spawn(Arc::clone(&shared).tend())),
            shared,
        }
    }

    /// What a binding claims from now on, instead of all it said before. `deletions` is the binding's own guard.
    pub fn set(&self, binding: &str, wanted: Wanted, deletions: &Arc<Deletions>) {
        let mut state = self.shared.state.lock();
        let is_known = |known: &Binding| known.wanted == wanted && Arc::ptr_eq(&known.deletions, deletions);
        if state.bindings.get(binding).is_some_and(is_known) {
            return;
        }
        let deletions = Arc::clone(deletions);
        state.bindings.insert(binding.into(), Binding { wanted, deletions });
        self.shared.settle(&mut state);
        state.publish();
    }

    /// A binding says nothing any more. What is left of its claims stays, unless another binding of the session claims
    /// the same resource.
    pub fn remove(&self, binding: &str) {
        let mut state = self.shared.state.lock();
        if state.bindings.remove(binding).is_some() {
            self.shared.settle(&mut state);
        }
        state.progress.remove(binding);
        state.publish();
    }

    /// How the claims of a binding go, to read or to wait for.
    pub fn progress(&self, binding: &str) -> watch::Receiver<Progress> {
        let mut state = self.shared.state.lock();
        state.progress.entry(binding.into()).or_default().subscribe()
    }

    /// What bound objects refer to.
    pub fn references(&self) -> &References {
        &self.shared.references
    }
}

// === impl Shared ===

impl Shared {
    /// Starts engines when their time has come, and tells how all are doing.
    async fn tend(self: Arc<Self>) {
        loop {
            let due = {
                let mut state = self.state.lock();
                self.settle(&mut state);
                state.publish();
                state.units.values().filter_map(Unit::due).min()
            };
            match due {
                None => self.news.notified().await,
                Some(due) => tokio::select! { () = self.news.notified() => {}, () = sleep_until(due) => {} },
            }
        }
    }

    /// Has what runs fit what the bindings say.
    fn settle(&self, state: &mut State) {
        let State {
            bindings,
            units,
            lookouts,
            ..
        } = state;
        let wanted: BTreeMap<_, _> = bindings
            .iter()
            .map(|(name, one)| (Arc::clone(name), &one.wanted))
            .collect();
        let claims: BTreeSet<_> = wanted.values().flat_map(|wanted| keys(wanted)).collect();
        units.retain(|claim, _| claims.contains(claim));
        for claim in claims {
            let concerned: Vec<_> = wanted
                .iter()
                .filter(|(_, wanted)| keys(wanted).contains(&claim))
                .collect();
            let scope = unit::informer_scope(
                &claim,
                &concerned.iter().map(|(_, wanted)| **wanted).collect::<Vec<_>>(),
            );
            let guards = concerned
                .iter()
                .filter_map(|(name, _)| Some((Arc::clone(name), Arc::clone(&bindings.get(*name)?.deletions))))
                .collect();
            let terms = Terms::of(&claim, &wanted);
            if units.get(&claim).is_some_and(|unit| unit.informer_scope() != scope) {
                units.remove(&claim);
            }
            let unit = units
                .entry(claim.clone())
                .or_insert_with(|| Unit::start(&self.site, &self.references, claim, terms.clone(), scope, &self.news));
            unit.set(terms, &guards);
            unit.tend(&self.site, &guards, &self.news);
        }
        let mut engines: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (claim, unit) in units {
            let of_resource = engines.entry(claim.resource.clone()).or_default();
            of_resource.extend(unit.engine().cloned());
        }
        lookouts.retain(|resource, lookout| engines.get(resource).is_some_and(|engines| lookout.is_for(engines)));
        for (resource, engines) in engines {
            if !lookouts.contains_key(&resource)
                && let Some(lookout) = Lookout::start(&engines)
            {
                lookouts.insert(resource, lookout);
            }
        }
    }
}

/// The claims that a binding says something of.
fn keys(wanted: &Wanted) -> BTreeSet<ClaimKey> {
    let accepted = wanted.accepted.iter().map(|claim| &claim.group_resource);
    accepted
        .chain(&wanted.withdrawn)
        .map(|resource| ClaimKey {
            resource: resource.clone(),
            place: wanted.place,
        })
        .collect()
}

// === impl State ===

impl State {
    /// Tells every binding how its claims go.
    fn publish(&mut self) {
        for (name, binding) in &self.bindings {
            let mut progress = Progress {
                withdrawn: binding.wanted.withdrawn.clone(),
                ..Progress::default()
            };
            for claim in keys(&binding.wanted) {
                let Some(unit) = self.units.get_mut(&claim) else {
                    continue;
                };
                let mut one = unit.progress(name);
                let accepted = rules::accepted(&claim, &binding.wanted);
                one.selects_all = Selection::of(accepted.iter().map(|claim| &claim.selector)).selects_all();
                progress.claims.insert(claim.resource, one);
            }
            let sender = self.progress.entry(Arc::clone(name)).or_default();
            sender.send_if_modified(|before| {
                let is_news = *before != progress;
                *before = progress;
                is_news
            });
        }
    }
}

#[cfg(test)]
#[path = "registry_end_tests.rs"]
mod end_tests;
#[cfg(test)]
#[path = "registry_tests.rs"]
mod tests;
