//! The tasks that run for one binding: its provider connection, engines, releasers and claims.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use bindery_api::{names, orphans::OrphanAction, retention::RetentionOrder};
use bindery_runtime::{cache::Subscription, queue::Queue};
use jiff::Timestamp;
use tokio::{sync::watch, time::Instant};

use super::observed::{EngineSpec, ExportDeletion, ObservedEngine};
use crate::{
    attempt::{Attempt, Link},
    bound::{EndRetentionError, Engine},
    controller::connection::ProviderConnection,
    drain::{Drain, DrainMode, DrainProgress},
    engine::{Deletions, Progress},
    session::{Session, polling::PollRequest},
};
use claims::{RunningClaims, RunningCleanup};

mod claims;

/// A schema may appear this much later than its export, since the two are watched separately.
const SCHEMA_PATIENCE: Duration = Duration::from_secs(3);

/// What the controller of bindings works on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum BindingKey {
    /// A binding, by name.
    Binding(Arc<str>),
    /// A contract, by UID, whose stored credential and whose record on the Lease may be no longer needed.
    Contract(Arc<str>),
}

/// The tasks that run for a binding. Dropping it ends them all.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(super) struct BindingRuntime {
    /// The way to the provider.
    pub(super) connection: ProviderConnection<BindingKey>,
    /// The finalizer was removed from the binding.
    ended: bool,
    /// The object count of the last time that all objects were counted.
    last_count: Option<usize>,
    /// When each missing schema was first missed, by name.
    missed_schemas: HashMap<String, Instant>,
    schemas: Option<Subscription>,
    poll_request: Option<PollRequest>,
    engines: BTreeMap<String, RunningEngine>,
    releasers: BTreeMap<String, (Drain, Link)>,
    claims: Option<RunningClaims>,
    cleanup: Option<RunningCleanup>,
    /// The guard that holds back deletions, from the first engine on.
    deletions: Option<(Arc<Deletions>, Link)>,
    export_deletion: Option<(Attempt<(), String>, Link)>,
    paused: bool,
    relink: bool,
    /// Whether the provider's objects are kept when the binding or a CRD ends.
    keeps: bool,
    /// Until when the user consents to deletions.
    deletions_allowed: Option<Timestamp>,
    /// Whether the provider cannot be trusted, so that nothing is deleted.
    deletions_withheld: bool,
}

/// An engine and its progress. Dropping it stops the engine.
#[derive(Debug)]
struct RunningEngine {
    spec: EngineSpec,
    draining: bool,
    engine: Engine,
    progress: watch::Receiver<Progress>,
    _link: Link,
}

impl BindingRuntime {
    /// A runtime without tasks, for the binding of that UID.
    pub(super) fn new(uid: Option<String>, queue: &Queue<BindingKey>, key: &BindingKey) -> Self {
        Self {
            connection: ProviderConnection::new(uid, queue, key),
            ended: false,
            last_count: None,
            missed_schemas: HashMap::new(),
            schemas: None,
            poll_request: None,
            engines: BTreeMap::new(),
            releasers: BTreeMap::new(),
            claims: None,
            cleanup: None,
            deletions: None,
            export_deletion: None,
            paused: false,
            relink: false,
            keeps: false,
            deletions_allowed: None,
            deletions_withheld: false,
        }
    }

    /// Notes that the finalizer was removed, after which nothing is done for the binding.
    pub(super) fn end(&mut self) {
        self.ended = true;
    }

    /// Whether the finalizer was removed.
    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Notes the object count and returns the last known one.
    pub(super) fn count(&mut self, objects: Option<usize>) -> Option<usize> {
        self.last_count = objects.or(self.last_count);
        self.last_count
    }

    /// Notes that a schema is known.
    pub(super) fn schema_found(&mut self, name: &str) {
        self.missed_schemas.remove(name);
    }

    /// Notes that a schema is missing. Returns how much longer it may still arrive; `None` if it is certainly missing.
    pub(super) fn schema_missed(&mut self, name: &str) -> Option<Duration> {
        let since = self.missed_schemas.entry(name.to_owned()).or_insert_with(Instant::now);
        SCHEMA_PATIENCE
            .checked_sub(since.elapsed())
            .filter(|left| !left.is_zero())
    }

    /// Serves the binding by this session from now on.
    pub(super) fn attach(&mut self, session: &Arc<Session>) {
        if !self.connection.attach(session) {
            return;
        }
        // The new session has to be told about the claims.
        self.claims = None;
        self.poll_request = None;
        let enqueue = self.connection.enqueue();
        self.schemas = Some(session.schemas().subscribe(move |change| enqueue(change.priority)));
    }

    /// Requests how often exports are polled where they cannot be watched; `None` leaves that to the bundle.
    pub(super) fn poll_every(&mut self, interval: Option<Duration>) {
        let Some(session) = self.connection.session() else {
            return;
        };
        if interval.is_none() || self.poll_request.is_none() {
            self.poll_request = interval.map(|interval| session.poll_every(interval));
        }
    }

    /// The running engines, by name of their CRD.
    pub(super) fn engines(&self) -> BTreeMap<String, ObservedEngine> {
        let observed = |running: &RunningEngine| ObservedEngine {
            spec: running.spec.clone(),
            draining: running.draining,
            progress: running.progress.borrow().clone(),
        };
        self.engines
            .iter()
            .map(|(name, running)| (name.clone(), observed(running)))
            .collect()
    }

    /// Runs an engine for a CRD in place of the engine or releaser that runs for it.
    pub(super) fn run_engine(&mut self, name: String, spec: EngineSpec, engine: Engine) {
        engine.pause(self.paused);
        engine.relink(self.relink);
        engine.keep(self.keeps);
        let progress = engine.progress();
        self.releasers.remove(&name);
        let running = RunningEngine {
            _link: self.connection.link_milestones(progress.clone(), milestones),
            spec,
            draining: false,
            engine,
            progress,
        };
        self.engines.insert(name, running);
    }

    /// Stops an engine.
    pub(super) fn stop_engine(&mut self, name: &str) {
        self.engines.remove(name);
    }

    /// Makes an engine delete all its objects.
    pub(super) fn drain_engine(&mut self, name: &str) {
        if let Some(running) = self.engines.get_mut(name) {
            running.draining = true;
            running.engine.drain();
        }
    }

    /// Pauses or resumes all engines and claims.
    pub(super) fn pause(&mut self, paused: bool) {
        let changed = self.paused != paused;
        self.paused = paused;
        for running in self.engines.values() {
            running.engine.pause(paused);
        }
        if changed {
            self.push_claims();
        }
    }

    /// Notes until when the user consents to a takeover by another provider or cluster, and to deletions.
    pub(super) fn consent(&mut self, takeover: Option<Timestamp>, deletions: Option<Timestamp>) {
        let relink = takeover.is_some();
        let changed = self.relink != relink;
        self.relink = relink;
        let begins = self.deletions_allowed.is_none() && deletions.is_some();
        self.deletions_allowed = deletions;
        if changed {
            self.push_claims();
        }
        if let Some((guard, _)) = &self.deletions {
            guard.consent(deletions);
        }
        for running in self.engines.values() {
            running.engine.relink(self.relink);
            if begins {
                running.engine.look_again();
            }
        }
    }

    /// Notes whether the provider's objects are kept when the binding or a CRD ends.
    pub(super) fn keep(&mut self, keeps: bool) {
        self.keeps = keeps;
        for running in self.engines.values() {
            running.engine.keep(keeps);
        }
    }

    /// Ends the orphans that the engines and claims of the binding show now.
    pub(super) fn end_orphans(&self, binding: &str, action: OrphanAction) {
        for running in self.engines.values() {
            let orphans = running.progress.borrow().orphans.set;
            running.engine.end_orphans(action, orphans);
        }
        if let Some(session) = self.connection.session() {
            let claims = self.observed_claims().progress;
            session.claims().end_orphans(binding, action, &claims);
        }
    }

    /// Ends the retention of a copy as the user ordered.
    pub(super) fn end_retention(&self, order: &RetentionOrder) -> Result<(), EndRetentionError> {
        let running = self.engines.get(&names::bound_schema(&order.resource));
        let running = running.ok_or(EndRetentionError::NotRetained)?;
        running
            .engine
            .end_retention(order.action, &order.namespace, &order.name)
    }

    /// Withholds all deletions and pauses the claims, or no longer.
    pub(super) fn withhold_deletions(&mut self, withheld: bool) {
        let before = std::mem::replace(&mut self.deletions_withheld, withheld);
        if let Some((guard, _)) = &self.deletions {
            guard.withhold(withheld);
        }
        if before != withheld {
            self.push_claims();
        }
    }

    /// The deletion guard of the binding.
    pub(super) fn deletions(&mut self) -> Arc<Deletions> {
        let (guard, _) = self.deletions.get_or_insert_with(|| {
            let guard = Arc::<Deletions>::default();
            guard.consent(self.deletions_allowed);
            guard.withhold(self.deletions_withheld);
            let link = self.connection.link_milestones(guard.orphaned(), |orphaned| *orphaned);
            (guard, link)
        });
        Arc::clone(guard)
    }

    /// The running releasers, by name of their CRD.
    pub(super) fn releasers(&self) -> BTreeMap<String, (DrainMode, DrainProgress)> {
        let observed = |releaser: &Drain| (releaser.mode(), releaser.progress().borrow().clone());
        self.releasers
            .iter()
            .map(|(name, (releaser, _))| (name.clone(), observed(releaser)))
            .collect()
    }

    /// Runs a releaser for a CRD in place of the engine or releaser that runs for it.
    pub(super) fn run_releaser(&mut self, name: String, releaser: Drain) {
        let link = self.connection.link_throttled(releaser.progress(), is_done);
        self.engines.remove(&name);
        self.releasers.insert(name, (releaser, link));
    }

    /// Whether the objects of a CRD that stays were let go, and none is left.
    pub(super) fn has_let_go(&self, name: &str) -> bool {
        let releaser = self.releasers.get(name).map(|(releaser, _)| releaser);
        releaser.is_some_and(|releaser| releaser.mode() == DrainMode::LetGo && is_done(&releaser.progress().borrow()))
    }

    /// Stops a releaser.
    pub(super) fn stop_releaser(&mut self, name: &str) {
        self.releasers.remove(name);
    }

    /// Progress of the deletion of the export, once it was requested.
    pub(super) fn export_deletion(&self) -> Option<ExportDeletion> {
        let (attempt, _) = self.export_deletion.as_ref()?;
        Some(match attempt.outcome() {
            None => ExportDeletion::Running,
            Some(Ok(())) => ExportDeletion::Done,
            Some(Err(message)) => ExportDeletion::Failing(message),
        })
    }

    /// Keeps an attempt to delete the export.
    pub(super) fn run_export_deletion(&mut self, attempt: Attempt<(), String>) {
        let link = self.connection.link(attempt.changes());
        self.export_deletion = Some((attempt, link));
    }

    /// Stops the attempt to delete the export, unless it succeeded.
    pub(super) fn stop_export_deletion(&mut self) {
        if self.export_deletion() != Some(ExportDeletion::Done) {
            self.export_deletion = None;
        }
    }
}

/// Whether a releaser or a cleanup has no object left.
fn is_done(released: &DrainProgress) -> bool {
    released.remaining == Some(0)
}

/// The facts of an engine's progress whose change is reported at once.
fn milestones(progress: &Progress) -> [bool; 8] {
    [
        progress.consumer_synced,
        progress.provider_synced,
        progress.problem.is_some(),
        progress.failing > 0,
        progress.remaining == Some(0),
        progress.objects == 0,
        progress.orphans.set.count > 0,
        progress.retained.count > 0,
    ]
}
