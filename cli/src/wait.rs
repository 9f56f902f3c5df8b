//! Waits for a binding to become ready, or to go, by watching it.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use bindery_api::{
    Conditions as _,
    conditions::{self, ConditionStatus},
    v1alpha2::{API_VERSION, APIServiceBinding, GroupResource, PermissionClaim},
};
use bindery_runtime::{
    cache::{Cache, Subscription},
    watch::Source,
};
use kube::ResourceExt as _;
use tokio::{
    sync::watch as channel,
    time::{Instant, timeout_at},
};

use crate::{consumer::Consumer, errors::Failure, output::joined, steps::Steps};

/// One binding, watched.
pub(crate) struct Watched {
    name: String,
    cache: Cache<APIServiceBinding>,
    states: channel::Receiver<Option<Arc<APIServiceBinding>>>,
    _subscription: Subscription,
    start: Instant,
    patience: Duration,
}

impl Watched {
    /// Starts to watch, for as long as the patience lasts.
    pub(crate) fn start(consumer: &Consumer, name: &str, patience: Duration) -> Self {
        let source = Source {
            path: format!("/apis/{API_VERSION}/apiservicebindings").into(),
            labels: String::new(),
            fields: format!("metadata.name={name}"),
        };
        let cache = Cache::start(consumer.watch(), source);
        let (sender, states) = channel::channel(None);
        let subscription = cache.subscribe(move |change| {
            sender.send_replace(change.new.cloned());
        });
        Self {
            name: name.to_owned(),
            cache,
            states,
            _subscription: subscription,
            start: Instant::now(),
            patience,
        }
    }

    /// Waits until the binding is ready, and shows what it waits for.
    pub(crate) async fn ready(mut self, steps: &Steps) -> Result<APIServiceBinding, Failure> {
        let mut shown = String::new();
        loop {
            let state = self.states.borrow_and_update().clone();
            let news = match &state {
                Some(binding) if is_ready(binding) => return Ok(binding.as_ref().clone()),
                Some(binding) => waiting_for(binding),
                None => "the APIServiceBinding is not there yet".to_owned(),
            };
            if state.is_some() && news != shown {
                steps.note(&news);
            }
            shown = news;
            if !self.changed().await {
                return Err(self.timed_out("is not ready", shown));
            }
        }
    }

    /// Waits until the binding of this UID is gone, and shows what is in its way.
    pub(crate) async fn gone(mut self, uid: Option<&str>, steps: &Steps) -> Result<(), Failure> {
        let deadline = self.start + self.patience;
        if timeout_at(deadline, self.cache.synced()).await.is_err() {
            return Err(self.timed_out("is not gone", "it cannot be watched".to_owned()));
        }
        let mut shown = String::new();
        loop {
            let state = self.states.borrow_and_update().clone();
            let news = match &state {
                Some(binding) if binding.metadata.uid.as_deref() == uid => draining(binding),
                _ => return Ok(()),
            };
            if news != shown {
                steps.note(&news);
            }
            shown = news;
            if !self.changed().await {
                return Err(self.timed_out("is not gone", shown));
            }
        }
    }

    /// Waits until none of these claims is in effect any more.
    pub(crate) async fn withdrawn(self, claims: &BTreeSet<GroupResource>, steps: &Steps) -> Result<(), Failure> {
        let left = |binding: &APIServiceBinding| in_effect(binding, claims);
        self.claims(left, ("still has claims in effect", "to withdraw"), steps)
            .await
    }

    /// Waits until these claims are in effect, as they are here.
    pub(crate) async fn taken_up(self, claims: &[PermissionClaim], steps: &Steps) -> Result<(), Failure> {
        let left = |binding: &APIServiceBinding| not_in_effect(binding, claims);
        self.claims(left, ("has claims that are not in effect", "to take up"), steps)
            .await
    }

    /// Waits until nothing is left for the konnector to do with claims.
    async fn claims(
        mut self,
        left: impl Fn(&APIServiceBinding) -> BTreeSet<GroupResource>,
        (what, doing): (&str, &str),
        steps: &Steps,
    ) -> Result<(), Failure> {
        let deadline = self.start + self.patience;
        if timeout_at(deadline, self.cache.synced()).await.is_err() {
            return Err(self.timed_out(what, "it cannot be watched".to_owned()));
        }
        let mut shown = String::new();
        loop {
            let state = self.states.borrow_and_update().clone();
            // Once it is gone, so is all that was copied for it.
            let left = state.map(|binding| left(&binding)).unwrap_or_default();
            if left.is_empty() {
                return Ok(());
            }
            let news = format!("waiting for the konnector {doing} the claims on {}", joined(left));
            if news != shown {
                steps.note(&news);
            }
            shown = news;
            if !self.changed().await {
                return Err(self.timed_out(what, shown));
            }
        }
    }

    /// Waits for a change; false when the patience is over.
    async fn changed(&mut self) -> bool {
        let deadline = self.start + self.patience;
        matches!(timeout_at(deadline, self.states.changed()).await, Ok(Ok(())))
    }

    fn timed_out(&self, what: &str, last: String) -> Failure {
        let failure = self.cache.health().borrow().failure.clone();
        Failure::TimedOut {
            what: format!("APIServiceBinding {} {what}", self.name),
            waited: self.start.elapsed(),
            last: failure.unwrap_or(last),
        }
    }
}

/// Whether the konnector reports a binding as ready.
pub(crate) fn is_ready(binding: &APIServiceBinding) -> bool {
    binding.metadata.deletion_timestamp.is_none() && binding.is_condition_true(conditions::READY)
}

/// Which of these claims are in effect.
pub(crate) fn in_effect(binding: &APIServiceBinding, claims: &BTreeSet<GroupResource>) -> BTreeSet<GroupResource> {
    let known = binding.status.iter().flat_map(|status| &status.permission_claims);
    let known = known.map(|claim| &claim.group_resource);
    known.filter(|resource| claims.contains(resource)).cloned().collect()
}

/// Resources of these claims that are not in effect as they are here.
fn not_in_effect(binding: &APIServiceBinding, claims: &[PermissionClaim]) -> BTreeSet<GroupResource> {
    let known = binding
        .status
        .as_ref()
        .map_or(&[][..], |status| &status.permission_claims);
    let left = claims.iter().filter(|claim| !known.contains(claim));
    left.map(|claim| claim.group_resource.clone()).collect()
}

/// What keeps a binding from being ready, in words.
fn waiting_for(binding: &APIServiceBinding) -> String {
    match binding.condition(conditions::READY) {
        None if binding.conditions().is_empty() => {
            "waiting for the konnector, which has not seen the binding yet; does it run?".to_owned()
        }
        Some(ready) if ready.status == ConditionStatus::False => match ready.message.as_str() {
            "" => format!("not ready: {}", ready.reason),
            message => format!("not ready: {message} ({})", ready.reason),
        },
        None | Some(_) => "waiting for the konnector".to_owned(),
    }
}

/// What keeps a binding that was deleted from going, in words.
fn draining(binding: &APIServiceBinding) -> String {
    match binding.condition("Draining") {
        Some(condition) if !condition.message.is_empty() => condition.message.clone(),
        _ if binding.finalizers().is_empty() => "waiting for the API server".to_owned(),
        _ => "waiting for the konnector to delete its objects; does it run?".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use bindery_api::conditions::{Severity, false_condition, true_condition};
    use bindery_api::v1alpha2::APIServiceBindingSpec;
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    fn binding(condition: Option<bindery_api::Condition>) -> APIServiceBinding {
        let mut binding = APIServiceBinding::new("west", APIServiceBindingSpec::default());
        if let Some(condition) = condition {
            binding.set_condition(condition, Timestamp::UNIX_EPOCH);
        }
        binding
    }

    #[test]
    fn says_what_it_waits_for() {
        let check = |binding: &APIServiceBinding, expect: &str| {
            let news = waiting_for(binding);
            assert!(news.contains(expect), "{news}");
        };
        check(&binding(None), "does it run?");
        check(
            &binding(Some(true_condition("SecretValid"))),
            "waiting for the konnector",
        );
        let broken = false_condition(
            "Ready",
            Severity::Error,
            "KubeconfigSecretNotFound",
            "Secret x is missing",
        );
        check(&binding(Some(broken)), "Secret x is missing (KubeconfigSecretNotFound)");
        check(
            &binding(Some(false_condition("Ready", Severity::Error, "Why", ""))),
            "not ready: Why",
        );
    }

    #[test]
    fn a_binding_that_is_going_is_not_ready() {
        let mut ready = binding(Some(true_condition("Ready")));
        assert!(is_ready(&ready));
        ready.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        assert!(!is_ready(&ready));
    }

    #[test]
    fn says_what_drains() {
        let counts = binding(Some(false_condition(
            "Draining",
            Severity::Info,
            "Draining",
            "3 objects are left",
        )));
        assert_eq!(draining(&counts), "3 objects are left");
        let mut held = binding(None);
        assert_eq!(draining(&held), "waiting for the API server");
        held.metadata.finalizers = Some(vec!["x".to_owned()]);
        assert!(draining(&held).contains("does it run?"));
    }
}
