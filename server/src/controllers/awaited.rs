//! Requests that are not decided, by the consumer they are for: what they are about to make, or to make anew, holds back the
//! end of what is left of its predecessor.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use bindery_api::v1alpha2::{BindableResourcesRequest, Phase};
use bindery_runtime::cache::{Change, ObjectKey};
use k8s_openapi::api::core::v1::Namespace;
use parking_lot::Mutex;

use super::{Context, Running, request};
use crate::{contract, state::State};

/// Pending requests. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Awaited {
    /// By identity and key.
    requests: Arc<Mutex<HashMap<String, BTreeMap<ObjectKey, Asked>>>>,
}

#[derive(Clone, Debug)]
struct Asked {
    uid: Option<String>,
    export: String,
}

/// Keeps the pending requests current. Before all who are told of the same changes, so that they see them as they are.
pub(super) fn start(context: &Context, running: &mut Running) {
    let awaited = context.awaited.clone();
    let requests = &context.state.caches.requests;
    let subscription = requests.subscribe(move |change| awaited.note(change));
    running.subscriptions.push(subscription);
}

/// The request that a change decides or takes away.
pub(super) fn ended<'a>(change: &Change<'a, BindableResourcesRequest>) -> Option<&'a BindableResourcesRequest> {
    let was = change.old.filter(|old| is_pending(old))?;
    let is = change.new.is_some_and(|new| is_pending(new));
    (!is).then_some(&**was)
}

/// The contracts of the consumer that a request is for.
pub(super) fn contracts(state: &State, asked: &BindableResourcesRequest) -> Vec<Arc<Namespace>> {
    let identity = &*asked.spec.cluster_identity.identity;
    state
        .caches
        .namespaces
        .list(|namespace| contract::is_contract(namespace) && contract::identity(namespace) == Some(identity))
}

/// The contract that a change lets remember one more request, which holds back nothing from now on.
pub(super) fn served<'a>(change: &Change<'a, Namespace>) -> Option<&'a Namespace> {
    let new = change.new.filter(|new| contract::is_contract(new))?;
    let before = change.old.map(|old| contract::served::served(old)).unwrap_or_default();
    (contract::served::served(new) != before).then_some(&**new)
}

fn is_pending(asked: &BindableResourcesRequest) -> bool {
    request::phase(asked) == Phase::Pending && asked.metadata.deletion_timestamp.is_none() && !request::is_held(asked)
}

// === impl Awaited ===

impl Awaited {
    /// The exports of a contract that requests are about to make, or to make anew. One that has been served makes none,
    /// whatever it waits for and whatever its status says.
    pub(super) fn of(&self, contract: &Namespace) -> Vec<String> {
        let Some(identity) = contract::identity(contract) else {
            return Vec::new();
        };
        let requests = self.requests.lock();
        let requests = requests.get(identity).into_iter().flat_map(BTreeMap::values);
        let requests = requests.filter(|asked| !contract::served::is_served(contract, asked.uid.as_deref()));
        requests.map(|asked| asked.export.clone()).collect()
    }

    fn note(&self, change: &Change<'_, BindableResourcesRequest>) {
        let mut all = self.requests.lock();
        if let Some(old) = change.old.filter(|old| is_pending(old)) {
            let identity = &old.spec.cluster_identity.identity;
            if let Some(requests) = all.get_mut(identity) {
                requests.remove(change.key);
                if requests.is_empty() {
                    all.remove(identity);
                }
            }
        }
        if let Some(new) = change.new.filter(|new| is_pending(new)) {
            let requests = all.entry(new.spec.cluster_identity.identity.clone()).or_default();
            let asked = Asked {
                uid: new.metadata.uid.clone(),
                export: request::request_name(new).to_owned(),
            };
            requests.insert(change.key.clone(), asked);
        }
    }
}

#[cfg(test)]
mod tests {
    use bindery_api::{
        annotations,
        v1alpha2::{BindableResourcesRequestSpec, BindableResourcesRequestStatus},
    };
    use bindery_runtime::queue::Lane;
    use kube::ResourceExt as _;

    use super::*;
    use crate::contract::served::tests::remember;

    fn asked(identity: &str, phase: Phase) -> Arc<BindableResourcesRequest> {
        let mut spec = BindableResourcesRequestSpec::default();
        identity.clone_into(&mut spec.cluster_identity.identity);
        let mut asked = BindableResourcesRequest::new("riders", spec);
        asked.metadata.uid = Some("r1".to_owned());
        asked.status = Some(BindableResourcesRequestStatus {
            phase,
            ..BindableResourcesRequestStatus::default()
        });
        Arc::new(asked)
    }

    fn contract(identity: &str) -> Namespace {
        let mut namespace = Namespace::default();
        let mark = (annotations::IDENTITY.to_owned(), identity.to_owned());
        namespace.annotations_mut().extend([mark]);
        namespace
    }

    #[track_caller]
    fn check(old: Option<(&str, Phase)>, new: Option<(&str, Phase)>, expect: [&[&str]; 2], ends: bool) {
        let awaited = Awaited::default();
        let key = ObjectKey::new("kube-bind", "r1");
        let [old, new] = [old, new].map(|of| of.map(|(identity, phase)| asked(identity, phase)));
        awaited.note(&Change {
            key: &key,
            old: None,
            new: old.as_ref(),
            lane: Lane::Live,
        });
        let change = Change {
            key: &key,
            old: old.as_ref(),
            new: new.as_ref(),
            lane: Lane::Live,
        };
        awaited.note(&change);
        assert_eq!([awaited.of(&contract("a")), awaited.of(&contract("b"))], expect);
        assert_eq!(ended(&change).is_some(), ends);
    }

    #[test]
    fn what_waits_for_its_response_alone_is_not_awaited() {
        let awaited = Awaited::default();
        awaited.note(&Change {
            key: &ObjectKey::new("tenants", "riders"),
            old: None,
            new: Some(&asked("a", Phase::Pending)),
            lane: Lane::Live,
        });
        let before = contract("a");
        assert_eq!(awaited.of(&before), ["riders"]);
        let mut after = before.clone();
        remember(&mut after, &["r1"]);
        assert_eq!(awaited.of(&after), [""; 0]);
        let told = |old: &Namespace, new: &Namespace| {
            let key = ObjectKey::new("", "kube-bind-a");
            let [old, new] = [old, new].map(|namespace| {
                let mut namespace = namespace.clone();
                namespace.metadata.name = Some("kube-bind-a".to_owned());
                let mark = (bindery_api::labels::CONTRACT.to_owned(), "kube-bind-a".to_owned());
                namespace.labels_mut().extend([mark]);
                Arc::new(namespace)
            });
            let change = Change {
                key: &key,
                old: Some(&old),
                new: Some(&new),
                lane: Lane::Live,
            };
            served(&change).is_some()
        };
        assert!(told(&before, &after));
        assert!(!told(&after, &after));
    }

    #[test]
    fn a_request_is_awaited_until_it_is_decided_or_gone() {
        let pending = |identity| Some((identity, Phase::Pending));
        check(None, pending("a"), [&["riders"], &[]], false);
        check(pending("a"), pending("a"), [&["riders"], &[]], false);
        check(pending("a"), pending("b"), [&[], &["riders"]], false);
        check(pending("a"), Some(("a", Phase::Succeeded)), [&[], &[]], true);
        check(pending("a"), Some(("a", Phase::Failed)), [&[], &[]], true);
        check(pending("a"), None, [&[], &[]], true);
        check(Some(("a", Phase::Failed)), None, [&[], &[]], false);
    }
}
