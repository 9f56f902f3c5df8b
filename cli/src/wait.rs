//! Waits for a binding to become ready, or to go, by watching it.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use bindery_api::{
    Conditions,
    conditions::{self, ConditionStatus},
    v1alpha2::{API_VERSION, APIServiceBinding, APIServiceBindingBundle, GroupResource, PermissionClaim},
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

use crate::{consumer::Consumer, errors::Failure, output::joined, steps::Steps};

/// One object, watched; a binding, unless said otherwise.
pub(crate) struct Watched<K = APIServiceBinding> {
    /// Kind and name.
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
    /// Starts to watch an object of a collection, for as long as the patience lasts.
    pub(crate) fn at(consumer: &Consumer, collection: &str, name: &str, patience: Duration) -> Self {
        let source = Source {
            path: collection.into(),
            labels: String::new(),
            fields: format!("metadata.name={name}"),
        };
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

    /// Waits until nothing is missing, and shows what is.
    pub(crate) async fn until(
        mut self,
        undone: &str,
        missing: impl Fn(&K) -> Option<String>,
        steps: &Steps,
    ) -> Result<Arc<K>, Failure> {
        let mut shown = String::new();
        loop {
            let state = self.states.borrow_and_update().clone();
            let news = match &state {
                Some(object) => match missing(object) {
                    Some(news) => news,
                    None => return Ok(Arc::clone(object)),
                },
                None => format!("the {} is not there yet", K::kind(&())),
            };
            if state.is_some() && news != shown {
                steps.note(&news);
            }
            shown = news;
            if !self.changed().await {
                return Err(self.timed_out(undone, shown));
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
            what: format!("{} {what}", self.object),
            waited: self.start.elapsed(),
            last: failure.unwrap_or(last),
        }
    }
}

impl Watched<APIServiceBindingBundle> {
    /// Starts to watch a bundle, for as long as the patience lasts.
    pub(crate) fn bundle(consumer: &Consumer, name: &str, patience: Duration) -> Self {
        let collection = format!("/apis/{API_VERSION}/apiservicebindingbundles");
        Self::at(consumer, &collection, name, patience)
    }

    /// Waits until the bundle and all that it binds is ready, and shows what it waits for.
    pub(crate) async fn ready(self, steps: &Steps) -> Result<Arc<APIServiceBindingBundle>, Failure> {
        let missing = |bundle: &APIServiceBindingBundle| (!is_bundle_ready(bundle)).then(|| waiting_for(bundle));
        self.until("is not ready", missing, steps).await
    }
}

impl Watched<Deployment> {
    /// Starts to watch a Deployment, for as long as the patience lasts.
    pub(crate) fn deployment(consumer: &Consumer, namespace: &str, name: &str, patience: Duration) -> Self {
        let collection = format!("/apis/apps/v1/namespaces/{namespace}/deployments");
        Self::at(consumer, &collection, name, patience)
    }

    /// Waits until all replicas are available as they are to be now.
    pub(crate) async fn available(self, steps: &Steps) -> Result<(), Failure> {
        self.until("is not available", unavailable, steps).await.map(drop)
    }
}

impl Watched {
    /// Starts to watch a binding, for as long as the patience lasts.
    pub(crate) fn start(consumer: &Consumer, name: &str, patience: Duration) -> Self {
        let collection = format!("/apis/{API_VERSION}/apiservicebindings");
        Self::at(consumer, &collection, name, patience)
    }

    /// Waits until the binding is ready, and shows what it waits for.
    pub(crate) async fn ready(self, steps: &Steps) -> Result<APIServiceBinding, Failure> {
        let missing = |binding: &APIServiceBinding| (!is_ready(binding)).then(|| waiting_for(binding));
        let ready = self.until("is not ready", missing, steps).await?;
        Ok(ready.as_ref().clone())
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
}

/// Whether the konnector reports a binding as ready.
pub(crate) fn is_ready(binding: &APIServiceBinding) -> bool {
    binding.metadata.deletion_timestamp.is_none() && binding.is_condition_true(conditions::READY)
}

/// Whether the konnector reports a bundle as ready, as it is now.
fn is_bundle_ready(bundle: &APIServiceBindingBundle) -> bool {
    let observed = bundle.status.as_ref().and_then(|status| status.observed_generation);
    bundle.metadata.deletion_timestamp.is_none()
        && observed >= bundle.metadata.generation
        && bundle.is_condition_true(conditions::READY)
}

/// What of a Deployment is not available, in words.
fn unavailable(deployment: &Deployment) -> Option<String> {
    let status = deployment.status.clone().unwrap_or_default();
    if status.observed_generation < deployment.metadata.generation {
        return Some("waiting for the cluster's deployment controller".to_owned());
    }
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let ready = status
        .updated_replicas
        .unwrap_or(0)
        .min(status.available_replicas.unwrap_or(0));
    let old = status.replicas.unwrap_or(0) > status.updated_replicas.unwrap_or(0);
    if ready >= wanted && !old {
        return None;
    }
    let conditions = status.conditions.iter().flatten();
    let mut broken = conditions.filter(|condition| condition.status == "False" || condition.type_ == "ReplicaFailure");
    let why = broken.find_map(|condition| condition.message.clone());
    let why = why.map_or_else(String::new, |why| format!(": {why}"));
    Some(format!("{ready} of {wanted} replicas are available{why}"))
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

/// What keeps a binding, or a bundle, from being ready, in words.
fn waiting_for<K: Conditions + Resource<DynamicType = ()>>(object: &K) -> String {
    match object.condition(conditions::READY) {
        None if object.conditions().is_empty() => {
            format!(
                "waiting for the konnector, which has not seen the {} yet; does it run?",
                K::kind(&())
            )
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

    #[track_caller]
    fn check_unavailable(status: &serde_json::Value, expect: Option<&str>) {
        let deployment = serde_json::json!({ "metadata": { "generation": 2 }, "status": status,
            "spec": { "replicas": 2, "selector": {}, "template": {} } });
        let said = unavailable(&serde_json::from_value(deployment).unwrap());
        match (said.as_deref(), expect) {
            (None, None) => {}
            (Some(said), Some(expect)) => assert!(said.contains(expect), "{said}"),
            (said, expect) => panic!("{said:?} instead of {expect:?}"),
        }
    }

    #[test]
    fn a_deployment_is_available_when_all_that_is_new_is() {
        use serde_json::json;
        let counts = |generation: i32, all: i32, updated: i32, available: i32| json!({ "observedGeneration": generation, "replicas": all, "updatedReplicas": updated, "availableReplicas": available });
        check_unavailable(&counts(2, 2, 2, 2), None);
        check_unavailable(&json!({}), Some("deployment controller"));
        check_unavailable(&counts(1, 2, 2, 2), Some("deployment controller"));
        check_unavailable(&counts(2, 2, 1, 2), Some("1 of 2"));
        check_unavailable(&counts(2, 3, 2, 2), Some("2 of 2"));
        let mut failing = counts(2, 2, 2, 0);
        failing["conditions"] = json!([{ "type": "ReplicaFailure", "status": "True", "message": "quota" }]);
        check_unavailable(&failing, Some("0 of 2 replicas are available: quota"));
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
