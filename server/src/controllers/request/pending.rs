//! Requests that are not decided, by what they are about: a change wakes those that it may let go on, and no others.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use bindery_api::v1alpha2::{BindableResourcesRequest, Phase};
use bindery_runtime::{
    cache::{Change, ObjectKey},
    queue::{Lane, Queue},
};
use parking_lot::Mutex;

use super::{origin, phase, status};

/// The queues of requests. Those that anybody makes as resources, as many as he likes, are no calls that somebody waits for.
#[derive(Clone)]
pub(super) struct Queues {
    pub(super) calls: Queue<ObjectKey>,
    pub(super) resources: Queue<ObjectKey>,
}

/// Clones share them.
#[derive(Clone, Default)]
pub(super) struct Pending {
    index: Arc<Mutex<Index>>,
}

#[derive(Default)]
struct Index {
    asked: HashMap<ObjectKey, Asked>,
    by_identity: HashMap<String, HashSet<ObjectKey>>,
    by_template: HashMap<String, HashSet<ObjectKey>>,
}

struct Asked {
    identity: String,
    template: String,
    is_call: bool,
    /// It waits for what is in no cache, and comes again by itself.
    is_outside: bool,
}

// === impl Queues ===

impl Queues {
    pub(super) fn new() -> Self {
        Self {
            calls: Queue::new(),
            resources: Queue::new(),
        }
    }

    /// Queues requests that a change of something else may let go on.
    pub(super) fn wake(&self, woken: Vec<(ObjectKey, bool)>, lane: Lane) {
        for (key, is_call) in woken {
            if is_call {
                self.calls.add(key, lane);
            } else {
                self.resources.add(key, Lane::Backlog);
            }
        }
    }
}

// === impl Pending ===

impl Pending {
    pub(super) fn note(&self, change: &Change<'_, BindableResourcesRequest>, home: &str) {
        let mut index = self.index.lock();
        index.remove(change.key);
        if let Some(request) = change.new.filter(|request| phase(request) == Phase::Pending) {
            let is_call = origin::is_grpc(request, home);
            let asked = Asked {
                identity: request.spec.cluster_identity.identity.clone(),
                template: origin::template_name(request).unwrap_or_default().to_owned(),
                is_call,
                is_outside: !is_call && status::reason(request).is_some_and(is_outside),
            };
            index.insert(change.key.clone(), asked);
        }
    }

    /// Those for a cluster, each with whether it is a call.
    pub(super) fn of_identity(&self, identity: &str) -> Vec<(ObjectKey, bool)> {
        let index = self.index.lock();
        index.woken(index.by_identity.get(identity).into_iter().flatten())
    }

    /// Those for a template.
    pub(super) fn of_template(&self, template: &str) -> Vec<(ObjectKey, bool)> {
        let index = self.index.lock();
        index.woken(index.by_template.get(template).into_iter().flatten())
    }

    pub(super) fn all(&self) -> Vec<(ObjectKey, bool)> {
        let index = self.index.lock();
        index.woken(index.asked.keys())
    }
}

// === impl Index ===

impl Index {
    fn insert(&mut self, key: ObjectKey, asked: Asked) {
        self.by_identity
            .entry(asked.identity.clone())
            .or_default()
            .insert(key.clone());
        self.by_template
            .entry(asked.template.clone())
            .or_default()
            .insert(key.clone());
        self.asked.insert(key, asked);
    }

    fn remove(&mut self, key: &ObjectKey) {
        let Some(asked) = self.asked.remove(key) else {
            return;
        };
        take(&mut self.by_identity, &asked.identity, key);
        take(&mut self.by_template, &asked.template, key);
    }

    fn woken<'a>(&self, keys: impl Iterator<Item = &'a ObjectKey>) -> Vec<(ObjectKey, bool)> {
        let asked = keys.filter_map(|key| Some((key, self.asked.get(key)?)));
        let inside = asked.filter(|(_, asked)| !asked.is_outside);
        inside.map(|(key, asked)| (key.clone(), asked.is_call)).collect()
    }
}

fn take(index: &mut HashMap<String, HashSet<ObjectKey>>, by: &str, key: &ObjectKey) {
    if let Some(keys) = index.get_mut(by) {
        keys.remove(key);
        if keys.is_empty() {
            index.remove(by);
        }
    }
}

fn is_outside(reason: &str) -> bool {
    super::Refusal::is_reason(reason) || ["ForeignSecret", "SecretCreationFailed"].contains(&reason)
}

#[cfg(test)]
mod tests {
    use bindery_api::{
        labels,
        v1alpha2::{BindableResourcesRequestSpec, BindableResourcesRequestStatus, NameRef},
    };
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
    use kube::ResourceExt as _;

    use super::*;

    fn asked(identity: &str, template: &str, phase: Phase, reason: &str) -> Arc<BindableResourcesRequest> {
        let mut spec = BindableResourcesRequestSpec {
            template_ref: Some(NameRef::new(template)),
            ..BindableResourcesRequestSpec::default()
        };
        identity.clone_into(&mut spec.cluster_identity.identity);
        let mut request = BindableResourcesRequest::new("riders", spec);
        request.metadata.namespace = Some("tenants".to_owned());
        let ready = Condition {
            type_: "Ready".to_owned(),
            status: "False".to_owned(),
            reason: reason.to_owned(),
            message: String::new(),
            observed_generation: None,
            last_transition_time: Time(jiff::Timestamp::UNIX_EPOCH),
        };
        request.status = Some(BindableResourcesRequestStatus {
            phase,
            conditions: vec![ready],
            ..BindableResourcesRequestStatus::default()
        });
        Arc::new(request)
    }

    fn noted(pending: &Pending, old: Option<&Arc<BindableResourcesRequest>>, new: &Arc<BindableResourcesRequest>) {
        pending.note(
            &Change {
                key: &ObjectKey::of(&**new),
                old,
                new: Some(new),
                lane: Lane::Live,
            },
            "kube-bind",
        );
    }

    #[track_caller]
    fn check(request: &Arc<BindableResourcesRequest>, expect: [bool; 4]) {
        let pending = Pending::default();
        let before = asked("before", "before", Phase::Pending, "");
        noted(&pending, None, &before);
        noted(&pending, Some(&before), request);
        let found = [
            pending.of_identity("a"),
            pending.of_template("cowboys"),
            pending.of_identity("before"),
            pending.of_template("before"),
        ];
        assert_eq!(found.map(|keys| !keys.is_empty()), expect);
    }

    #[test]
    fn a_change_wakes_what_it_concerns_and_nothing_else() {
        let pending = |reason| asked("a", "cowboys", Phase::Pending, reason);
        check(&pending("TemplateNotFound"), [true, true, false, false]);
        check(&asked("b", "cowboys", Phase::Pending, ""), [false, true, false, false]);
        check(&asked("a", "other", Phase::Pending, ""), [true, false, false, false]);
        // What comes again by itself is not woken by anything that others do.
        for reason in [
            "PolicyMissing",
            "MadeBeforePolicy",
            "ForeignSecret",
            "SecretCreationFailed",
        ] {
            check(&pending(reason), [false; 4]);
        }
        for phase in [Phase::Succeeded, Phase::Failed] {
            check(&asked("a", "cowboys", phase, ""), [false; 4]);
        }
    }

    #[tokio::test]
    async fn what_is_made_as_a_resource_delays_no_call() {
        let pending = Pending::default();
        let resource = asked("a", "cowboys", Phase::Pending, "");
        noted(&pending, None, &resource);
        let mut call = (*resource).clone();
        call.metadata.name = Some("bind-0".to_owned());
        call.metadata.namespace = Some("kube-bind".to_owned());
        let via = (labels::VIA.to_owned(), labels::VIA_GRPC.to_owned());
        call.labels_mut().extend([via]);
        let call = Arc::new(call);
        noted(&pending, None, &call);
        let queues = Queues::new();
        queues.wake(pending.all(), Lane::Live);
        assert_eq!((queues.calls.len(), queues.resources.len()), (1, 1));
        let work = queues.calls.next().await.expect("a call");
        assert_eq!(*work.key(), ObjectKey::of(&*call));
    }
}
