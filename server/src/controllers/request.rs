//! BindableResourcesRequest → contract, grant and APIServiceExportRequest; then waits for the export.

use std::{collections::HashSet, sync::Arc};

use bindery_api::{
    annotations, labels,
    v1alpha2::{APIServiceExport, APIServiceExportRequest, BindableResourcesRequest, ClusterBinding, Phase},
};
use bindery_runtime::{cache::ObjectKey, queue::Queue};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, ResourceExt as _, api::PropagationPolicy};
use parking_lot::Mutex;
use serde_json::json;

use super::{Context, Next, Reconcile, Running, contract::Parts, subject, template::assess};
use crate::{
    contract,
    credentials::{self, IssueError},
    principal::Principal,
    writes::{self, WriteError},
};

mod plan;
mod status;

use plan::{Observed, Op, Refused};

/// Requests that are not decided: what else changes may be what they wait for.
type Pending = Arc<Mutex<HashSet<ObjectKey>>>;

struct Requests {
    context: Context,
}

/// The caller's name of a request, which becomes the export's: the object's own is a hash where it came over gRPC.
pub fn request_name(request: &BindableResourcesRequest) -> &str {
    let named = request.annotations().get(annotations::REQUEST_NAME);
    let own = request.metadata.name.as_deref();
    named.map(String::as_str).or(own).unwrap_or_default()
}

/// The template a request is for.
pub fn template_name(request: &BindableResourcesRequest) -> Option<&str> {
    request
        .spec
        .template_ref
        .as_ref()
        .map(|template| template.name.as_str())
}

/// Whether a call made the request.
pub fn is_grpc(request: &BindableResourcesRequest) -> bool {
    request
        .labels()
        .get(labels::VIA)
        .is_some_and(|via| via == labels::VIA_GRPC)
}

/// Who made a request: the verified caller, or, where it was made as a resource, its author.
pub fn principal(request: &BindableResourcesRequest) -> Principal {
    let verified = request.annotations().get(annotations::PRINCIPAL);
    verified
        .filter(|_| is_grpc(request))
        .and_then(|json| Principal::from_json(json))
        .unwrap_or_else(|| Principal::named(&request.spec.author))
}

pub(super) fn start(context: &Context, running: &mut Running) {
    let queue = Queue::new();
    let caches = &context.state.caches;
    let pending = Pending::default();
    let note = Arc::clone(&pending);
    running.watch(&caches.requests, &queue, move |change| {
        let undecided = change.new.is_some_and(|request| phase(request) == Phase::Pending);
        let mut pending = note.lock();
        if undecided {
            pending.insert(change.key.clone());
        } else {
            pending.remove(change.key);
        }
        Some(change.key.clone())
    });
    // Few requests are pending at a time, so that each looks for itself whether the change was its own.
    let all = move || pending.lock().iter().cloned().collect::<Vec<_>>();
    macro_rules! wake {
        ($cache:expr) => {{
            let all = all.clone();
            running.watch($cache, &queue, move |_| all());
        }};
    }
    wake!(&caches.templates);
    wake!(&caches.definitions);
    wake!(&caches.aggregated_role);
    wake!(&caches.export_requests);
    wake!(&caches.exports);
    wake!(&context.made.accounts);
    let contracts = all.clone();
    running.watch(&caches.namespaces, &queue, move |change| {
        // Namespaces made for a contract are of no interest here, and many.
        let contract = subject(change).is_some_and(|namespace| contract::is_contract(namespace));
        if contract { contracts() } else { Vec::new() }
    });
    let bindings = all.clone();
    running.watch(&context.made.role_bindings, &queue, move |change| {
        let own = subject(change).is_some_and(|binding| contract::of(binding.as_ref()) == Some(&*change.key.namespace));
        if own { bindings() } else { Vec::new() }
    });
    running.watch(&caches.cluster_bindings, &queue, move |change| {
        // Not for every heartbeat.
        let revoked = |binding: &Arc<ClusterBinding>| credentials::revocation(binding);
        let (old, new) = (change.old.map(revoked), change.new.map(revoked));
        if old == new { Vec::new() } else { all() }
    });
    let requests = Requests {
        context: context.clone(),
    };
    running.work(requests, &queue);
}

/// How far a request has come.
pub fn phase(request: &BindableResourcesRequest) -> Phase {
    request.status.as_ref().map(|status| status.phase).unwrap_or_default()
}

impl Reconcile for Requests {
    type Key = ObjectKey;
    const NAME: &'static str = "request";

    async fn reconcile(&self, key: &ObjectKey) -> Result<Next, WriteError> {
        let caches = &self.context.state.caches;
        let Some(request) = caches.requests.get_key(key) else {
            return Ok(Next::Change);
        };
        let now = Timestamp::now();
        if let Some(next) = self.finished(&request, now).await? {
            return Ok(next);
        }
        let seen = self.observe(&request, now).await?;
        for op in plan::plan(&seen) {
            if let Err(error) = self.apply(&seen, op).await {
                return self.explain(&seen, error).await;
            }
        }
        Ok(Next::Change)
    }
}

impl Requests {
    /// A decided request is kept for as long as it says; nothing else happens to it.
    async fn finished(&self, request: &BindableResourcesRequest, now: Timestamp) -> Result<Option<Next>, WriteError> {
        if request.metadata.deletion_timestamp.is_some() {
            return Ok(Some(Next::Change));
        }
        Ok(match status::expiry(request, now) {
            status::Expiry::Undecided => None,
            status::Expiry::Never => Some(Next::Change),
            status::Expiry::In(delay) => Some(Next::After(delay)),
            status::Expiry::Now => {
                let api = self.requests(request);
                writes::delete(&api, &request.name_any(), request.metadata.uid.as_deref()).await?;
                Some(Next::Change)
            }
        })
    }

    async fn observe<'a>(
        &self,
        request: &'a Arc<BindableResourcesRequest>,
        now: Timestamp,
    ) -> Result<Observed<'a>, WriteError> {
        let state = &self.context.state;
        let caches = &state.caches;
        let template = template_name(request).and_then(|name| caches.templates.get("", name));
        let offer = match &template {
            Some(template) => Some(assess(state, template).await?),
            None => None,
        };
        let namespaces = caches.namespaces.list(contract::is_contract);
        let identity = &request.spec.cluster_identity.identity;
        let located = contract::locate(&namespaces, &state.settings.namespace_prefix, identity);
        let contract = located.as_ref().map_or("", |located| located.name.as_str());
        let name = request_name(request);
        let parts = Parts::observe(&self.context, contract);
        Ok(Observed {
            request,
            principal: principal(request),
            offer,
            export_request: caches.export_requests.get(contract, name),
            export: caches.exports.get(contract, name),
            schemas: caches.bound_schemas.list_in(contract),
            complete: parts.as_ref().is_some_and(Parts::are_complete),
            revocation: parts.and_then(|parts| credentials::revocation(parts.cluster_binding.as_ref()?)),
            located,
            now,
        })
    }

    async fn apply(&self, seen: &Observed<'_>, op: Op) -> Result<(), WriteError> {
        let client = || self.context.state.clients.write.clone();
        match op {
            Op::CreateContract(namespace) => {
                let name = namespace.name_any();
                let is_ours = |existing: &Namespace| contract::of(existing) == Some(name.as_str());
                writes::create(&Api::all(client()), &*namespace, is_ours).await?;
            }
            Op::Grant { contract, patch } => {
                writes::merge::<Namespace>(&Api::all(client()), &contract, &patch).await?;
            }
            Op::Reinstate { contract, revocation } => {
                let reinstated = self.context.issuer.reinstate(&contract, Some(&revocation)).await;
                reinstated.or_else(|error| match error {
                    IssueError::Write { source, .. } => Err(source),
                    // Gone in between: the change brings the request back.
                    _ => Ok(()),
                })?;
            }
            Op::CreateExportRequest(wanted) => {
                let api = Api::namespaced(client(), &wanted.namespace().unwrap_or_default());
                // One that is there already is looked at when the cache has seen it.
                writes::create(&api, &*wanted, |_| true).await?;
            }
            Op::DeleteExportRequest { contract, name, uid } => {
                let api: Api<APIServiceExportRequest> = Api::namespaced(client(), &contract);
                writes::delete(&api, &name, uid.as_deref()).await?;
            }
            Op::MarkReplaced { contract, name, patch } => {
                let api: Api<APIServiceExport> = Api::namespaced(client(), &contract);
                writes::merge(&api, &name, &patch).await?;
            }
            Op::DeleteReplaced(export) => {
                let api: Api<APIServiceExport> = Api::namespaced(client(), &export.namespace().unwrap_or_default());
                // Schemas, namespaces and rights stay for the export that takes its place.
                writes::delete_seen_with(&api, &*export, PropagationPolicy::Orphan).await?;
            }
            Op::Say(outcome) => {
                let patch = json!({
                    "metadata": writes::seen(&**seen.request),
                    "status": status::status(seen.request, &outcome, seen.now),
                });
                let api = self.requests(seen.request);
                writes::merge_status(&api, &seen.request.name_any(), &patch).await?;
            }
        }
        Ok(())
    }

    /// A namespace that stands in the way is for the admin to mend, and for the caller to know.
    async fn explain(&self, seen: &Observed<'_>, error: WriteError) -> Result<Next, WriteError> {
        if !matches!(error, WriteError::Foreign { .. }) {
            return Err(error);
        }
        let name = seen
            .located
            .as_ref()
            .map_or_else(|_| String::new(), |located| located.name.clone());
        let refused = Refused::from(contract::Refusal::ForeignNamespace { name });
        self.apply(seen, Op::Say(plan::Outcome::Failed(refused))).await?;
        Ok(Next::Change)
    }

    fn requests(&self, request: &BindableResourcesRequest) -> Api<BindableResourcesRequest> {
        let client = self.context.state.clients.write.clone();
        Api::namespaced(client, &request.namespace().unwrap_or_default())
    }
}
