//! The BindableResourcesRequests that are not decided yet: which of them a change may let go on, and which exports they are
//! about to create.

use std::sync::Arc;

use bindery_api::v1alpha2::{BindableResourcesRequest, Phase};
use bindery_runtime::cache::{Change, ObjectKey};
use k8s_openapi::api::core::v1::Namespace;
use parking_lot::Mutex;

use super::{Context, Running, waiting_for::WaitingFor};
use crate::{
    contract,
    request::{self, OutsideReason},
    state::State,
};

/// The pending requests, by what they wait for. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct PendingRequests {
    index: Arc<Mutex<WaitingFor<Subject, ObjectKey, PendingRequest>>>,
}

/// What a pending request waits for a change of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Subject {
    /// What is in the contract of the cluster with this identity.
    Cluster(String),
    /// The template of this name.
    Template(String),
}

#[derive(Clone, Debug)]
struct PendingRequest {
    uid: Option<String>,
    /// The template that the request is for.
    template: String,
    /// Name of the export that the request is about to create; `None` if the request is being deleted, or is not served
    /// because nobody has checked who made it.
    export: Option<String>,
    /// Whether a call made the request.
    is_call: bool,
    /// Whether the request waits for what no cache shows, and is looked at again by time alone.
    waits_outside: bool,
}

/// Keeps the pending requests current. Starts before every other subscriber of requests, so that those find them up to date.
pub(super) fn start(context: &Context, running: &mut Running) {
    let pending = context.pending_requests.clone();
    let server_namespace = context.state.settings.namespace.clone();
    let requests = &context.state.caches.requests;
    let subscription = requests.subscribe(move |change| pending.note(change, &server_namespace));
    running.subscriptions.push(subscription);
}

/// The request that is about to create an export no more after this change: it was decided, or deleted.
pub(super) fn ended<'a>(change: &Change<'a, BindableResourcesRequest>) -> Option<&'a BindableResourcesRequest> {
    let before = change.old.filter(|old| creates_export(old))?;
    let still = change.new.is_some_and(|new| creates_export(new));
    (!still).then_some(&**before)
}

/// The contracts of the consumer cluster that a request is for.
pub(super) fn contracts(state: &State, request: &BindableResourcesRequest) -> Vec<Arc<Namespace>> {
    let identity = &*request.spec.cluster_identity.identity;
    state
        .caches
        .namespaces
        .list(|namespace| contract::is_contract(namespace) && contract::identity(namespace) == Some(identity))
}

/// The contract in which a change records one more fulfilled request. From now on that request creates no export.
pub(super) fn fulfilled<'a>(change: &Change<'a, Namespace>) -> Option<&'a Namespace> {
    let new = change.new.filter(|new| contract::is_contract(new))?;
    let before = change.old.map(|old| contract::served::served(old)).unwrap_or_default();
    (contract::served::served(new) != before).then_some(&**new)
}

fn creates_export(request: &BindableResourcesRequest) -> bool {
    let is_pending = request.phase() == Phase::Pending && request.metadata.deletion_timestamp.is_none();
    is_pending && !request::is_unverified(request)
}

// === impl PendingRequests ===

impl PendingRequests {
    /// Names of the exports that pending requests are about to create in a contract, or to make anew. A fulfilled request
    /// creates none, whatever its status says.
    pub(super) fn exports(&self, contract: &Namespace) -> Vec<String> {
        self.about_to_create(contract)
            .into_iter()
            .map(|(export, _)| export)
            .collect()
    }

    /// Names of the templates of which pending requests are about to create the export of that name.
    pub(super) fn templates_of(&self, contract: &Namespace, export: &str) -> Vec<String> {
        let all = self.about_to_create(contract).into_iter();
        all.filter(|(name, _)| name == export)
            .map(|(_, template)| template)
            .collect()
    }

    /// Whether a pending request is about to create an export from a template.
    pub(super) fn binds(&self, contract: &Namespace, template: &str) -> bool {
        self.about_to_create(contract).iter().any(|(_, of)| of == template)
    }

    /// The exports that pending requests are about to create in a contract, each with its template.
    fn about_to_create(&self, contract: &Namespace) -> Vec<(String, String)> {
        let Some(identity) = contract::identity(contract) else {
            return Vec::new();
        };
        let index = self.index.lock();
        let cluster = Subject::Cluster(identity.to_owned());
        index
            .of(&cluster)
            .filter(|(_, request)| !contract::served::is_served(contract, request.uid.as_deref()))
            .filter_map(|(_, request)| Some((request.export.clone()?, request.template.clone())))
            .collect()
    }

    /// Keys of the pending requests for a cluster, each with whether a call made it.
    pub(super) fn of_cluster(&self, identity: &str) -> Vec<(ObjectKey, bool)> {
        woken(self.index.lock().of(&Subject::Cluster(identity.to_owned())))
    }

    /// Keys of the pending requests for a template, each with whether a call made it.
    pub(super) fn of_template(&self, template: &str) -> Vec<(ObjectKey, bool)> {
        woken(self.index.lock().of(&Subject::Template(template.to_owned())))
    }

    /// Keys of all pending requests, each with whether a call made it.
    pub(super) fn all(&self) -> Vec<(ObjectKey, bool)> {
        woken(self.index.lock().all())
    }

    fn note(&self, change: &Change<'_, BindableResourcesRequest>, server_namespace: &str) {
        let mut index = self.index.lock();
        let Some(request) = change.new.filter(|request| request.phase() == Phase::Pending) else {
            index.remove(change.key);
            return;
        };
        let is_call = request.is_grpc(server_namespace);
        let pending = PendingRequest {
            uid: request.metadata.uid.clone(),
            template: request::template_name(request).unwrap_or_default().to_owned(),
            export: creates_export(request).then(|| request::request_name(request).to_owned()),
            is_call,
            waits_outside: !is_call && OutsideReason::of(request).is_some(),
        };
        let subjects = [
            Subject::Cluster(request.spec.cluster_identity.identity.clone()),
            Subject::Template(request::template_name(request).unwrap_or_default().to_owned()),
        ];
        index.insert(change.key.clone(), subjects, pending);
    }
}

fn woken<'a>(requests: impl Iterator<Item = (&'a ObjectKey, &'a PendingRequest)>) -> Vec<(ObjectKey, bool)> {
    let inside = requests.filter(|(_, request)| !request.waits_outside);
    inside.map(|(key, request)| (key.clone(), request.is_call)).collect()
}

#[cfg(test)]
mod tests;
