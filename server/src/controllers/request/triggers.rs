//! Queues the requests that a change may let go on.

use std::sync::Arc;

use bindery_api::v1alpha2::BindableResourcesRequest;
use bindery_runtime::{
    cache::{Cache, Change, ObjectKey},
    queue::{Priority, Queue},
};
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::Resource;
use serde::de::DeserializeOwned;

use crate::{
    contract,
    controllers::{Context, Running, pending_requests::PendingRequests, subject},
    credentials,
};

/// The queues of requests. Requests that users create as resources, in any number, have a queue of their own, so that they
/// never delay a call.
#[derive(Clone)]
pub(super) struct Queues {
    pub(super) calls: Queue<ObjectKey>,
    pub(super) resources: Queue<ObjectKey>,
}

impl Queues {
    /// Creates empty queues that are fair between authors, whom `author` finds by the key of a request.
    pub(super) fn new(
        (calls, resources): (usize, usize),
        author: impl Fn(&ObjectKey) -> Arc<str> + Clone + Send + Sync + 'static,
    ) -> Self {
        Self {
            calls: Queue::fair(calls, author.clone()),
            resources: Queue::fair(resources, author),
        }
    }

    /// Queues pending requests, each given with whether a call made it, after a change of something that they wait for.
    pub(super) fn wake(&self, woken: Vec<(ObjectKey, bool)>, priority: Priority) {
        for (key, is_call) in woken {
            if is_call {
                self.calls.add(key, priority);
            } else {
                self.resources.add(key, Priority::Backlog);
            }
        }
    }
}

pub(super) fn watch(context: &Context, running: &mut Running, queues: &Queues) {
    watch_requests(context, running, queues);
    let caches = &context.state.caches;
    wake(context, running, queues, &caches.templates, |pending, change| {
        pending.of_template(&change.key.name)
    });
    wake(context, running, queues, &caches.definitions, |pending, _| {
        pending.all()
    });
    wake(context, running, queues, &caches.aggregated_role, |pending, _| {
        pending.all()
    });
    wake(context, running, queues, &caches.namespaces, |pending, change| {
        // Namespaces mapped for a contract change often, and no request waits for them.
        let contract = subject(change).filter(|namespace| contract::is_contract(namespace));
        let identity = contract.and_then(|namespace| contract::identity(namespace));
        identity.map_or_else(Vec::new, |identity| pending.of_cluster(identity))
    });
    wake_within(context, running, queues, &caches.export_requests, |_| true);
    wake_within(context, running, queues, &caches.exports, |_| true);
    wake_within(context, running, queues, &context.made.accounts, |_| true);
    wake_within(
        context,
        running,
        queues,
        &context.made.role_bindings,
        |change: &Change<'_, RoleBinding>| {
            subject(change).is_some_and(|binding| contract::of(&**binding) == Some(&*change.key.namespace))
        },
    );
    wake_within(context, running, queues, &caches.cluster_bindings, |change| {
        // Heartbeats change it often.
        let revocation = |binding: Option<&Arc<_>>| binding.map(|binding| credentials::revocation(binding));
        revocation(change.old) != revocation(change.new)
    });
}

/// Queues each request for its own changes.
fn watch_requests(context: &Context, running: &mut Running, queues: &Queues) {
    let (queues, state) = (queues.clone(), context.state.clone());
    let subscription = context.state.caches.requests.subscribe(move |change| {
        let Some(request) = subject(change) else {
            return;
        };
        if request.is_grpc(&state.settings.namespace) {
            queues.calls.add(change.key.clone(), change.priority);
            return;
        }
        if let Some(old) = change.old.filter(|old| is_another(old, change.new)) {
            state.author_verifier.forget(old);
        }
        if let Some(new) = change.new {
            state.author_verifier.note(new);
        }
        queues.resources.add(change.key.clone(), change.priority);
    });
    running.subscriptions.push(subscription);
}

fn is_another(old: &BindableResourcesRequest, new: Option<&Arc<BindableResourcesRequest>>) -> bool {
    new.is_none_or(|new| new.metadata.uid != old.metadata.uid)
}

/// Queues pending requests for each change in a cache.
fn wake<K>(
    context: &Context,
    running: &mut Running,
    queues: &Queues,
    cache: &Cache<K>,
    woken: impl Fn(&PendingRequests, &Change<'_, K>) -> Vec<(ObjectKey, bool)> + Send + Sync + 'static,
) where
    K: Resource + DeserializeOwned + Send + Sync + 'static,
{
    let (queues, pending) = (queues.clone(), context.pending_requests.clone());
    let subscription = cache.subscribe(move |change| queues.wake(woken(&pending, change), change.priority));
    running.subscriptions.push(subscription);
}

/// Queues the pending requests for a contract when a relevant change happens in its namespace.
fn wake_within<K>(
    context: &Context,
    running: &mut Running,
    queues: &Queues,
    cache: &Cache<K>,
    is_relevant: impl Fn(&Change<'_, K>) -> bool + Send + Sync + 'static,
) where
    K: Resource + DeserializeOwned + Send + Sync + 'static,
{
    let state = context.state.clone();
    wake(context, running, queues, cache, move |pending, change| {
        let contract = is_relevant(change).then(|| state.contract(&change.key.namespace));
        let identity = contract
            .as_ref()
            .and_then(|contract| contract::identity(contract.as_deref()?));
        identity.map_or_else(Vec::new, |identity| pending.of_cluster(identity))
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_made_as_a_resource_delays_no_call() {
        let queues = Queues::new((4, 2), |key| Arc::clone(&key.namespace));
        let (resource, call) = (
            ObjectKey::new("tenants", "riders"),
            ObjectKey::new("kube-bind", "bind-0"),
        );
        queues.wake(vec![(resource, false), (call.clone(), true)], Priority::Live);
        assert_eq!((queues.calls.len(), queues.resources.len()), (1, 1));
        let work = queues.calls.next().await.expect("a call");
        assert_eq!(*work.key(), call);
    }
}
