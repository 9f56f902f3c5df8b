//! The claims of all bindings of a session, and the runners and informers that serve them.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
    sync::Arc,
};

use bindery_api::{claims::Selection, orphans::OrphanAction, v1alpha2::GroupResource};
use bindery_runtime::cache::Subscription;
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, watch},
    time::sleep_until,
};
use tokio_util::task::AbortOnDropHandle;

use super::{
    Progress, Wanted,
    informer::SharedInformer,
    reach::consumer_scope,
    rules::{self, ClaimTerms},
    runner::{self, ClaimRunner, Site},
};
use crate::{
    engine::Deletions,
    references::{ClaimKey, References},
};

/// Serves the claims of one session until it is dropped.
pub struct Claims {
    shared: Arc<Shared>,
    _subscription: Subscription,
    _tasks: [AbortOnDropHandle<()>; 2],
}

struct Shared {
    site: Site,
    references: References,
    state: Mutex<State>,
    /// Notified when a runner may have something to do, or has made progress.
    news: Arc<Notify>,
}

#[derive(Default)]
struct State {
    bindings: BTreeMap<Arc<str>, Binding>,
    progress: HashMap<Arc<str>, watch::Sender<Progress>>,
    runners: BTreeMap<ClaimKey, ClaimRunner>,
    informers: BTreeMap<GroupResource, SharedInformer>,
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
    /// Starts without any claim.
    pub(crate) fn new(site: Site) -> Self {
        let shared = Arc::new(Shared {
            site,
            references: References::default(),
            state: Mutex::default(),
            news: Arc::default(),
        });
        let namespaces = &shared.site.around.consumer_namespaces;
        let news = Arc::clone(&shared.news);
        let subscription = namespaces.subscribe(move |change| {
            // It is watched from now on, or no more.
            if change.old.is_none() || change.new.is_none() {
                news.notify_one();
            }
        });
        let (synced, news) = (namespaces.clone(), Arc::clone(&shared.news));
        let listed = tokio::spawn(async move {
            synced.synced().await;
            news.notify_one();
        });
        let tend = tokio::spawn(Arc::clone(&shared).tend());
        Self {
            _subscription: subscription,
            _tasks: [listed, tend].map(AbortOnDropHandle::new),
            shared,
        }
    }

    /// Replaces what a binding wants. `deletions` is the guard of deletions of the binding.
    pub fn set(&self, binding: &str, wanted: Wanted, deletions: &Arc<Deletions>) {
        let mut state = self.shared.state.lock();
        let is_known = |known: &Binding| known.wanted == wanted && Arc::ptr_eq(&known.deletions, deletions);
        if state.bindings.get(binding).is_some_and(is_known) {
            return;
        }
        let deletions = Arc::clone(deletions);
        state.bindings.insert(binding.into(), Binding { wanted, deletions });
        self.shared.reconcile(&mut state);
        state.publish();
    }

    /// Forgets a binding. Copies that only it claimed are kept as they are, unless another binding of the session claims the same
    /// resource.
    pub fn remove(&self, binding: &str) {
        let mut state = self.shared.state.lock();
        if state.bindings.remove(binding).is_some() {
            self.shared.reconcile(&mut state);
        }
        state.progress.remove(binding);
        state.publish();
    }

    /// Ends the orphans of the claims of a binding that its progress had when the user ordered it.
    pub fn end_orphans(&self, binding: &str, action: OrphanAction, progress: &Progress) {
        let state = self.shared.state.lock();
        let Some(of) = state.bindings.get(binding) else {
            return;
        };
        for claim in keys(&of.wanted) {
            let seen = progress.claims.get(&claim.resource).map(|claim| claim.orphans.set);
            let engine = state.runners.get(&claim).and_then(ClaimRunner::engine);
            if let Some((engine, seen)) = engine.zip(seen) {
                engine.end_orphans(action, seen);
            }
        }
    }

    /// The progress of the claims of a binding, to read or to wait for.
    pub fn progress(&self, binding: &str) -> watch::Receiver<Progress> {
        let mut state = self.shared.state.lock();
        state.progress.entry(binding.into()).or_default().subscribe()
    }

    /// The index of references of the session.
    pub fn references(&self) -> &References {
        &self.shared.references
    }
}

// === impl Shared ===

impl Shared {
    /// Starts and stops engines whenever something changed or is due, and publishes the progress.
    async fn tend(self: Arc<Self>) {
        loop {
            let due = {
                let mut state = self.state.lock();
                self.reconcile(&mut state);
                state.publish();
                state.runners.values().filter_map(ClaimRunner::due).min()
            };
            match due {
                None => self.news.notified().await,
                Some(due) => tokio::select! { () = self.news.notified() => {}, () = sleep_until(due) => {} },
            }
        }
    }

    /// Whether a namespace of the consumer exists, or may exist.
    fn exists(&self, namespace: &str) -> bool {
        let namespaces = &self.site.around.consumer_namespaces;
        !namespaces.is_synced() || namespaces.get("", namespace).is_some()
    }

    /// Starts and stops runners and informers to match what the bindings want.
    fn reconcile(&self, state: &mut State) {
        let State {
            bindings,
            runners,
            informers,
            ..
        } = state;
        let wanted: BTreeMap<_, _> = bindings
            .iter()
            .map(|(name, one)| (Arc::clone(name), &one.wanted))
            .collect();
        let claims: BTreeSet<_> = wanted.values().flat_map(|wanted| keys(wanted)).collect();
        runners.retain(|claim, _| claims.contains(claim));
        for claim in claims {
            let concerned: Vec<_> = wanted
                .iter()
                .filter(|(_, wanted)| keys(wanted).contains(&claim))
                .collect();
            let scope = runner::informer_scope(
                &claim,
                &concerned.iter().map(|(_, wanted)| **wanted).collect::<Vec<_>>(),
            );
            let guards = concerned
                .iter()
                .filter_map(|(name, _)| Some((Arc::clone(name), Arc::clone(&bindings.get(*name)?.deletions))))
                .collect();
            let terms = ClaimTerms::of(&claim, &wanted);
            // Labels are left out as objects are seen, so that others need a new list.
            if runners
                .get(&claim)
                .is_some_and(|runner| runner.informer_scope() != scope || !runner.carries_labels_of(&terms))
            {
                runners.remove(&claim);
            }
            let runner = runners.entry(claim.clone()).or_insert_with(|| {
                ClaimRunner::start(&self.site, &self.references, claim, terms.clone(), scope, &self.news)
            });
            runner.set(terms, &guards);
            runner.tend(&self.site, &guards, &self.news);
        }
        let mut engines: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (claim, runner) in runners {
            let of_resource = engines.entry(claim.resource.clone()).or_default();
            of_resource.extend(runner.engine().cloned());
        }
        informers.retain(|resource, informer| engines.get(resource).is_some_and(|engines| informer.is_for(engines)));
        for (resource, engines) in engines {
            if !informers.contains_key(&resource)
                && let Some(informer) = SharedInformer::start(&engines)
            {
                informers.insert(resource.clone(), informer);
            }
            if let Some(informer) = informers.get_mut(&resource) {
                let concerns = |wanted: &&&Wanted| keys(wanted).iter().any(|claim| claim.resource == resource);
                let concerned = wanted.values().filter(concerns).copied();
                informer.watch_consumer(&engines, &consumer_scope(concerned, |name| self.exists(name)));
            }
        }
    }
}

/// Lists the claims that a binding wants something of.
fn keys(wanted: &Wanted) -> BTreeSet<ClaimKey> {
    let accepted = wanted.accepted.iter().map(|claim| &claim.group_resource);
    accepted
        .chain(&wanted.withdrawn)
        .map(|resource| ClaimKey {
            resource: resource.clone(),
            placement: wanted.placement,
        })
        .collect()
}

// === impl State ===

impl State {
    /// Publishes to every binding the progress of its claims.
    fn publish(&mut self) {
        for (name, binding) in &self.bindings {
            let mut progress = Progress {
                withdrawn: binding.wanted.withdrawn.clone(),
                ..Progress::default()
            };
            for claim in keys(&binding.wanted) {
                let Some(runner) = self.runners.get_mut(&claim) else {
                    continue;
                };
                let mut one = runner.progress(name);
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
#[path = "tests/registry_end.rs"]
mod end_tests;
#[cfg(test)]
#[path = "tests/registry_namespaces.rs"]
mod namespace_tests;
#[cfg(test)]
#[path = "tests/registry.rs"]
mod tests;
