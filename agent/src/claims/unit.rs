//! What runs for one claimed resource: first the search for a version that both clusters serve, then an engine.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bindery_api::v1alpha2::{GroupResource, InformerScope};
use bindery_runtime::{
    backoff::Backoff,
    cache::Subscription,
    errors,
    queue::{Lane, Queue},
};
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};
use tokio_util::task::AbortOnDropHandle;

use super::{
    ClaimKey, ClaimProgress, Place, Problem, References, Wanted, discovery,
    flavour::{Claimed, Doing},
    references::{Changed, Listener},
    registry::Site,
    rules::{Rules, Terms},
};
use crate::{
    attempt::Attempt,
    rights,
    sync::{
        BoundResource, Deletions, Placement,
        engine::{Frame, Running, Shared},
        index::Index,
    },
};

/// How often a cluster is asked again whether it serves a resource.
const SEARCH: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(30));
/// How long it may take to learn what bound objects refer to before that is a problem.
const PATIENCE: Duration = Duration::from_secs(10);

/// What runs for one claimed resource.
pub(crate) struct Unit {
    claim: ClaimKey,
    rules: Arc<Rules>,
    informer_scope: InformerScope,
    search: Attempt<Found, Problem>,
    engine: Option<Engine>,
    /// Since when it is not known what is referred to.
    waits: Option<Instant>,
    _links: Vec<AbortOnDropHandle<()>>,
}

/// What the search found.
#[derive(Clone, Debug)]
enum Found {
    /// The version to sync.
    Served(BoundResource),
    /// Neither cluster serves it, so that neither has a copy.
    Nowhere,
}

struct Engine {
    running: Running<Claimed>,
    progress: watch::Receiver<Doing>,
    /// What waits for the guard of each binding.
    thaws: BTreeMap<Arc<str>, AbortOnDropHandle<()>>,
    _subscription: Subscription,
    _tasks: [AbortOnDropHandle<()>; 2],
}

type Guards = BTreeMap<Arc<str>, Arc<Deletions>>;

/// Whether the provider is watched as a whole.
pub(crate) fn informer_scope(resource: &GroupResource, wanted: &[&Wanted]) -> InformerScope {
    let is_secrets = resource.is_core() && resource.resource == "secrets";
    let may = |wanted: &&&Wanted| {
        wanted.informer_scope == InformerScope::Cluster && (!is_secrets || wanted.cluster_wide_secrets)
    };
    if wanted.iter().any(|one| may(&one)) {
        InformerScope::Cluster
    } else {
        InformerScope::Namespaced
    }
}

// === impl Unit ===

impl Unit {
    /// Starts to search. `news` is notified of all that changes.
    pub(crate) fn start(
        site: &Site,
        references: &References,
        claim: ClaimKey,
        terms: Terms,
        informer_scope: InformerScope,
        news: &Arc<Notify>,
    ) -> Self {
        let rules = Rules::new(
            claim.clone(),
            (Arc::clone(&site.contract.namespace), Arc::clone(&site.contract.uid)),
            Arc::clone(&site.home),
            references.clone(),
            terms,
        );
        let (consumer, provider) = (site.sides.consumer.write.clone(), site.sides.provider.write.clone());
        let resource = claim.resource.clone();
        let search = Attempt::start(SEARCH, move || {
            search(consumer.clone(), provider.clone(), resource.clone())
        });
        Self {
            _links: vec![forward(search.changes(), news)],
            claim,
            rules: Arc::new(rules),
            informer_scope,
            search,
            engine: None,
            waits: None,
        }
    }

    /// How the provider is watched.
    pub(crate) fn informer_scope(&self) -> InformerScope {
        self.informer_scope
    }

    /// The bindings say something else.
    pub(crate) fn set(&mut self, terms: Terms, guards: &Guards) {
        let paused = terms.paused;
        let is_news = self.rules.set(terms);
        if let Some(engine) = &mut self.engine {
            engine.guard(guards);
            engine.running.shared.pause(paused);
            if is_news {
                engine.look_again();
            }
        }
    }

    /// Starts the engine as soon as it is known what to sync.
    pub(crate) fn tend(&mut self, site: &Site, guards: &Guards, news: &Arc<Notify>) {
        if self.engine.is_some() {
            return;
        }
        let Some(Ok(Found::Served(resource))) = self.search.outcome() else {
            return;
        };
        let placement = match self.claim.place {
            Place::Mapped => Placement::Mapped,
            Place::Shared => Placement::Shared,
        };
        let frame = Frame {
            contract: Arc::clone(&site.contract.namespace),
            resource,
            placement: placement.clone(),
            informer_scope: self.informer_scope,
            last_wins: false,
        };
        let claimed = Claimed {
            rules: Arc::clone(&self.rules),
            consumer_namespaces: site.around.consumer_namespaces.clone(),
            guards: Mutex::new(guards.clone()),
        };
        let index = Index::with(Arc::clone(&frame.contract), placement, Arc::clone(&self.rules));
        let running = Running::start(frame, site.sides.clone(), site.around.clone(), claimed, index);
        running.shared.pause(self.rules.terms().paused);
        let shared = Arc::downgrade(&running.shared);
        let listener: Listener = Arc::new(move |changed: &Changed| {
            if let Some(shared) = shared.upgrade() {
                hear(&shared, changed);
            }
        });
        self.rules.listen(&listener);
        // What was told before anybody listened.
        running.shared.enqueue_all(Lane::Backlog);
        let progress = running.shared.progress();
        let (subscription, task) = on_new_namespace(&running.shared);
        let mut engine = Engine {
            _subscription: subscription,
            _tasks: [task, forward(progress.clone(), news)],
            running,
            progress,
            thaws: BTreeMap::new(),
        };
        engine.guard(guards);
        self.engine = Some(engine);
    }

    /// What its engine shares with its tasks.
    pub(crate) fn engine(&self) -> Option<&Arc<Shared<Claimed>>> {
        self.engine.as_ref().map(|engine| &engine.running.shared)
    }

    /// How it is going, in the words for one binding.
    pub(crate) fn progress(&mut self, binding: &str) -> ClaimProgress {
        let Some(engine) = &self.engine else {
            return match self.search.outcome() {
                Some(Err(problem)) => ClaimProgress {
                    problem: Some(problem),
                    ..ClaimProgress::default()
                },
                Some(Ok(Found::Nowhere)) => ClaimProgress {
                    remaining: Some(0),
                    ..ClaimProgress::default()
                },
                Some(Ok(Found::Served(_))) | None => ClaimProgress::default(),
            };
        };
        let doing = engine.progress.borrow().clone();
        let synced = doing.common.consumer_synced && doing.common.provider_synced && doing.complaint.is_none();
        self.waits = doing
            .complaint
            .as_ref()
            .map(|_| self.waits.unwrap_or_else(Instant::now));
        ClaimProgress {
            synced,
            from_consumer: doing.from_consumer,
            from_provider: doing.from_provider,
            pending: doing.common.pending,
            failing: doing.common.failing,
            selects_all: false,
            // Nothing is left only if nothing is on its way either.
            remaining: (synced && (doing.left > 0 || doing.is_idle)).then_some(doing.left),
            problem: self.problem(binding, doing),
        }
    }

    /// When to look again although nothing may have changed.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.waits
            .map(|since| since + PATIENCE)
            .filter(|due| *due > Instant::now())
    }

    fn problem(&self, binding: &str, doing: Doing) -> Option<Problem> {
        if let Some(trouble) = doing.trouble {
            let message = if trouble.lacks_right {
                let GroupResource { group, resource } = &self.claim.resource;
                format!(
                    "{}; {}",
                    trouble.message,
                    rights::claimed_resource(binding, group, resource)
                )
            } else {
                trouble.message
            };
            return Some(Problem {
                reason: trouble.reason,
                message,
            });
        }
        let is_late = self.waits.is_some_and(|since| since.elapsed() >= PATIENCE);
        doing.complaint.filter(|_| is_late).map(|message| Problem {
            reason: "ReferencesUnknown",
            message,
        })
    }
}

impl Drop for Unit {
    fn drop(&mut self) {
        self.rules.end();
    }
}

async fn search(consumer: kube::Client, provider: kube::Client, resource: GroupResource) -> Result<Found, Problem> {
    let (here, there) = tokio::join!(
        discovery::served(&consumer, &resource),
        discovery::served(&provider, &resource)
    );
    let unreachable = |cluster: &str, error: &kube::Error| Problem {
        reason: "Unreachable",
        message: format!(
            "cannot find out whether the {cluster} serves {resource}: {}",
            errors::explain(error)
        ),
    };
    let here = here.map_err(|error| unreachable("consumer", &error))?;
    let there = there.map_err(|error| unreachable("provider", &error))?;
    if here.is_empty() && there.is_empty() {
        return Ok(Found::Nowhere);
    }
    let common = discovery::common(&resource, &here, &there);
    common.map(Found::Served).map_err(|message| Problem {
        reason: "ClaimedApiMissing",
        message,
    })
}

/// Has all told that a value changed.
fn forward<T: Send + Sync + 'static>(mut changes: watch::Receiver<T>, news: &Arc<Notify>) -> AbortOnDropHandle<()> {
    let news = Arc::clone(news);
    AbortOnDropHandle::new(tokio::spawn(async move {
        news.notify_one();
        while changes.changed().await.is_ok() {
            news.notify_one();
        }
    }))
}

/// Bound objects refer to other objects than before.
fn hear(shared: &Shared<Claimed>, changed: &Changed) {
    let targets = match changed {
        Changed::All => return shared.enqueue_all(Lane::Backlog),
        Changed::Targets(targets) => targets,
    };
    let index = shared.index.lock();
    let mut keys = Vec::new();
    for target in targets {
        match &target.namespace {
            Some(namespace) => keys.extend(index.key(namespace, &target.name)),
            None => keys.extend(index.keys_named(&target.name)),
        }
    }
    drop(index);
    shared.enqueue(keys, Lane::Live);
}

/// What waits for its namespace on the consumer is looked at when that comes.
fn on_new_namespace(shared: &Arc<Shared<Claimed>>) -> (Subscription, AbortOnDropHandle<()>) {
    // By a queue, for whoever plans reads the same cache with the index in hand.
    let queue: Queue<Arc<str>> = Queue::new();
    let news = queue.clone();
    let subscription = shared.flavour.consumer_namespaces.subscribe(move |change| {
        if change.old.is_none() {
            news.add(Arc::clone(&change.key.name), change.lane);
        }
    });
    let shared = Arc::clone(shared);
    let task = tokio::spawn(async move {
        while let Some(work) = queue.next().await {
            let keys = shared.index.lock().keys_in(work.key());
            shared.enqueue(keys, Lane::Backlog);
        }
    });
    (subscription, AbortOnDropHandle::new(task))
}

// === impl Engine ===

impl Engine {
    /// These bindings may hold deletions back.
    fn guard(&mut self, guards: &Guards) {
        let shared = &self.running.shared;
        let before = std::mem::replace(&mut *shared.flavour.guards.lock(), guards.clone());
        for (binding, guard) in before {
            let stays = guards.get(&binding).is_some_and(|now| Arc::ptr_eq(now, &guard));
            if !stays {
                guard.forget(shared.id());
                self.thaws.remove(&binding);
            }
        }
        for (binding, guard) in guards {
            if !self.thaws.contains_key(binding) {
                let thaw = self.running.thaw(Arc::clone(guard));
                self.thaws.insert(Arc::clone(binding), thaw);
            }
        }
    }

    /// Other objects are claimed than before.
    fn look_again(&self) {
        let shared = &self.running.shared;
        shared.enqueue_all(Lane::Backlog);
        // Told at once: what was counted before says nothing of what is claimed now.
        shared.tell_progress();
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

    use super::*;

    fn wanted(informer_scope: InformerScope, cluster_wide_secrets: bool) -> Wanted {
        Wanted {
            export: OwnerReference::default(),
            place: Place::Mapped,
            informer_scope,
            cluster_wide_secrets,
            cluster_scoped_namespace: None,
            accepted: Vec::new(),
            withdrawn: Vec::new(),
            kept: BTreeMap::new(),
            paused: false,
            relink: false,
        }
    }

    #[test]
    fn secrets_are_watched_cluster_wide_only_by_an_explicit_word() {
        use InformerScope::{Cluster, Namespaced};

        #[track_caller]
        fn check(resource: &str, of: &[(InformerScope, bool)], expect: InformerScope) {
            let resource = GroupResource::new("", resource);
            let wanted: Vec<_> = of.iter().map(|(scope, secrets)| wanted(*scope, *secrets)).collect();
            let wanted: Vec<_> = wanted.iter().collect();
            assert_eq!(informer_scope(&resource, &wanted), expect, "{resource} {of:?}");
        }
        check("configmaps", &[], Namespaced);
        check("configmaps", &[(Namespaced, false)], Namespaced);
        check("configmaps", &[(Namespaced, true)], Namespaced);
        check("configmaps", &[(Namespaced, false), (Cluster, false)], Cluster);
        check("secrets", &[(Cluster, false)], Namespaced);
        check("secrets", &[(Namespaced, true)], Namespaced);
        check("secrets", &[(Cluster, false), (Namespaced, true)], Namespaced);
        check("secrets", &[(Cluster, true)], Cluster);
    }
}
