//! The queue of bundles, what puts keys into it, and what a worker does with them.

use std::{collections::HashMap, sync::Arc};

use bindery_api::v1alpha2::{APIServiceBinding, APIServiceBindingBundle};
use bindery_runtime::{
    cache::{Change, Subscription},
    queue::{Priority, Queue},
};
use kube::ResourceExt as _;
use parking_lot::Mutex;
use tokio_util::task::AbortOnDropHandle;

use super::{
    blocker::PATIENCE,
    plan,
    runtime::{BundleKey, BundleRuntime},
    status,
};
use crate::{
    controller::{context::ControllerContext, ownership::bundle_of, requeue::Requeue},
    session::credential_secret,
};

/// Bundles that are reconciled at the same time.
const WORKERS: usize = 2;

/// The controller of bundles.
#[derive(Debug)]
pub struct BundleController {
    pub(super) context: ControllerContext,
    pub(super) queue: Queue<BundleKey>,
    runtimes: Mutex<HashMap<BundleKey, BundleRuntime>>,
}

/// The running controller of bundles. Dropping it stops the controller.
#[derive(Debug)]
pub struct RunningBundleController {
    _subscriptions: [Subscription; 3],
    _workers: Vec<AbortOnDropHandle<()>>,
}

impl BundleController {
    /// Starts the controller. All caches of the consumer must be complete.
    pub fn start(context: ControllerContext) -> RunningBundleController {
        let controller = Arc::new(Self {
            context,
            queue: Queue::new(),
            runtimes: Mutex::default(),
        });
        controller
            .context
            .object_counts
            .enqueue_changes(controller.queue.clone());
        let workers = (0..WORKERS).map(|_| tokio::spawn(work(Arc::clone(&controller))));
        RunningBundleController {
            _subscriptions: controller.subscribe(),
            _workers: workers.map(AbortOnDropHandle::new).collect(),
        }
    }

    /// Queues bundles when bundles, bindings or Secrets change.
    fn subscribe(self: &Arc<Self>) -> [Subscription; 3] {
        let (bundles, bindings, secrets) = (Arc::downgrade(self), Arc::downgrade(self), Arc::downgrade(self));
        let consumer = &self.context.consumer;
        [
            consumer.bundles.subscribe(move |change| {
                let Some(controller) = bundles.upgrade() else { return };
                controller.queue.add(Arc::clone(&change.key.name), change.priority);
                if concerns_all(change.old.is_some(), change.new.is_some(), change.priority) {
                    // Others may wait for the end of its bindings, or have to leave exports to it.
                    controller.enqueue(change.priority, |_| true);
                }
            }),
            consumer.bindings.subscribe(move |change| {
                let Some(controller) = bindings.upgrade() else { return };
                controller.binding_changed(change);
            }),
            consumer.secrets.subscribe(move |change| {
                let Some(controller) = secrets.upgrade() else { return };
                // A stored credential helps a bundle that cannot reach its provider.
                controller.enqueue(change.priority, |bundle| {
                    bundle.spec.kubeconfig_secret_ref.name == *change.key.name
                        || bundle
                            .contract_uid()
                            .is_some_and(|uid| credential_secret::name(uid) == *change.key.name)
                });
            }),
        ]
    }

    /// Queues the bundles that a change concerns.
    fn enqueue(&self, priority: Priority, is_concerned: impl Fn(&APIServiceBindingBundle) -> bool) {
        for bundle in self.context.consumer.bundles.list(is_concerned) {
            self.queue.add(bundle.name_any().into(), priority);
        }
    }

    /// Queues the bundles that a changed binding concerns: the one that made it, or all if it may conflict with others.
    fn binding_changed(&self, change: &Change<'_, APIServiceBinding>) {
        let relations = |binding: &Arc<APIServiceBinding>| {
            (
                bundle_of(binding).map(|owner| owner.uid.clone()),
                binding.contract_uid().map(str::to_owned),
                binding.metadata.deletion_timestamp.is_some(),
            )
        };
        if change.old.map(relations) != change.new.map(relations) {
            return self.enqueue(change.priority, |_| true);
        }
        if let Some(owner) = change.new.and_then(|binding| bundle_of(binding)) {
            self.queue.add(owner.name.as_str().into(), change.priority);
        }
    }

    /// Reconciles a bundle.
    async fn reconcile(&self, key: &BundleKey) -> Requeue {
        let bundle = self.context.consumer.bundles.get("", key);
        let Some(bundle) = bundle.filter(|bundle| self.context.other_konnectors.serves_bundle(bundle)) else {
            self.runtimes.lock().remove(key);
            return Requeue::OnChange;
        };
        // The queue gives each key to one worker at a time, so no other worker misses the runtime.
        let uid = bundle.metadata.uid.as_ref();
        let known = self.runtimes.lock().remove(key);
        let mut runtime = known
            .filter(|runtime| runtime.connection.is_for(uid))
            .unwrap_or_else(|| BundleRuntime::new(uid.cloned(), &self.queue, key));
        let requeue = self.reconcile_bundle(&bundle, &mut runtime, key).await;
        self.runtimes.lock().insert(Arc::clone(key), runtime);
        requeue
    }

    /// Brings a bundle a step further: observe, plan, apply, report.
    async fn reconcile_bundle(
        &self,
        bundle: &Arc<APIServiceBindingBundle>,
        runtime: &mut BundleRuntime,
        key: &BundleKey,
    ) -> Requeue {
        // The garbage collector deletes the bindings of a deleted bundle.
        if bundle.metadata.deletion_timestamp.is_some() {
            return Requeue::OnChange;
        }
        let seen = self.observe(bundle, runtime, key);
        let plan = plan::plan(&seen);
        let failing = seen.exports.failing.as_ref();
        let patience = failing.and_then(|(_, since)| PATIENCE.checked_sub(*since));
        for pause in plan.wake.into_iter().chain(patience) {
            self.queue.add_after(Arc::clone(key), pause);
        }
        let outcome = self.apply(bundle, plan.ops.clone()).await;
        let status = status::of(&seen, &plan, &outcome.failures);
        let progress = status::is_mere_progress(bundle.status.as_ref(), &status);
        let write = self.write_status(bundle, &status, seen.now);
        if !runtime.connection.report(progress, write).await {
            return Requeue::WithBackoff;
        }
        Requeue::after_failure(outcome.is_stale || !outcome.failures.is_empty())
    }
}

/// Whether a change of one bundle concerns all bundles. The first list queues each bundle anyway.
fn concerns_all(existed: bool, exists: bool, priority: Priority) -> bool {
    !exists || (!existed && priority == Priority::Live)
}

/// Reconciles queued bundles until dropped.
async fn work(controller: Arc<BundleController>) {
    while let Some(work) = controller.queue.next().await {
        controller.reconcile(work.key()).await.settle(work);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_that_a_list_finds_does_not_concern_the_others() {
        for (existed, exists, priority, expect) in [
            (false, true, Priority::Backlog, false),
            (false, true, Priority::Live, true),
            (true, true, Priority::Live, false),
            (true, false, Priority::Live, true),
            (true, false, Priority::Backlog, true),
        ] {
            assert_eq!(concerns_all(existed, exists, priority), expect, "{existed} {exists}");
        }
    }
}
