//! Waits until an object of the consumer cluster reaches a state, by watching the object.

mod state;

use std::{collections::BTreeSet, ops::ControlFlow, sync::Arc, time::Duration};

use bindery_api::{
    Conditions as _, annotations,
    holder::{HELD, HolderDigest, HolderOrder},
    orphans::{OrphanAction, OrphanOrder, OrphanSet},
    v1alpha2::{APIServiceBinding, APIServiceBindingBundle, GroupResource, PermissionClaim},
};
use bindery_runtime::{
    cache::{Cache, Subscription},
    watch::Source,
};
use k8s_openapi::api::apps::v1::Deployment;
use kube::{Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use tokio::{
    sync::watch as channel,
    time::{Instant, timeout_at},
};

use super::Consumer;
use crate::{
    errors::Failure,
    install::owner::CredentialOwner,
    render::{output::joined, steps::Steps},
    text,
};

pub(crate) use state::in_effect;
use state::{draining, not_in_effect, unavailable};

/// One object of the consumer cluster, watched until it reaches a state or the time is over.
pub(crate) struct Watched<K = APIServiceBinding> {
    /// Kind and name, for messages.
    object: String,
    cache: Cache<K>,
    states: channel::Receiver<Option<Arc<K>>>,
    _subscription: Subscription,
    start: Instant,
    patience: Duration,
}

impl<K> Watched<K>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Send + Sync + 'static,
{
    /// Starts to watch an object; an empty namespace is that of cluster-scoped objects. Every wait on it fails when
    /// `patience` is over.
    pub(crate) fn start(consumer: &Consumer, namespace: &str, name: &str, patience: Duration) -> Self {
        let namespace = Some(namespace).filter(|namespace| !namespace.is_empty());
        let source = Source::of::<K>(namespace).fields(format!("metadata.name={name}"));
        let cache = Cache::start(consumer.watch(), source);
        let (sender, states) = channel::channel(None);
        let subscription = cache.subscribe(move |change| {
            sender.send_replace(change.new.cloned());
        });
        Self {
            object: format!("{} {name}", K::kind(&())),
            cache,
            states,
            _subscription: subscription,
            start: Instant::now(),
            patience,
        }
    }

    /// Waits until nothing is missing, and shows what is. `undone` says in an error what did not happen.
    async fn until(
        self,
        undone: &str,
        missing: impl Fn(&K) -> Option<String>,
        steps: &Steps,
    ) -> Result<Arc<K>, Failure> {
        let judge = |object: Option<&Arc<K>>| match object {
            None => ControlFlow::Continue(format!("the {} does not exist yet", K::kind(&()))),
            Some(object) => match missing(object) {
                Some(news) => ControlFlow::Continue(news),
                None => ControlFlow::Break(Arc::clone(object)),
            },
        };
        self.judged(undone, judge, steps).await
    }

    /// Waits until `judge` breaks, and shows its news meanwhile.
    async fn judged<T>(
        mut self,
        undone: &str,
        judge: impl Fn(Option<&Arc<K>>) -> ControlFlow<T, String>,
        steps: &Steps,
    ) -> Result<T, Failure> {
        let deadline = self.start + self.patience;
        let mut shown = String::new();
        loop {
            let object = self.states.borrow_and_update().clone();
            match judge(object.as_ref()) {
                ControlFlow::Break(done) => return Ok(done),
                ControlFlow::Continue(news) if news == shown => {}
                ControlFlow::Continue(news) => {
                    if object.is_some() {
                        steps.note(&news);
                    }
                    shown = news;
                }
            }
            if !matches!(timeout_at(deadline, self.states.changed()).await, Ok(Ok(()))) {
                return Err(self.timed_out(undone, shown));
            }
        }
    }

    /// Waits for the first list, without which an object that is not known may exist.
    async fn synced(&self, undone: &str) -> Result<(), Failure> {
        let deadline = self.start + self.patience;
        let synced = timeout_at(deadline, self.cache.synced()).await;
        synced
            .map(drop)
            .map_err(|_| self.timed_out(undone, "it cannot be watched".to_owned()))
    }

    fn timed_out(&self, what: &str, last: String) -> Failure {
        let failure = self.cache.health().borrow().failure.clone();
        Failure::TimedOut {
            what: format!("{} {what}", self.object),
            waited: self.start.elapsed(),
            last: failure.unwrap_or(last),
        }
    }
}

impl<K> Watched<K>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Send + Sync + 'static,
    CredentialOwner: From<K>,
{
    async fn owner(
        self,
        undone: &str,
        missing: impl Fn(&CredentialOwner) -> Option<String>,
        steps: &Steps,
    ) -> Result<CredentialOwner, Failure> {
        let object = self
            .until(undone, |object| missing(&object.clone().into()), steps)
            .await?;
        Ok(K::clone(&object).into())
    }
}

/// Waits until the konnector reports the owner as ready.
pub(crate) async fn ready(
    consumer: &Consumer,
    owner: &CredentialOwner,
    patience: Duration,
    steps: &Steps,
) -> Result<CredentialOwner, Failure> {
    owner_until(
        consumer,
        owner,
        patience,
        ("is not ready", CredentialOwner::not_ready),
        steps,
    )
    .await
}

/// Waits until the konnector uses the new credential of the owner.
pub(crate) async fn renewed(
    consumer: &Consumer,
    owner: &CredentialOwner,
    patience: Duration,
    steps: &Steps,
) -> Result<CredentialOwner, Failure> {
    let state: (&str, fn(&CredentialOwner) -> Option<String>) =
        ("does not use the new credentials", CredentialOwner::not_renewed);
    owner_until(consumer, owner, patience, state, steps).await
}

async fn owner_until(
    consumer: &Consumer,
    owner: &CredentialOwner,
    patience: Duration,
    (undone, missing): (&str, fn(&CredentialOwner) -> Option<String>),
    steps: &Steps,
) -> Result<CredentialOwner, Failure> {
    match owner {
        CredentialOwner::Binding(_) => {
            let watched = Watched::<APIServiceBinding>::start(consumer, "", owner.name(), patience);
            watched.owner(undone, missing, steps).await
        }
        CredentialOwner::Bundle(_) => {
            let watched = Watched::<APIServiceBindingBundle>::start(consumer, "", owner.name(), patience);
            watched.owner(undone, missing, steps).await
        }
    }
}

impl Watched<Deployment> {
    /// Waits until all replicas of the newest generation are available.
    pub(crate) async fn available(self, steps: &Steps) -> Result<(), Failure> {
        self.until("is not available", unavailable, steps).await.map(drop)
    }
}

impl Watched {
    /// Waits until the binding of this UID is gone, and shows what is in its way.
    pub(crate) async fn gone(self, uid: Option<&str>, steps: &Steps) -> Result<(), Failure> {
        let undone = "is not gone";
        self.synced(undone).await?;
        let judge = |binding: Option<&Arc<APIServiceBinding>>| match binding {
            Some(binding) if binding.metadata.uid.as_deref() == uid => ControlFlow::Continue(draining(binding)),
            _ => ControlFlow::Break(()),
        };
        self.judged(undone, judge, steps).await
    }

    /// Waits until the konnector has carried out an order for orphans, as far as it can. `told` reads the orphans of a binding. Returns
    /// the binding as it is then; `None` if it is gone.
    pub(crate) async fn orphans_ended(
        self,
        order: OrphanOrder,
        told: impl Fn(&APIServiceBinding) -> Option<OrphanSet>,
        steps: &Steps,
    ) -> Result<Option<Arc<APIServiceBinding>>, Failure> {
        let undone = "has orphans still";
        self.synced(undone).await?;
        let judge = |binding: Option<&Arc<APIServiceBinding>>| {
            let Some(binding) = binding else {
                return ControlFlow::Break(None);
            };
            if binding.annotations().contains_key(annotations::END_ORPHANS) {
                return ControlFlow::Continue("waiting for the konnector to take the order".to_owned());
            }
            let left = told(binding).unwrap_or_default();
            let is_over = match order.action {
                // Orphans whose name no object has stay.
                OrphanAction::Relink => true,
                // Others have come since the user looked, so that the konnector did nothing.
                OrphanAction::Delete | OrphanAction::Release => {
                    left.count == 0 || (left != order.orphans && left.count >= order.orphans.count)
                }
            };
            if is_over {
                return ControlFlow::Break(Some(Arc::clone(binding)));
            }
            ControlFlow::Continue(format!(
                "{} left; while the number stays, events of the binding say why",
                text::counted(left.count, "orphan")
            ))
        };
        self.judged(undone, judge, steps).await
    }

    /// Waits until the konnector has carried out that this cluster goes on with the contract. Returns the binding as it is then; `None` if
    /// it is gone.
    pub(crate) async fn accepted(
        self,
        order: &HolderOrder,
        steps: &Steps,
    ) -> Result<Option<Arc<APIServiceBinding>>, Failure> {
        let undone = "waits still";
        self.synced(undone).await?;
        let judge = |binding: Option<&Arc<APIServiceBinding>>| {
            let Some(binding) = binding else {
                return ControlFlow::Break(None);
            };
            if binding.annotations().contains_key(annotations::ACCEPT_HOLDER) {
                return ControlFlow::Continue("waiting for the konnector to take the order".to_owned());
            }
            let held = binding.condition(HELD);
            let told = held.and_then(|held| HolderDigest::of_message(&held.message));
            // Another digest means that the konnector has found something else since the user looked.
            if told.is_some_and(|told| *order == HolderOrder::Accept(told)) {
                let waiting = "waiting for the konnector to go on; events of the binding say why it does not";
                return ControlFlow::Continue(waiting.to_owned());
            }
            ControlFlow::Break(Some(Arc::clone(binding)))
        };
        self.judged(undone, judge, steps).await
    }

    /// Waits until none of these claims is in effect any more.
    pub(crate) async fn withdrawn(self, claims: &BTreeSet<GroupResource>, steps: &Steps) -> Result<(), Failure> {
        let waiting_for = |binding: &APIServiceBinding| in_effect(binding, claims);
        self.claims(waiting_for, ("still has claims in effect", "to withdraw"), steps)
            .await
    }

    /// Waits until these claims are in effect, exactly as they are given.
    pub(crate) async fn taken_up(self, claims: &[PermissionClaim], steps: &Steps) -> Result<(), Failure> {
        let waiting_for = |binding: &APIServiceBinding| not_in_effect(binding, claims);
        self.claims(waiting_for, ("has claims that are not in effect", "to take up"), steps)
            .await
    }

    /// Waits until the konnector has nothing more to do with claims. Claims of a binding that is gone are gone too.
    async fn claims(
        self,
        waiting_for: impl Fn(&APIServiceBinding) -> BTreeSet<GroupResource>,
        (undone, doing): (&str, &str),
        steps: &Steps,
    ) -> Result<(), Failure> {
        self.synced(undone).await?;
        let judge = |binding: Option<&Arc<APIServiceBinding>>| {
            let claims = binding.map(|binding| waiting_for(binding)).unwrap_or_default();
            if claims.is_empty() {
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(format!(
                "waiting for the konnector {doing} the claims on {}",
                joined(claims)
            ))
        };
        self.judged(undone, judge, steps).await
    }
}
