//! The controller of APIServiceBindings.
//!
//! One key per binding, worked on by one worker at a time: `observe` says what is seen, all of it from caches; `plan`
//! and, for a binding that is being deleted, `unbind` decide; `apply` writes; `status` says how it stands. What needs
//! the provider's answer runs beside that, in a session, so that a provider that hangs holds up no other binding.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use bindery_api::{
    adoption::Adoption,
    labels,
    v1alpha2::{APIServiceBinding, APIServiceBindingBundle, APIServiceBindingStatus},
};
use bindery_runtime::{
    backoff::Backoff,
    cache::Subscription,
    errors,
    queue::{Lane, Queue, Work},
};
use kube::ResourceExt as _;
use parking_lot::Mutex;
use tokio_util::task::AbortOnDropHandle;

pub mod apply;
pub mod claims;
pub mod consent;
pub mod credential;
pub mod left;
mod look;
pub mod observe;
mod pin;
pub mod plan;
pub mod resource;
pub mod runtime;
pub mod status;
pub mod unbind;

#[cfg(test)]
mod testing;

use crate::{
    bundle::Tally,
    common::Common,
    consumer::Consumer,
    engine,
    events::Recorder,
    metrics::Metrics,
    session::{Sessions, dial::Dialer, secret},
};
use observe::Observed;
use plan::Op;
use runtime::Runtime;

const WORKERS: usize = 4;
/// When to look again for a Secret that nobody seems to need.
const SWEEP_PAUSE: Duration = Duration::from_secs(5);

/// What to work on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    /// A binding, by name.
    Binding(Arc<str>),
    /// A contract, by UID: whether its stored credential is still needed.
    Contract(Arc<str>),
}

/// Settings of the controller.
#[derive(Clone, Debug)]
pub struct Options {
    /// The interval that is promised to providers.
    pub heartbeat_interval: Duration,
    /// How often what does not answer is asked again, at least.
    pub polling_interval: Duration,
    /// Which objects of the providers are created on this cluster.
    pub adoption: Adoption,
}

/// The controller.
#[derive(Debug)]
pub struct Controller {
    consumer: Consumer,
    sessions: Arc<Sessions>,
    dialer: Arc<Dialer>,
    tally: Tally,
    recorder: Recorder,
    metrics: Arc<Metrics>,
    sync_metrics: Arc<engine::Metrics>,
    settings: Options,
    queue: Queue<Key>,
    runtimes: Mutex<HashMap<Arc<str>, Runtime>>,
    /// The CRDs that each binding needs, also those that are not its own.
    needs: Mutex<HashMap<Arc<str>, BTreeSet<String>>>,
}

/// The controller at work. Ends when dropped.
#[derive(Debug)]
pub struct Running {
    _subscriptions: [Subscription; 4],
    _workers: Vec<AbortOnDropHandle<()>>,
}

/// That a key is to be worked on again after a while.
#[derive(Debug)]
enum Next {
    Done,
    Retry,
    Later(Duration),
}

impl Controller {
    /// Starts to work. All caches of the consumer must be complete.
    pub fn start(common: Common, sync_metrics: Arc<engine::Metrics>, settings: Options) -> Running {
        let controller = Arc::new(Self {
            consumer: common.consumer,
            sessions: common.sessions,
            dialer: common.dialer,
            tally: common.tally,
            recorder: common.recorder,
            metrics: common.metrics,
            sync_metrics,
            settings,
            queue: Queue::new(),
            runtimes: Mutex::default(),
            needs: Mutex::default(),
        });
        let workers = (0..WORKERS).map(|_| tokio::spawn(work(Arc::clone(&controller))));
        Running {
            _subscriptions: controller.subscribe(),
            _workers: workers.map(AbortOnDropHandle::new).collect(),
        }
    }

    fn subscribe(self: &Arc<Self>) -> [Subscription; 4] {
        let (bindings, secrets, crds) = (Arc::downgrade(self), Arc::downgrade(self), Arc::downgrade(self));
        let bundles = Arc::downgrade(self);
        [
            self.consumer.bindings.subscribe(move |change| {
                let Some(controller) = bindings.upgrade() else { return };
                controller
                    .queue
                    .add(Key::Binding(Arc::clone(&change.key.name)), change.lane);
                let (old, new) = (change.old.map(AsRef::as_ref), change.new.map(AsRef::as_ref));
                if claims_otherwise(old, new) {
                    controller.look_at_all(change.lane);
                }
                if let Some(uid) = left_contract(old, new) {
                    controller.queue.add(Key::Contract(uid.into()), change.lane);
                }
            }),
            self.consumer.secrets.subscribe(move |change| {
                let Some(controller) = secrets.upgrade() else { return };
                let secret = change.new.or(change.old);
                let contract = secret.and_then(|secret| secret.labels().get(labels::CONTRACT_UID).cloned());
                controller.secret_changed(&change.key.name, contract.as_deref(), change.lane);
            }),
            self.consumer.crds.subscribe(move |change| {
                let Some(controller) = crds.upgrade() else { return };
                let needs = controller.needs.lock();
                for (binding, _) in needs.iter().filter(|(_, names)| names.contains(&*change.key.name)) {
                    controller.queue.add(Key::Binding(Arc::clone(binding)), change.lane);
                }
            }),
            self.consumer.bundles.subscribe(move |change| {
                let Some(controller) = bundles.upgrade() else { return };
                controller.bundle_changed(
                    change.old.map(AsRef::as_ref),
                    change.new.map(AsRef::as_ref),
                    change.lane,
                );
            }),
        ]
    }

    /// What a bundle wants concerns its bindings; the contract that it leaves may have been the last that needed it.
    fn bundle_changed(&self, old: Option<&APIServiceBindingBundle>, new: Option<&APIServiceBindingBundle>, lane: Lane) {
        let pinned = |bundle: &APIServiceBindingBundle| bundle.status.as_ref()?.contract_uid.clone();
        let before = old.and_then(pinned);
        if let Some(uid) = before.filter(|before| new.and_then(pinned).as_ref() != Some(before)) {
            self.queue.add(Key::Contract(uid.into()), lane);
        }
        if let Some((old, new)) = old.zip(new)
            && !pin::says_otherwise(old, new)
        {
            return;
        }
        let uids: Vec<_> = [old, new]
            .into_iter()
            .flatten()
            .filter_map(kube::ResourceExt::uid)
            .collect();
        let is_owned =
            |binding: &APIServiceBinding| observe::bundle_of(binding).is_some_and(|owner| uids.contains(&owner.uid));
        for binding in self.consumer.bindings.list(is_owned) {
            self.queue.add(Key::Binding(binding.name_any().into()), lane);
        }
    }

    /// Has all bindings looked at that were before.
    fn look_at_all(&self, lane: Lane) {
        for binding in self.needs.lock().keys() {
            self.queue.add(Key::Binding(Arc::clone(binding)), lane);
        }
    }

    fn secret_changed(&self, name: &str, contract: Option<&str>, lane: Lane) {
        let concerned = self.consumer.bindings.list(|binding| {
            let pinned = pinned(binding);
            binding.spec.kubeconfig_secret_ref.name == name || (contract.is_some() && pinned == contract)
        });
        for binding in concerned {
            self.queue.add(Key::Binding(binding.name_any().into()), lane);
        }
        if let Some(contract) = contract {
            self.queue.add(Key::Contract(contract.into()), lane);
        }
    }

    async fn reconcile(&self, key: &Key) -> Next {
        match key {
            Key::Binding(name) => {
                let Some(binding) = self.consumer.bindings.get("", name) else {
                    if let Some(runtime) = self.runtimes.lock().remove(name) {
                        self.tally.forget(runtime.uid());
                    }
                    self.needs.lock().remove(name);
                    return Next::Done;
                };
                // Nobody else works on this key, so the runtime is missed by nobody.
                let uid = binding.metadata.uid.as_ref();
                let known = self.runtimes.lock().remove(name).filter(|runtime| runtime.is_for(uid));
                let mut runtime = known.unwrap_or_else(|| Runtime::new(uid.cloned(), &self.queue, key));
                let next = self.serve(&binding, &mut runtime, key).await;
                self.runtimes.lock().insert(Arc::clone(name), runtime);
                next
            }
            Key::Contract(uid) => self.sweep(uid).await,
        }
    }

    /// Brings one binding a step further.
    async fn serve(&self, binding: &Arc<APIServiceBinding>, runtime: &mut Runtime, key: &Key) -> Next {
        if runtime.has_ended() {
            return Next::Done;
        }
        let seen = self.look(binding, runtime, key);
        if binding.metadata.deletion_timestamp.is_some() {
            return self.end(&seen, runtime, key).await;
        }
        let plan = plan::plan(&seen);
        let changes = |op: &Op| matches!(op, Op::SetFinalizer | Op::AcceptClaims(_));
        let changes = plan.ops.iter().any(changes);
        let outcome = self.apply(binding, plan.ops.clone(), runtime).await;
        let failed = !outcome.failures.is_empty() || outcome.problem.is_some();
        if let Some(problem) = &outcome.problem {
            if outcome.is_stale {
                tracing::debug!(binding = binding.name_any(), problem, "binding is tried again");
            } else {
                tracing::warn!(binding = binding.name_any(), problem, "binding is tried again");
            }
        }
        self.tell_left_behind(&seen);
        // The binding itself was changed: the next look sees that.
        if !changes {
            let status = status::live(&seen, &plan, &outcome.failures);
            if let (Some(session), Some(_)) = (runtime.session(), seen.export()) {
                session
                    .reports()
                    .export(seen.export_name(), &status::report(&seen, &status, &plan));
                for (name, crd) in seen.owned() {
                    session.reports().schema(name, crd);
                }
            }
            if !self.tell_status(binding, &status, runtime, key).await {
                return Next::Retry;
            }
        }
        if failed { Next::Retry } else { Next::Done }
    }

    /// Brings the end of a binding a step further.
    async fn end(&self, seen: &Observed, runtime: &mut Runtime, key: &Key) -> Next {
        let binding = &seen.binding;
        let mut ending = unbind::plan(seen);
        self.tell_left_behind(seen);
        let ends = ending.ops.contains(&Op::ClearFinalizer);
        let outcome = self.apply(binding, std::mem::take(&mut ending.ops), runtime).await;
        if ends && outcome.problem.is_none() {
            runtime.end();
            tracing::info!(binding = binding.name_any(), "unbound");
            let object = apply::reference(binding);
            match &ending.leaves {
                Some(leaves) => self.recorder.warn(&object, "ProviderKeepsExport", leaves.clone()),
                None => self
                    .recorder
                    .normal(&object, "Unbound", "nothing of the binding is left"),
            }
            return Next::Done;
        }
        match &outcome.problem {
            Some(problem) if outcome.is_stale => {
                tracing::debug!(binding = binding.name_any(), problem, "unbind is tried again");
            }
            Some(problem) => {
                tracing::warn!(binding = binding.name_any(), problem, "unbind is tried again");
                ending.message.clone_from(problem);
            }
            None => {}
        }
        if !binding.finalizers().is_empty() && !ending.message.is_empty() {
            let status = status::ending(seen, &ending);
            if !self.tell_status(binding, &status, runtime, key).await {
                return Next::Retry;
            }
        }
        if outcome.problem.is_some() {
            Next::Retry
        } else {
            Next::Done
        }
    }

    /// Says how a binding stands, or later if that is mere progress. Answers whether that went well.
    async fn tell_status(
        &self,
        binding: &APIServiceBinding,
        status: &APIServiceBindingStatus,
        runtime: &mut Runtime,
        key: &Key,
    ) -> bool {
        let lull = runtime.lull.left();
        if let Some(left) = lull.filter(|_| status::is_mere_progress(binding.status.as_ref(), status)) {
            self.queue.add_after(key.clone(), left);
            return true;
        }
        match self.write_status(binding, status).await {
            Ok(true) => runtime.lull.begin(),
            Ok(false) => {}
            Err(error) => {
                tracing::debug!(binding = binding.name_any(), error = %errors::explain(&error), "status not written");
                return false;
            }
        }
        true
    }

    /// Tells of copies that nobody can withdraw any more.
    fn tell_left_behind(&self, seen: &Observed) {
        if let Some(left) = claims::left_behind(seen) {
            let object = apply::reference(&seen.binding);
            self.recorder.warn(&object, "CopiesLeftOnProvider", left);
        }
    }

    /// Deletes the stored credential of a contract that neither binding nor bundle has.
    async fn sweep(&self, contract_uid: &Arc<str>) -> Next {
        let is_pinned = |binding: &APIServiceBinding| pinned(binding) == Some(&**contract_uid);
        let stored = self
            .consumer
            .secrets
            .get(&self.consumer.home, &secret::name(contract_uid));
        let is_needed = || !self.consumer.bindings.list(is_pinned).is_empty() || self.is_bundled(Some(contract_uid));
        if stored.is_none() || is_needed() {
            return Next::Done;
        }
        if self.sessions.is_open(contract_uid) {
            return Next::Later(SWEEP_PAUSE);
        }
        match self.delete_stored(contract_uid).await {
            Ok(()) => Next::Done,
            Err(error) => {
                tracing::warn!(error = %errors::explain(&error), "a credential that nobody needs is not deleted");
                Next::Retry
            }
        }
    }
}

fn pinned(binding: &APIServiceBinding) -> Option<&str> {
    binding.status.as_ref()?.contract_uid.as_deref()
}

/// The contract that a binding had and has no more, because it is gone or has another one.
fn left_contract<'a>(old: Option<&'a APIServiceBinding>, new: Option<&APIServiceBinding>) -> Option<&'a str> {
    old.and_then(pinned)
        .filter(|before| new.and_then(pinned) != Some(before))
}

/// Whether a binding that was there claims something else now: others of its contract may share copies with it.
fn claims_otherwise(old: Option<&APIServiceBinding>, new: Option<&APIServiceBinding>) -> bool {
    let claims = |binding: Option<&APIServiceBinding>| {
        let status = binding?.status.as_ref()?;
        Some((status.contract_uid.clone()?, status.permission_claims.clone()))
    };
    old.is_some() && claims(old) != claims(new)
}

async fn work(controller: Arc<Controller>) {
    while let Some(work) = controller.queue.next().await {
        let next = controller.reconcile(work.key()).await;
        settle(work, &next);
    }
}

fn settle(work: Work<Key>, next: &Next) {
    match next {
        Next::Done => drop(work),
        Next::Retry => work.retry(Backoff::OBJECT),
        Next::Later(pause) => work.again_after(*pause),
    }
}

#[cfg(test)]
mod tests {
    use bindery_api::v1alpha2::{APIServiceBindingSpec, APIServiceBindingStatus, GroupResource, PermissionClaim};

    use super::*;

    #[test]
    fn a_contract_is_swept_when_a_binding_leaves_it() {
        let check = |old: Option<Option<&str>>, new: Option<Option<&str>>, expect| {
            let binding = |contract: Option<&str>| {
                let mut binding = APIServiceBinding::new("cowboys", APIServiceBindingSpec::default());
                binding.status = Some(APIServiceBindingStatus {
                    contract_uid: contract.map(str::to_owned),
                    ..APIServiceBindingStatus::default()
                });
                binding
            };
            let (old, new) = (old.map(binding), new.map(binding));
            assert_eq!(left_contract(old.as_ref(), new.as_ref()), expect);
        };
        check(Some(Some("a")), None, Some("a"));
        check(Some(Some("a")), Some(Some("b")), Some("a"));
        check(Some(Some("a")), Some(None), Some("a"));
        check(Some(Some("a")), Some(Some("a")), None);
        check(Some(None), Some(Some("a")), None);
        check(None, Some(Some("a")), None);
    }

    #[test]
    fn who_shares_a_contract_hears_of_other_claims() {
        let binding = |claims: &[&str]| {
            let mut binding = APIServiceBinding::new("cowboys", APIServiceBindingSpec::default());
            let claim = |resource: &&str| PermissionClaim {
                group_resource: GroupResource::new("", *resource),
                ..PermissionClaim::default()
            };
            binding.status = Some(APIServiceBindingStatus {
                contract_uid: Some("a".to_owned()),
                permission_claims: claims.iter().map(claim).collect(),
                ..APIServiceBindingStatus::default()
            });
            binding
        };
        let (none, some) = (binding(&[]), binding(&["secrets"]));
        assert!(claims_otherwise(Some(&none), Some(&some)));
        assert!(claims_otherwise(Some(&some), None));
        assert!(!claims_otherwise(Some(&some), Some(&some)));
        assert!(!claims_otherwise(None, Some(&some)), "it is looked at itself");
    }
}
