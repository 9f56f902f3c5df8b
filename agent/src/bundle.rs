//! The controller of APIServiceBindingBundles: makes a binding of every export that a contract has.
//!
//! One key per bundle: `look` says what is seen, all of it from caches; `plan` decides; `apply` writes; `status` says how it
//! stands. The bindings are served by the controller of bindings as any other. It tells, through the `tally`, how many
//! objects each has, for a binding whose export is gone ends with the last of them.

use std::{collections::HashMap, sync::Arc};

use bindery_api::v1alpha2::{APIServiceBinding, APIServiceBindingBundle};
use bindery_runtime::{
    backoff::Backoff,
    cache::Subscription,
    errors,
    queue::{Lane, Queue},
};
use kube::ResourceExt as _;
use parking_lot::Mutex;
use tokio_util::task::AbortOnDropHandle;

mod apply;
pub mod hold;
mod index;
mod look;
pub mod observe;
pub mod plan;
pub mod runtime;
pub mod status;
mod tally;
mod terms;

#[cfg(test)]
mod testing;

use crate::{
    binding::{Options, observe::bundle_of},
    common::Common,
};
use hold::PATIENCE;
use observe::contract_of;
use runtime::Runtime;

pub use tally::{Count, Tally};
pub use terms::Terms;

const WORKERS: usize = 2;

/// What to work on: a bundle, by name.
pub type Key = Arc<str>;

/// The controller.
#[derive(Debug)]
pub struct Controller {
    common: Common,
    settings: Options,
    queue: Queue<Key>,
    runtimes: Mutex<HashMap<Key, Runtime>>,
}

/// The controller at work. Ends when dropped.
#[derive(Debug)]
pub struct Running {
    _subscriptions: [Subscription; 3],
    _workers: Vec<AbortOnDropHandle<()>>,
}

// === impl Controller ===

impl Controller {
    /// Starts to work. All caches of the consumer must be complete.
    pub fn start(common: Common, settings: &Options) -> Running {
        let controller = Arc::new(Self {
            common,
            settings: settings.clone(),
            queue: Queue::new(),
            runtimes: Mutex::default(),
        });
        controller.common.tally.listen(controller.queue.clone());
        let workers = (0..WORKERS).map(|_| tokio::spawn(work(Arc::clone(&controller))));
        Running {
            _subscriptions: controller.subscribe(),
            _workers: workers.map(AbortOnDropHandle::new).collect(),
        }
    }

    fn subscribe(self: &Arc<Self>) -> [Subscription; 3] {
        let (bundles, bindings, secrets) = (Arc::downgrade(self), Arc::downgrade(self), Arc::downgrade(self));
        let consumer = &self.common.consumer;
        [
            consumer.bundles.subscribe(move |change| {
                let Some(controller) = bundles.upgrade() else { return };
                controller.queue.add(Arc::clone(&change.key.name), change.lane);
                if comes_or_goes(change.old.is_some(), change.new.is_some(), change.lane) {
                    // Others may wait for its bindings to go, or have to leave exports to it.
                    controller.look_at_all(change.lane, |_| true);
                }
            }),
            consumer.bindings.subscribe(move |change| {
                let Some(controller) = bindings.upgrade() else { return };
                controller.binding_changed(
                    change.old.map(AsRef::as_ref),
                    change.new.map(AsRef::as_ref),
                    change.lane,
                );
            }),
            consumer.secrets.subscribe(move |change| {
                let Some(controller) = secrets.upgrade() else { return };
                // A stored credential is of use to whoever cannot reach the provider.
                let is_concerned = |bundle: &APIServiceBindingBundle| {
                    bundle.spec.kubeconfig_secret_ref.name == *change.key.name
                        || pinned(bundle).is_some_and(|uid| crate::session::secret::name(uid) == *change.key.name)
                };
                controller.look_at_all(change.lane, is_concerned);
            }),
        ]
    }

    fn look_at_all(&self, lane: Lane, is_concerned: impl Fn(&APIServiceBindingBundle) -> bool) {
        for bundle in self.common.consumer.bundles.list(is_concerned) {
            self.queue.add(bundle.name_any().into(), lane);
        }
    }

    /// A binding may belong to a bundle, or stand in the way of others.
    fn binding_changed(&self, old: Option<&APIServiceBinding>, new: Option<&APIServiceBinding>, lane: Lane) {
        let stands = |binding: &APIServiceBinding| {
            (
                bundle_of(binding).map(|owner| owner.uid.clone()),
                contract_of(binding).map(str::to_owned),
                binding.metadata.deletion_timestamp.is_some(),
            )
        };
        if old.map(stands) != new.map(stands) {
            return self.look_at_all(lane, |_| true);
        }
        if let Some(owner) = new.and_then(bundle_of) {
            self.queue.add(owner.name.as_str().into(), lane);
        }
    }

    /// Brings one bundle a step further; false if that is to be tried again.
    async fn reconcile(&self, key: &Key) -> bool {
        let Some(bundle) = self.common.consumer.bundles.get("", key) else {
            self.runtimes.lock().remove(key);
            return true;
        };
        // Nobody else works on this key, so the runtime is missed by nobody.
        let uid = bundle.metadata.uid.as_ref();
        let known = self.runtimes.lock().remove(key).filter(|runtime| runtime.is_for(uid));
        let mut runtime = known.unwrap_or_else(|| Runtime::new(uid.cloned(), &self.queue, key));
        let done = self.serve(&bundle, &mut runtime, key).await;
        self.runtimes.lock().insert(Arc::clone(key), runtime);
        done
    }

    async fn serve(&self, bundle: &Arc<APIServiceBindingBundle>, runtime: &mut Runtime, key: &Key) -> bool {
        // The garbage collector ends its bindings, before it or after it.
        if bundle.metadata.deletion_timestamp.is_some() {
            return true;
        }
        let seen = self.look(bundle, runtime, key);
        let plan = plan::plan(&seen);
        if let Some(pause) = plan.wake {
            self.queue.add_after(Arc::clone(key), pause);
        }
        if let Some(left) = seen
            .exports
            .failing
            .as_ref()
            .and_then(|(_, since)| PATIENCE.checked_sub(*since))
        {
            self.queue.add_after(Arc::clone(key), left);
        }
        let outcome = self.apply(bundle, plan.ops.clone()).await;
        let status = status::of(&seen, &plan, &outcome.failures);
        let lull = runtime
            .lull
            .left()
            .filter(|_| status::is_mere_progress(bundle.status.as_ref(), &status));
        if let Some(left) = lull {
            self.queue.add_after(Arc::clone(key), left);
        } else {
            match self.write_status(bundle, &status, seen.now).await {
                Ok(true) => runtime.lull.begin(),
                Ok(false) => {}
                Err(error) => {
                    tracing::debug!(bundle = bundle.name_any(), error = %errors::explain(&error), "status not written");
                    return false;
                }
            }
        }
        !outcome.is_stale && outcome.failures.is_empty()
    }
}

/// Whether all bundles are to hear of one. Those that a list finds are all looked at by themselves.
fn comes_or_goes(was_there: bool, is_there: bool, lane: Lane) -> bool {
    !is_there || (!was_there && lane == Lane::Live)
}

fn pinned(bundle: &APIServiceBindingBundle) -> Option<&str> {
    bundle.status.as_ref()?.contract_uid.as_deref()
}

async fn work(controller: Arc<Controller>) {
    while let Some(work) = controller.queue.next().await {
        if controller.reconcile(work.key()).await {
            drop(work);
        } else {
            work.retry(Backoff::OBJECT);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_list_finds_is_looked_at_by_itself() {
        for (was_there, is_there, lane, expect) in [
            (false, true, Lane::Backlog, false),
            (false, true, Lane::Live, true),
            (true, true, Lane::Live, false),
            (true, false, Lane::Live, true),
            (true, false, Lane::Backlog, true),
        ] {
            assert_eq!(
                comes_or_goes(was_there, is_there, lane),
                expect,
                "{was_there} {is_there}"
            );
        }
    }
}
