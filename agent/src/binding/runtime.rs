//! What runs for a binding: inquiries, its session, engines and releasers. Dropping it ends all of that.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};

use bindery_runtime::{cache::Subscription, queue::Queue};
use jiff::Timestamp;
use tokio::{sync::watch, time::Instant};

use super::{
    Key,
    observe::{DeletionSeen, EngineSeen, EngineSpec},
};
use crate::{
    attempt::{Attempt, Link},
    bound::Engine,
    engine::{Deletions, Frozen, Progress},
    lull::{Lull, PROGRESS_PAUSE},
    release::{Mode, Released, Releaser},
    session::{Session, dial::Dials, pace::Wish},
};
use claims::{Claiming, CleaningUp};

mod claims;

/// How long a schema may come after its export.
const SCHEMA_PATIENCE: Duration = Duration::from_secs(3);

/// What runs for a binding.
#[derive(Debug)]
pub struct Runtime {
    /// UID of the binding that all this is for.
    uid: Option<String>,
    /// The binding's finalizer was taken away: nothing is left to do for it.
    ended: bool,
    pub(super) lull: Lull,
    /// How many objects there were when they were last counted.
    last_count: Option<usize>,
    /// When a schema was first missed.
    missed: HashMap<String, Instant>,
    dials: Dials<Key>,
    attached: Option<Attached>,
    engines: BTreeMap<String, Running>,
    releasers: BTreeMap<String, (Releaser, Link)>,
    claiming: Option<Claiming>,
    cleanup: Option<CleaningUp>,
    /// What holds deletions back, from the first engine on.
    deletions: Option<(Arc<Deletions>, Link)>,
    deletion: Option<(Attempt<(), String>, Link)>,
    paused: bool,
    relink: bool,
    /// Until when the user consents to deletions.
    allowed: Option<Timestamp>,
}

struct Attached {
    session: Arc<Session>,
    wish: Option<Wish>,
    _links: [Link; 3],
    _subscriptions: [Subscription; 2],
}

#[derive(Debug)]
struct Running {
    spec: EngineSpec,
    draining: bool,
    engine: Engine,
    progress: watch::Receiver<Progress>,
    _link: Link,
}

impl fmt::Debug for Attached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.session.fmt(f)
    }
}

impl Runtime {
    /// Nothing runs yet for this binding.
    pub(super) fn new(uid: Option<String>, queue: &Queue<Key>, key: &Key) -> Self {
        Self {
            uid,
            ended: false,
            lull: Lull::default(),
            last_count: None,
            missed: HashMap::new(),
            dials: Dials::new(queue.clone(), key.clone()),
            attached: None,
            engines: BTreeMap::new(),
            releasers: BTreeMap::new(),
            claiming: None,
            cleanup: None,
            deletions: None,
            deletion: None,
            paused: false,
            relink: false,
            allowed: None,
        }
    }

    /// Whether all this is for the binding of that UID, and not for a namesake before it.
    pub(super) fn is_for(&self, uid: Option<&String>) -> bool {
        self.uid.as_ref() == uid
    }

    /// UID of the binding.
    pub(super) fn uid(&self) -> Option<&str> {
        self.uid.as_deref()
    }

    /// Nothing is left to do for the binding.
    pub(super) fn end(&mut self) {
        self.ended = true;
    }

    /// Whether that is so.
    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Notes how many objects there are. Answers how many there were last, where they are not counted now.
    pub(super) fn count(&mut self, objects: Option<usize>) -> Option<usize> {
        self.last_count = objects.or(self.last_count);
        self.last_count
    }

    /// A schema is there.
    pub(super) fn found(&mut self, name: &str) {
        self.missed.remove(name);
    }

    /// A schema is not there. Answers how long that may still be because it comes by another watch than its export;
    /// nothing, if it is certainly missing.
    pub(super) fn missed(&mut self, name: &str) -> Option<Duration> {
        let since = self.missed.entry(name.to_owned()).or_insert_with(Instant::now);
        SCHEMA_PATIENCE
            .checked_sub(since.elapsed())
            .filter(|left| !left.is_zero())
    }

    /// What it waits for to hear from providers.
    pub(super) fn dials(&mut self) -> &mut Dials<Key> {
        &mut self.dials
    }

    /// The session that the binding is served by.
    pub(super) fn session(&self) -> Option<&Arc<Session>> {
        self.attached.as_ref().map(|attached| &attached.session)
    }

    /// From now on this session serves the binding.
    pub(super) fn attach(&mut self, session: Arc<Session>, queue: &Queue<Key>, key: &Key) {
        if self.session().is_some_and(|current| current.id() == session.id()) {
            return;
        }
        // What the session before did for the claims, this one is to do.
        self.claiming = None;
        let schemas = (queue.clone(), key.clone());
        let bindings = schemas.clone();
        self.attached = Some(Attached {
            _links: [
                Link::new(session.exports().changes(), queue.clone(), key.clone()),
                Link::new(session.credential().changes(), queue.clone(), key.clone()),
                Link::new(session.heartbeat(), queue.clone(), key.clone()),
            ],
            _subscriptions: [
                session
                    .schemas()
                    .subscribe(move |change| schemas.0.add(schemas.1.clone(), change.lane)),
                session
                    .cluster_binding()
                    .subscribe(move |change| bindings.0.add(bindings.1.clone(), change.lane)),
            ],
            session,
            wish: None,
        });
    }

    /// How often the exports are to be asked for where they cannot be followed; `None` if that is up to its bundle.
    pub(super) fn poll_every(&mut self, interval: Option<Duration>) {
        let Some(attached) = &mut self.attached else { return };
        if interval.is_none() || attached.wish.is_none() {
            attached.wish = interval.map(|interval| attached.session.poll_every(interval));
        }
    }

    /// The engines, as decisions see them.
    pub(super) fn engines(&self) -> BTreeMap<String, EngineSeen> {
        let seen = |running: &Running| EngineSeen {
            spec: running.spec.clone(),
            draining: running.draining,
            progress: running.progress.borrow().clone(),
        };
        self.engines
            .iter()
            .map(|(name, running)| (name.clone(), seen(running)))
            .collect()
    }

    /// Puts an engine in the place of whatever runs for this CRD.
    pub(super) fn run(&mut self, name: String, spec: EngineSpec, engine: Engine, queue: &Queue<Key>, key: &Key) {
        engine.pause(self.paused);
        engine.relink(self.relink);
        let progress = engine.progress();
        let before = AtomicU8::new(0);
        let urgent = move |progress: &Progress| {
            let state = milestones(progress);
            before.swap(state, Ordering::Relaxed) != state
        };
        let link = Link::throttled(progress.clone(), queue.clone(), key.clone(), PROGRESS_PAUSE, urgent);
        self.releasers.remove(&name);
        let running = Running {
            spec,
            draining: false,
            engine,
            progress,
            _link: link,
        };
        self.engines.insert(name, running);
    }

    /// Ends an engine.
    pub(super) fn stop(&mut self, name: &str) {
        self.engines.remove(name);
    }

    /// Has an engine delete all its objects.
    pub(super) fn drain(&mut self, name: &str) {
        if let Some(running) = self.engines.get_mut(name) {
            running.draining = true;
            running.engine.drain();
        }
    }

    /// Lets no engine write, or all.
    pub(super) fn pause(&mut self, paused: bool) {
        let changed = self.paused != paused;
        self.paused = paused;
        for running in self.engines.values() {
            running.engine.pause(paused);
        }
        if changed {
            self.tell_claims();
        }
    }

    /// No more asks the provider to delete the export, unless it has.
    pub(super) fn stop_deletion(&mut self) {
        if self.deletion() != Some(DeletionSeen::Done) {
            self.deletion = None;
        }
    }

    /// Notes until when the user consents to what: a takeover by another provider or cluster, and deletions.
    pub(super) fn consent(&mut self, takeover: Option<Timestamp>, deletions: Option<Timestamp>) {
        let relink = takeover.is_some();
        let changed = self.relink != relink;
        self.relink = relink;
        self.allowed = deletions;
        if changed {
            self.tell_claims();
        }
        for running in self.engines.values() {
            running.engine.relink(self.relink);
        }
        if let Some((guard, _)) = &self.deletions {
            guard.consent(deletions);
        }
    }

    /// What holds the deletions of this binding back.
    pub(super) fn deletions(&mut self, queue: &Queue<Key>, key: &Key) -> Arc<Deletions> {
        let (guard, _) = self.deletions.get_or_insert_with(|| {
            let guard = Arc::<Deletions>::default();
            guard.consent(self.allowed);
            let before = AtomicU8::new(0);
            // The numbers move on while it lasts; that it began or ended is told at once.
            let urgent = move |frozen: &Option<Frozen>| {
                let state = u8::from(frozen.is_some());
                before.swap(state, Ordering::Relaxed) != state
            };
            let link = Link::throttled(guard.frozen(), queue.clone(), key.clone(), PROGRESS_PAUSE, urgent);
            (guard, link)
        });
        Arc::clone(guard)
    }

    /// Why deletions are held back, where they are.
    pub(super) fn frozen(&self) -> Option<Frozen> {
        let (guard, _) = self.deletions.as_ref()?;
        *guard.frozen().borrow()
    }

    /// The releasers, as decisions see them.
    pub(super) fn releasers(&self) -> BTreeMap<String, (Mode, Released)> {
        let seen = |releaser: &Releaser| (releaser.mode(), releaser.progress().borrow().clone());
        self.releasers
            .iter()
            .map(|(name, (releaser, _))| (name.clone(), seen(releaser)))
            .collect()
    }

    /// Puts a releaser in the place of whatever runs for this CRD.
    pub(super) fn release(&mut self, name: String, releaser: Releaser, queue: &Queue<Key>, key: &Key) {
        let urgent = |released: &Released| released.remaining == Some(0);
        let link = Link::throttled(releaser.progress(), queue.clone(), key.clone(), PROGRESS_PAUSE, urgent);
        self.engines.remove(&name);
        self.releasers.insert(name, (releaser, link));
    }

    /// Ends a releaser.
    pub(super) fn stop_release(&mut self, name: &str) {
        self.releasers.remove(name);
    }

    /// How the deletion of the export goes.
    pub(super) fn deletion(&self) -> Option<DeletionSeen> {
        let (attempt, _) = self.deletion.as_ref()?;
        Some(match attempt.outcome() {
            None => DeletionSeen::Running,
            Some(Ok(())) => DeletionSeen::Done,
            Some(Err(message)) => DeletionSeen::Failing(message),
        })
    }

    /// The deletion of the export was asked for.
    pub(super) fn deleting(&mut self, attempt: Attempt<(), String>, queue: &Queue<Key>, key: &Key) {
        let link = Link::new(attempt.changes(), queue.clone(), key.clone());
        self.deletion = Some((attempt, link));
    }
}

/// What of an engine's progress matters at once, as bits.
fn milestones(progress: &Progress) -> u8 {
    [
        progress.consumer_synced,
        progress.provider_synced,
        progress.problem.is_some(),
        progress.failing > 0,
        progress.remaining == Some(0),
        progress.objects == 0,
    ]
    .into_iter()
    .enumerate()
    .fold(0, |bits, (at, is_set)| bits | (u8::from(is_set) << at))
}
