//! Sends heartbeats to the provider, with the UID of the consumer cluster, and with the next step of the contract's holder. Only the
//! holder sends any.

use std::{future::Future, sync::Arc, time::Duration};

use bindery_api::{
    Condition, Conditions as _, Duration as ApiDuration, conditions,
    holder::{HELD, HolderRecord, RecordedHolder},
    names::CLUSTER_BINDING,
    v1alpha2::{ClusterBinding, ClusterBindingStatus, ClusterBindingSync, SecretRef},
};
use bindery_runtime::{backoff::Backoff, errors};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::{
    sync::Notify,
    time::{Instant, sleep},
};

pub use super::session_core::Heartbeat;
use super::{
    provider_rights::{LIST_CLUSTER_BINDINGS, WATCH_CLUSTER_BINDINGS},
    session_core::SessionCore,
};
use crate::{
    holder::{Finding, Standing},
    patch,
};

/// Pauses between failed heartbeats.
const RETRY: Backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(15));
/// The least pause between two decisions, however often the task is woken.
const PAUSE_MIN: Duration = Duration::from_millis(200);
/// Why a contract is unfenced whose record may not be read.
const UNREADABLE: &str = "the konnector may not read the ClusterBinding of the contract";
/// A contest is noted on the provider in at most this many attempts, since others write the ClusterBinding too.
const CONTEST_ATTEMPTS: usize = 8;

/// The konnector as it presents itself in a heartbeat.
#[derive(Clone, Debug)]
pub struct HeartbeatSender<'a> {
    /// UID of this cluster's kube-system namespace.
    pub cluster_uid: &'a str,
    /// The heartbeat interval that the konnector promises.
    pub interval: Duration,
    /// The Secret with the kubeconfig.
    pub secret: Option<&'a SecretRef>,
    /// Whether the user consents to take the contract over from another cluster.
    pub consent: bool,
    /// When the credential in use expires; `None` if it never does.
    pub credential_expires: Option<Timestamp>,
    /// How far the objects of the contract are in sync; `None` if nothing is synced.
    pub sync: Option<&'a ClusterBindingSync>,
    /// The next step of the contract's holder.
    pub step: Option<&'a HolderRecord>,
}

/// What to do about the next heartbeat.
#[derive(Debug, PartialEq)]
pub enum HeartbeatDecision {
    /// Wait: the ClusterBinding was not listed yet.
    Unknown,
    /// Report that the ClusterBinding does not exist.
    Missing,
    /// Send none: the contract serves another cluster.
    OtherCluster {
        /// UID of that cluster's kube-system namespace.
        recorded: String,
    },
    /// Send none: this konnector does not hold the contract.
    Withheld,
    /// Send a heartbeat with this patch.
    Beat(Box<Value>),
    /// Send none for this time: the provider accepted one a short while ago, and can be read.
    Rest(Duration),
    /// Send none for this time: the contract is given up, or the Lease went back in time meanwhile.
    Wait(Duration),
}

/// Decides about the next heartbeat. `since` is the time since the last one that the provider accepted.
pub fn decide(
    seen: Option<&ClusterBinding>,
    synced: bool,
    sender: &HeartbeatSender<'_>,
    since: Option<Duration>,
    now: Timestamp,
) -> HeartbeatDecision {
    let Some(seen) = seen else {
        return if synced {
            HeartbeatDecision::Missing
        } else {
            HeartbeatDecision::Unknown
        };
    };
    let recorded = seen
        .status
        .as_ref()
        .and_then(|status| status.consumer_cluster_uid.as_deref());
    if let Some(other) = recorded.filter(|uid| *uid != sender.cluster_uid && !sender.consent) {
        return HeartbeatDecision::OtherCluster {
            recorded: other.to_owned(),
        };
    }
    // Half of the interval, so that the provider tolerates one lost heartbeat.
    let period = sender.interval / 2;
    let is_taken_over = recorded.is_some_and(|uid| uid != sender.cluster_uid);
    match since {
        Some(since) if since < period && !is_taken_over => HeartbeatDecision::Rest(period.saturating_sub(since)),
        _ => HeartbeatDecision::Beat(Box::new(status_patch(seen, sender, now))),
    }
}

/// Returns the patch of the ClusterBinding that is a heartbeat.
fn status_patch(seen: &ClusterBinding, sender: &HeartbeatSender<'_>, now: Timestamp) -> Value {
    let mut list = seen
        .status
        .as_ref()
        .map(|status| status.conditions.clone())
        .unwrap_or_default();
    conditions::set(&mut list, conditions::true_condition("SecretValid"), now);
    conditions::set(&mut list, conditions::true_condition("ValidVersion"), now);
    if let Some(step) = sender.step {
        conditions::set(&mut list, step.condition(), now);
    }
    conditions::set_summary(&mut list, now);
    let status = ClusterBindingStatus {
        last_heartbeat_time: Some(Time(now)),
        heartbeat_interval: Some(ApiDuration::from(sender.interval)),
        konnector_version: Some(format!("v{}", env!("CARGO_PKG_VERSION"))),
        consumer_secret_ref: sender.secret.cloned(),
        consumer_cluster_uid: Some(sender.cluster_uid.to_owned()),
        credential_expiration_time: sender.credential_expires.map(Time),
        sync: sender.sync.cloned(),
        conditions: list,
    };
    let mut status = json!(status);
    // A merge patch keeps what it does not name.
    for (field, is_absent) in [
        ("/credentialExpirationTime", sender.credential_expires.is_none()),
        ("/sync", sender.sync.is_none()),
        ("/sync/lag", sender.sync.is_some_and(|sync| sync.lag.is_none())),
    ] {
        if is_absent {
            clear(&mut status, field);
        }
    }
    patch::status(&seen.metadata, status)
}

/// Sets a field to null, which removes it where the object is patched.
fn clear(status: &mut Value, pointer: &str) {
    let (parent, field) = pointer.rsplit_once('/').unwrap_or_default();
    if let Some(Value::Object(parent)) = status.pointer_mut(parent) {
        parent.insert(field.to_owned(), Value::Null);
    }
}

/// Sends heartbeats until dropped. `wake` is notified when something that the decision depends on has changed.
pub(super) async fn run(core: Arc<SessionCore>, wake: Arc<Notify>) {
    let api: Api<ClusterBinding> = Api::namespaced(core.sides.provider.lease.clone(), &core.contract.namespace);
    let beat = |since| {
        let (core, api) = (Arc::clone(&core), api.clone());
        async move { beat(&core, &api, since).await }
    };
    drive(beat, |outcome| core.note(outcome), &wake).await;
}

/// Calls `beat` whenever a heartbeat may be due, with the time since the last accepted one. `note` takes each outcome and
/// returns the pause before the next decision.
async fn drive<F>(
    beat: impl Fn(Option<Duration>) -> F,
    note: impl Fn(Result<HeartbeatDecision, kube::Error>) -> Option<Duration>,
    wake: &Notify,
) where
    F: Future<Output = Result<HeartbeatDecision, kube::Error>>,
{
    let mut last: Option<Instant> = None;
    let mut failures = 0;
    loop {
        let outcome = beat(last.map(|last| last.elapsed())).await;
        match &outcome {
            Ok(HeartbeatDecision::Beat(_)) => {
                last = Some(Instant::now());
                failures = 0;
            }
            Ok(_) => {}
            Err(_) => failures += 1,
        }
        let failed = outcome.is_err();
        let pause = note(outcome);
        sleep(PAUSE_MIN).await;
        let pause = if failed { Some(RETRY.delay(failures - 1)) } else { pause };
        if let Some(pause) = pause {
            tokio::select! { () = sleep(pause) => {}, () = wake.notified() => {} }
        }
    }
}

impl SessionCore {
    /// Publishes the outcome of a heartbeat. Returns the pause before the next decision, unless the task is woken.
    fn note(&self, outcome: Result<HeartbeatDecision, kube::Error>) -> Option<Duration> {
        match outcome {
            Ok(HeartbeatDecision::Beat(_)) => {
                self.metrics.heartbeat(true);
                self.set_heartbeat(Heartbeat::Beating);
                None
            }
            Ok(HeartbeatDecision::Rest(pause)) => {
                // The ClusterBinding may have been asked for a proof since, and not have been read at first.
                self.set_heartbeat(Heartbeat::Beating);
                Some(pause)
            }
            Ok(HeartbeatDecision::Wait(pause)) => Some(pause),
            Ok(HeartbeatDecision::OtherCluster { recorded }) => {
                self.set_heartbeat(Heartbeat::OtherCluster { recorded });
                Some(self.settings.heartbeat_interval)
            }
            Ok(HeartbeatDecision::Withheld) => {
                self.set_heartbeat(Heartbeat::Withheld);
                Some(self.settings.heartbeat_interval)
            }
            Ok(HeartbeatDecision::Missing) => {
                self.metrics.heartbeat(false);
                let namespace = &self.contract.namespace;
                let message = format!("ClusterBinding {namespace}/{CLUSTER_BINDING} does not exist");
                self.set_heartbeat(Heartbeat::Failing { message });
                Some(self.settings.heartbeat_interval)
            }
            Ok(HeartbeatDecision::Unknown) => {
                if let Some(message) = self.cluster_binding.health().borrow().failure.clone() {
                    self.metrics.heartbeat(false);
                    self.set_heartbeat(Heartbeat::Failing { message });
                }
                let verification = self.verification.borrow();
                if verification.lacks(LIST_CLUSTER_BINDINGS) || verification.lacks(WATCH_CLUSTER_BINDINGS) {
                    self.holder.go_unfenced(UNREADABLE);
                }
                drop(verification);
                Some(self.settings.polling_interval)
            }
            Err(error) => {
                self.metrics.heartbeat(false);
                // A conflict means that the cache lags; the next decision sees the newer object, if the konnector may still read it.
                if errors::code(&error) != Some(409) || self.verification.borrow().lacks(LIST_CLUSTER_BINDINGS) {
                    let message = errors::explain(&error);
                    self.set_heartbeat(Heartbeat::Failing { message });
                }
                None
            }
        }
    }
}

/// Decides about a heartbeat and sends it, if this konnector holds the contract or may take it. A credential that the API server
/// refuses is marked as refused.
async fn beat(
    core: &SessionCore,
    api: &Api<ClusterBinding>,
    since: Option<Duration>,
) -> Result<HeartbeatDecision, kube::Error> {
    let holder = &core.holder;
    if holder.is_ending() {
        return end(core, api).await;
    }
    let Some(cluster_uid) = core.consumer.cluster_uid() else {
        return Ok(HeartbeatDecision::Unknown);
    };
    let secret = core.settings.secret.clone();
    let sync = core.surroundings.tally.sync();
    let sender = HeartbeatSender {
        cluster_uid: &cluster_uid,
        interval: core.settings.heartbeat_interval,
        secret: Some(&secret),
        consent: core.has_consent(),
        credential_expires: core
            .credential
            .held()
            .schedule
            .expires(Instant::now(), Timestamp::now()),
        sync: sync.as_ref(),
        step: None,
    };
    let cached = core.cluster_binding.get(&core.contract.namespace, CLUSTER_BINDING);
    let decide = |seen: Option<&ClusterBinding>, sender: &HeartbeatSender<'_>, since| {
        decide(seen, core.cluster_binding.is_synced(), sender, since, Timestamp::now())
    };
    let decision = decide(cached.as_deref(), &sender, since);
    if matches!(
        decision,
        HeartbeatDecision::Unknown | HeartbeatDecision::OtherCluster { .. }
    ) {
        // Where the provider's record cannot be read, a renewal of the Lease is all the proof that there is.
        if let Some(doubts) = holder.doubts().filter(|_| holder.is_unfenced()) {
            holder.renewed().await;
            holder.clear(doubts);
        }
        return Ok(decision);
    }
    if let Some(decision) = give_way(core, api, &sender, cached.as_deref()).await? {
        return Ok(decision);
    }
    let doubts = holder.doubts();
    if doubts.is_some() {
        // The consumer may have gone back in time: that shows in the answer to the next renewal of its Lease.
        holder.renewed().await;
    }
    let is_unproven = doubts.is_some() || holder.has_begun() || holder.judge(&recorded(cached.as_deref())).is_err();
    // A cache that is behind proves nothing against the holder, and one that was not listed since a restore nothing for it. Nor does it show
    // the version in which a first step is taken that was refused before.
    let seen = if is_unproven {
        match core.ask(read(core, api)).await {
            Ok(seen) => seen.map(Arc::new),
            Err(error) if errors::is_forbidden(&error) => {
                return unreadable(core, api, cached.as_deref(), doubts, error).await;
            }
            Err(error) => return Err(error),
        }
    } else {
        cached
    };
    let recorded = recorded(seen.as_deref());
    let accepted = holder.is_accepted(&recorded) || is_taken_over(seen.as_deref(), &sender);
    if !accepted && let Err(finding) = holder.judge(&recorded) {
        return withhold(core, api, &recorded, finding).await;
    }
    if let Some(record) = recorded.record.as_ref().filter(|_| !accepted) {
        holder.hold(record);
    }
    let is_new = accepted || holder.is_new();
    if let Some(doubts) = doubts {
        holder.clear(doubts);
    }
    let step = holder.next(&recorded, accepted);
    let sender = HeartbeatSender {
        step: Some(&step),
        ..sender
    };
    // Nothing is written before the first step is taken, so that it waits for no interval.
    let decision = decide(seen.as_deref(), &sender, since.filter(|_| !is_new));
    let HeartbeatDecision::Beat(patch) = &decision else {
        return Ok(decision);
    };
    if !holder.announce(&recorded, Some(&step), is_new).await {
        return Ok(HeartbeatDecision::Wait(PAUSE_MIN));
    }
    let params = PatchParams::default();
    let patch = Patch::Merge(patch);
    match core.ask(api.patch_status(CLUSTER_BINDING, &params, &patch)).await {
        Ok(_) => holder.accepted(step, recorded.binding.as_deref()),
        Err(error) if is_refused(&error) => {
            holder.go_unfenced("the provider does not let the konnector write the status of the ClusterBinding");
            return Err(error);
        }
        Err(error) => return Err(error),
    }
    Ok(decision)
}

/// Stops if the provider has the step of another konnector, which the cache shows. That does not wait for the Lease, so that a contest is
/// noted as soon as it is seen.
async fn give_way(
    core: &SessionCore,
    api: &Api<ClusterBinding>,
    sender: &HeartbeatSender<'_>,
    cached: Option<&ClusterBinding>,
) -> Result<Option<HeartbeatDecision>, kube::Error> {
    let holder = &core.holder;
    if !holder.is_foreign(&recorded(cached)) {
        return Ok(None);
    }
    // The heartbeat itself reads it too, and tells what is refused.
    let Ok(seen) = core.ask(read(core, api)).await else {
        return Ok(None);
    };
    let recorded = recorded(seen.as_ref());
    if holder.is_accepted(&recorded) || is_taken_over(seen.as_ref(), sender) {
        return Ok(None);
    }
    match holder.judge(&recorded) {
        Ok(()) => Ok(None),
        Err(finding) => withhold(core, api, &recorded, finding).await.map(Some),
    }
}

/// Goes on without the provider's record, which may not be read any more: as where it never could be read, a renewal of the Lease since the
/// doubts is all the proof that there is. What the watch showed before counts if no cache that is behind shows it.
async fn unreadable(
    core: &SessionCore,
    api: &Api<ClusterBinding>,
    cached: Option<&ClusterBinding>,
    doubts: Option<u64>,
    error: kube::Error,
) -> Result<HeartbeatDecision, kube::Error> {
    let (holder, recorded) = (&core.holder, recorded(cached));
    match holder.judge(&recorded) {
        Err(finding) if !finding.may_be_late() => withhold(core, api, &recorded, finding).await,
        _ => {
            holder.go_unfenced(UNREADABLE);
            if let Some(doubts) = doubts {
                holder.clear(doubts);
            }
            Err(error)
        }
    }
}

/// What the provider records of the holder.
fn recorded(seen: Option<&ClusterBinding>) -> RecordedHolder {
    seen.map(RecordedHolder::of).unwrap_or_default()
}

/// Whether the contract serves another cluster, and the user consents to take it over.
fn is_taken_over(seen: Option<&ClusterBinding>, sender: &HeartbeatSender<'_>) -> bool {
    let status = seen.and_then(|seen| seen.status.as_ref());
    let recorded = status.and_then(|status| status.consumer_cluster_uid.as_deref());
    sender.consent && recorded.is_some_and(|uid| uid != sender.cluster_uid)
}

/// Whether the provider refuses heartbeats for good: they are forbidden, or it does not serve them.
fn is_refused(error: &kube::Error) -> bool {
    let is_missing = errors::code(error) == Some(404) && !errors::is_object_gone(error, CLUSTER_BINDING);
    errors::is_forbidden(error) || is_missing
}

/// Reads the ClusterBinding of the contract as it is now. It is listed, since the konnector has the right to list it.
async fn read(core: &SessionCore, api: &Api<ClusterBinding>) -> Result<Option<ClusterBinding>, kube::Error> {
    let params = ListParams::default().fields(&format!("metadata.name={CLUSTER_BINDING}"));
    let found = api.list(&params).await?.items;
    tracing::debug!(contract = %core.contract.namespace, found = found.len(), "holder checked");
    Ok(found.into_iter().next())
}

/// Stops writing, because this konnector is not the recorded holder. If it was until now, and still leads in its own cluster, a second
/// cluster has taken the contract: that is noted on the provider, so that the other one stops too.
async fn withhold(
    core: &SessionCore,
    api: &Api<ClusterBinding>,
    recorded: &RecordedHolder,
    finding: Finding,
) -> Result<HeartbeatDecision, kube::Error> {
    let holder = &core.holder;
    let is_rival = holder.is_rival(finding);
    holder.wait(finding, recorded);
    if !is_rival {
        return Ok(HeartbeatDecision::Withheld);
    }
    holder.renew_now().await;
    for _ in 0..CONTEST_ATTEMPTS {
        let Some(seen) = core.ask(read(core, api)).await? else {
            break;
        };
        let recorded = RecordedHolder::of(&seen);
        let Some(record) = recorded.record.as_ref().filter(|_| holder.judge(&recorded).is_err()) else {
            break;
        };
        if !recorded.is_contested {
            let patch = contest(&seen, record, Timestamp::now());
            let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
            match core.ask(api.patch_status(CLUSTER_BINDING, &params, &patch)).await {
                Ok(_) => {}
                Err(error) if errors::code(&error) == Some(409) => continue,
                Err(error) => return Err(error),
            }
        }
        let contested = RecordedHolder {
            is_contested: true,
            ..recorded
        };
        holder.wait(Finding::Contested, &contested);
        break;
    }
    Ok(HeartbeatDecision::Withheld)
}

/// Returns the patch of the ClusterBinding that notes a contest.
fn contest(seen: &ClusterBinding, record: &HolderRecord, now: Timestamp) -> Value {
    with_conditions(seen, now, |list| {
        conditions::set(list, record.contested(), now);
    })
}

/// Gives the contract up, because its last binding ends: takes the record off the provider, and then out of the Lease. Where the
/// provider does not answer, its record stays, and the Lease's with it, by which this konnector may take the contract again.
async fn end(core: &SessionCore, api: &Api<ClusterBinding>) -> Result<HeartbeatDecision, kube::Error> {
    let holder = &core.holder;
    let done = HeartbeatDecision::Wait(core.settings.heartbeat_interval);
    if *holder.holding().standing().borrow() == Standing::Released {
        return Ok(done);
    }
    let Ok(seen) = core.ask(read(core, api)).await else {
        holder.ended(false);
        return Ok(done);
    };
    let recorded = recorded(seen.as_ref());
    let (Some(seen), Ok(())) = (seen.filter(|_| recorded.record.is_some()), holder.judge(&recorded)) else {
        holder.ended(recorded.record.is_none());
        return Ok(done);
    };
    if !holder.announce(&recorded, None, true).await {
        return Ok(HeartbeatDecision::Wait(PAUSE_MIN));
    }
    let now = Timestamp::now();
    let patch = with_conditions(&seen, now, |list| {
        conditions::remove(list, HELD);
    });
    let params = PatchParams::default();
    let patch = Patch::Merge(patch);
    match core.ask(api.patch_status(CLUSTER_BINDING, &params, &patch)).await {
        Ok(_) => holder.ended(true),
        Err(error) if errors::code(&error) == Some(409) => return Err(error),
        Err(_) => holder.ended(false),
    }
    Ok(done)
}

/// Returns the patch of a ClusterBinding that changes its conditions.
fn with_conditions(seen: &ClusterBinding, now: Timestamp, change: impl FnOnce(&mut Vec<Condition>)) -> Value {
    let mut list = seen.conditions().to_vec();
    change(&mut list);
    conditions::set_summary(&mut list, now);
    patch::status(&seen.metadata, json!({"conditions": list}))
}

impl SessionCore {
    /// Sends a request. A credential that the API server refuses is marked as refused.
    async fn ask<T>(&self, request: impl Future<Output = Result<T, kube::Error>>) -> Result<T, kube::Error> {
        let access = self.credential.held().access;
        let answer = request.await;
        if let Err(error) = &answer
            && errors::code(error) == Some(401)
        {
            self.credential.refuse(&access);
        }
        answer
    }
}

#[cfg(test)]
#[path = "tests/heartbeat.rs"]
mod tests;
