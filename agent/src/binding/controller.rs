//! The queue of bindings, and what puts keys into it.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use bindery_api::{
    labels,
    v1alpha2::{APIServiceBinding, APIServiceBindingBundle},
};
use bindery_runtime::{
    cache::{Change, Subscription},
    queue::{Priority, Queue},
};
use kube::ResourceExt as _;
use parking_lot::Mutex;
use tokio_util::task::AbortOnDropHandle;

use super::{
    contract_pin,
    runtime::{BindingKey, BindingRuntime},
};
use crate::controller::{context::ControllerContext, ownership::bundle_of};

/// Bindings that are reconciled at the same time.
const WORKERS: usize = 4;

/// The controller of bindings.
#[derive(Debug)]
pub struct BindingController {
    pub(super) context: ControllerContext,
    pub(super) queue: Queue<BindingKey>,
    pub(super) runtimes: Mutex<HashMap<Arc<str>, BindingRuntime>>,
    /// Names of the CRDs that each binding needs or owns, by name of the binding.
    pub(super) needed_crds: Mutex<HashMap<Arc<str>, BTreeSet<String>>>,
}

/// The running controller of bindings. Dropping it stops the controller.
#[derive(Debug)]
pub struct RunningBindingController {
    _subscriptions: [Subscription; 4],
    _workers: Vec<AbortOnDropHandle<()>>,
}

impl BindingController {
    /// Starts the controller. All caches of the consumer must be complete.
    pub fn start(context: ControllerContext) -> RunningBindingController {
        let controller = Arc::new(Self {
            context,
            queue: Queue::new(),
            runtimes: Mutex::default(),
            needed_crds: Mutex::default(),
        });
        let workers = (0..WORKERS).map(|_| tokio::spawn(work(Arc::clone(&controller))));
        RunningBindingController {
            _subscriptions: controller.subscribe(),
            _workers: workers.map(AbortOnDropHandle::new).collect(),
        }
    }

    /// Queues keys when bindings, Secrets, CRDs or bundles change.
    fn subscribe(self: &Arc<Self>) -> [Subscription; 4] {
        let (bindings, secrets) = (Arc::downgrade(self), Arc::downgrade(self));
        let (crds, bundles) = (Arc::downgrade(self), Arc::downgrade(self));
        let consumer = &self.context.consumer;
        [
            consumer.bindings.subscribe(move |change| {
                let Some(controller) = bindings.upgrade() else { return };
                let key = BindingKey::Binding(Arc::clone(&change.key.name));
                controller.queue.add(key, change.priority);
                let (old, new) = (change.old.map(AsRef::as_ref), change.new.map(AsRef::as_ref));
                if claims_changed(old, new) {
                    controller.enqueue_all(change.priority);
                }
                if let Some(uid) = abandoned_contract(old, new) {
                    controller.queue.add(BindingKey::Contract(uid.into()), change.priority);
                }
            }),
            consumer.secrets.subscribe(move |change| {
                let Some(controller) = secrets.upgrade() else { return };
                let secret = change.new.or(change.old);
                let contract = secret.and_then(|secret| secret.labels().get(labels::CONTRACT_UID).cloned());
                controller.secret_changed(&change.key.name, contract.as_deref(), change.priority);
            }),
            consumer.crds.subscribe(move |change| {
                let Some(controller) = crds.upgrade() else { return };
                let needed = controller.needed_crds.lock();
                for (binding, _) in needed.iter().filter(|(_, names)| names.contains(&*change.key.name)) {
                    let key = BindingKey::Binding(Arc::clone(binding));
                    controller.queue.add(key, change.priority);
                }
            }),
            consumer.bundles.subscribe(move |change| {
                let Some(controller) = bundles.upgrade() else { return };
                controller.bundle_changed(change);
            }),
        ]
    }

    /// Queues the bindings of a bundle that changed, and the contract that it no longer names.
    fn bundle_changed(&self, change: &Change<'_, APIServiceBindingBundle>) {
        let (old, new, priority) = (change.old, change.new, change.priority);
        let before = old.and_then(|bundle| bundle.contract_uid());
        if let Some(uid) = before.filter(|_| new.and_then(|bundle| bundle.contract_uid()) != before) {
            self.queue.add(BindingKey::Contract(uid.into()), priority);
            // A binding may be refused because the bundle's konnector served the contract.
            self.enqueue_all(priority);
        }
        if let Some((old, new)) = old.zip(new)
            && !contract_pin::concerns_bindings(old, new)
        {
            return;
        }
        let uids: Vec<_> = [old, new]
            .into_iter()
            .flatten()
            .filter_map(|bundle| bundle.uid())
            .collect();
        self.enqueue(priority, |binding| {
            bundle_of(binding).is_some_and(|owner| uids.contains(&owner.uid))
        });
    }

    /// Queues all bindings that were observed at least once.
    fn enqueue_all(&self, priority: Priority) {
        for binding in self.needed_crds.lock().keys() {
            self.queue.add(BindingKey::Binding(Arc::clone(binding)), priority);
        }
    }

    /// Queues the bindings that a Secret concerns: by its name, or as the stored credential of their contract.
    fn secret_changed(&self, name: &str, contract: Option<&str>, priority: Priority) {
        self.enqueue(priority, |binding| {
            binding.spec.kubeconfig_secret_ref.name == name
                || (contract.is_some() && binding.contract_uid() == contract)
        });
        if let Some(contract) = contract {
            self.queue.add(BindingKey::Contract(contract.into()), priority);
        }
    }

    /// Queues the bindings that a change concerns.
    fn enqueue(&self, priority: Priority, is_concerned: impl Fn(&APIServiceBinding) -> bool) {
        for binding in self.context.consumer.bindings.list(is_concerned) {
            self.queue.add(BindingKey::Binding(binding.name_any().into()), priority);
        }
    }
}

/// Returns the contract that a binding was pinned to before it was deleted or pinned to another contract.
fn abandoned_contract<'a>(old: Option<&'a APIServiceBinding>, new: Option<&APIServiceBinding>) -> Option<&'a str> {
    let before = old.and_then(APIServiceBinding::contract_uid);
    before.filter(|_| new.and_then(APIServiceBinding::contract_uid) != before)
}

/// Whether the claims of a known binding changed, which concerns bindings of the same contract that share copies with it.
fn claims_changed(old: Option<&APIServiceBinding>, new: Option<&APIServiceBinding>) -> bool {
    let claims = |binding: Option<&APIServiceBinding>| {
        let status = binding?.status.as_ref()?;
        Some((status.contract_uid.clone()?, status.permission_claims.clone()))
    };
    old.is_some() && claims(old) != claims(new)
}

/// Reconciles queued keys until dropped.
async fn work(controller: Arc<BindingController>) {
    while let Some(work) = controller.queue.next().await {
        controller.reconcile(work.key()).await.settle(work);
    }
}

#[cfg(test)]
#[path = "tests/controller.rs"]
mod tests;
