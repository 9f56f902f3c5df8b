//! BindableResourcesRequest → contract, grant and APIServiceExportRequest; then waits for the export.

use std::sync::Arc;

use bindery_api::v1alpha2::{
    APIServiceExport, APIServiceExportRequest, BindableResourcesRequest, ClusterBinding, LocalSecretKeyRef, Phase,
};
use bindery_runtime::{
    cache::{Change, ObjectKey},
    queue::Lane,
};
use jiff::Timestamp;
use k8s_openapi::api::{
    core::v1::{Namespace, ServiceAccount},
    rbac::v1::RoleBinding,
};
use kube::{Api, ResourceExt as _, api::PropagationPolicy};
use serde_json::json;

use super::{Context, Next, Reconcile, Running, contract::Parts, subject, template::assess};
use crate::{
    contract::{self, served},
    credentials::{self, IssueError},
    policy::requests::Refusal,
    writes::{self, WriteError},
};

mod asked;
mod origin;
mod pending;
mod plan;
mod response;
mod serve;
mod status;

pub use origin::{is_grpc, principal, request_name, template_name};
use pending::{Pending, Queues};
use plan::{Observed, Op, Outcome};

#[derive(Clone)]
struct Requests {
    context: Context,
}

/// Works on those that were made as resources.
struct Resources(Requests);

pub(super) fn start(context: &Context, running: &mut Running) {
    let queues = Queues::new();
    let pending = Pending::default();
    own(context, running, &queues, &pending);
    of_template(context, running, &queues, &pending);
    of_contract(context, running, &queues, &pending);
    let requests = Requests {
        context: context.clone(),
    };
    running.work(requests.clone(), &queues.calls);
    running.work(Resources(requests), &queues.resources);
}

/// Each request comes for its own changes.
fn own(context: &Context, running: &mut Running, queues: &Queues, pending: &Pending) {
    let (queues, pending, state) = (queues.clone(), pending.clone(), context.state.clone());
    let subscription = context.state.caches.requests.subscribe(move |change| {
        let home = &state.settings.namespace;
        pending.note(change, home);
        let Some(request) = subject(change) else {
            return;
        };
        if is_grpc(request, home) {
            queues.calls.add(change.key.clone(), change.lane);
            return;
        }
        if let Some(old) = change.old.filter(|old| is_another(old, change.new)) {
            state.gate.forget(old);
        }
        if let Some(new) = change.new {
            state.gate.note(new);
        }
        queues.resources.add(change.key.clone(), change.lane);
    });
    running.subscriptions.push(subscription);
}

fn is_another(old: &BindableResourcesRequest, new: Option<&Arc<BindableResourcesRequest>>) -> bool {
    new.is_none_or(|new| new.metadata.uid != old.metadata.uid)
}

/// What templates offer, and whether the server may hand it out.
fn of_template(context: &Context, running: &mut Running, queues: &Queues, pending: &Pending) {
    let caches = &context.state.caches;
    let (own, of) = (queues.clone(), pending.clone());
    let templates = caches
        .templates
        .subscribe(move |change| own.wake(of.of_template(&change.key.name), change.lane));
    let (own, of) = (queues.clone(), pending.clone());
    let definitions = caches
        .definitions
        .subscribe(move |change| own.wake(of.all(), change.lane));
    let (own, of) = (queues.clone(), pending.clone());
    let role = caches
        .aggregated_role
        .subscribe(move |change| own.wake(of.all(), change.lane));
    running.subscriptions.extend([templates, definitions, role]);
}

/// What is in a contract.
fn of_contract(context: &Context, running: &mut Running, queues: &Queues, pending: &Pending) {
    let caches = &context.state.caches;
    let (own, of) = (queues.clone(), pending.clone());
    let contracts = caches.namespaces.subscribe(move |change| {
        // Namespaces made for a contract are of no interest here, and many.
        let contract = subject(change).filter(|namespace| contract::is_contract(namespace));
        if let Some(identity) = contract.and_then(|namespace| contract::identity(namespace)) {
            own.wake(of.of_identity(identity), change.lane);
        }
    });
    running.subscriptions.push(contracts);
    let (own, of, state) = (queues.clone(), pending.clone(), context.state.clone());
    let wake = Arc::new(move |contract: &str, lane: Lane| {
        let contract = state.contract(contract);
        if let Some(identity) = contract.as_deref().and_then(contract::identity) {
            own.wake(of.of_identity(identity), lane);
        }
    });
    macro_rules! wake {
        ($cache:expr, $concerns:expr) => {{
            let wake = Arc::clone(&wake);
            let subscription = $cache.subscribe(move |change| {
                if $concerns(change) {
                    wake(&change.key.namespace, change.lane);
                }
            });
            running.subscriptions.push(subscription);
        }};
    }
    wake!(caches.export_requests, |_: &Change<'_, APIServiceExportRequest>| true);
    wake!(caches.exports, |_: &Change<'_, APIServiceExport>| true);
    wake!(context.made.accounts, |_: &Change<'_, ServiceAccount>| true);
    wake!(context.made.role_bindings, |change: &Change<'_, RoleBinding>| {
        subject(change).is_some_and(|binding| contract::of(&**binding) == Some(&*change.key.namespace))
    });
    wake!(caches.cluster_bindings, |change: &Change<'_, ClusterBinding>| {
        // Not for every heartbeat.
        let revoked = |binding: &Arc<ClusterBinding>| credentials::revocation(binding);
        change.old.map(revoked) != change.new.map(revoked)
    });
}

/// How far a request has come.
pub fn phase(request: &BindableResourcesRequest) -> Phase {
    request.status.as_ref().map(|status| status.phase).unwrap_or_default()
}

/// Whether a request is not served, because nobody has checked who made it. Nothing is to wait for what it asks.
pub(super) fn is_held(request: &BindableResourcesRequest) -> bool {
    status::reason(request).is_some_and(Refusal::is_reason)
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
        if !is_grpc(&request, &self.context.state.settings.namespace) {
            return self.serve(&request, now).await;
        }
        let seen = self.observe(&request, None, now).await?;
        self.advance(&seen, plan::plan(&seen)).await
    }
}

impl Reconcile for Resources {
    type Key = ObjectKey;
    const NAME: &'static str = "request made as a resource";
    const WORKERS: usize = 2;

    async fn reconcile(&self, key: &ObjectKey) -> Result<Next, WriteError> {
        self.0.reconcile(key).await
    }
}

impl Requests {
    /// A decided request is kept for as long as it says. Nothing else happens to it, but that a response that was lost is
    /// written again.
    async fn finished(&self, request: &BindableResourcesRequest, now: Timestamp) -> Result<Option<Next>, WriteError> {
        if request.metadata.deletion_timestamp.is_some() {
            return Ok(Some(Next::Change));
        }
        let next = match status::expiry(request, now) {
            status::Expiry::Undecided => return Ok(None),
            status::Expiry::Never => Next::Change,
            status::Expiry::In(delay) => Next::After(delay),
            status::Expiry::Now => {
                let api = self.requests(request);
                writes::delete(&api, &request.name_any(), request.metadata.uid.as_deref()).await?;
                return Ok(Some(Next::Change));
            }
        };
        let is_call = is_grpc(request, &self.context.state.settings.namespace);
        Ok((is_call || phase(request) == Phase::Failed).then_some(next))
    }

    /// Takes the steps in their order.
    async fn advance(&self, seen: &Observed<'_>, ops: Vec<Op>) -> Result<Next, WriteError> {
        let mut next = Next::Change;
        for op in ops {
            let makes = match &op {
                Op::CreateContract(namespace) => Some(namespace.name_any()),
                _ => None,
            };
            next = match (self.apply(seen, op).await, makes) {
                (Err(WriteError::Foreign { .. }), Some(name)) => self.refuse_namespace(seen, name).await?,
                (applied, _) => applied?,
            };
        }
        Ok(next)
    }

    async fn observe<'a>(
        &self,
        request: &'a Arc<BindableResourcesRequest>,
        secret: Option<LocalSecretKeyRef>,
        now: Timestamp,
    ) -> Result<Observed<'a>, WriteError> {
        let state = &self.context.state;
        let caches = &state.caches;
        let template = template_name(request).and_then(|name| caches.templates.get("", name));
        let offer = match &template {
            Some(template) => Some(assess(state, template).await?),
            None => None,
        };
        let identity = &request.spec.cluster_identity.identity;
        let prefix = &state.settings.namespace_prefix;
        let namespaces = caches.namespaces.list(contract::concerning(prefix, identity));
        let located = contract::locate(&namespaces, prefix, identity);
        let contract = located.as_ref().map_or("", |located| located.name.as_str());
        let namespace = located.as_ref().ok().and_then(|located| located.namespace.as_deref());
        let name = request_name(request);
        let parts = Parts::observe(&self.context, contract);
        Ok(Observed {
            request,
            principal: principal(request, &state.settings.namespace),
            secret,
            offer,
            export_request: caches.export_requests.get(contract, name),
            export: caches.exports.get(contract, name),
            schemas: caches.bound_schemas.list_in(contract),
            served: namespace.is_some_and(|namespace| served::is_served(namespace, request.metadata.uid.as_deref())),
            complete: parts.as_ref().is_some_and(Parts::are_complete),
            revocation: parts.and_then(|parts| credentials::revocation(parts.cluster_binding.as_ref()?)),
            located,
            now,
        })
    }

    async fn apply(&self, seen: &Observed<'_>, op: Op) -> Result<Next, WriteError> {
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
            Op::Remember { namespace } => return self.remember(seen, &namespace).await,
            Op::Respond { contract } => return self.answer(seen, &contract).await,
            Op::Say(outcome) => self.say(seen.request, &outcome, seen.now).await?,
        }
        Ok(Next::Change)
    }

    /// Writes the status, if it is not so already.
    async fn say(
        &self,
        request: &BindableResourcesRequest,
        outcome: &Outcome,
        now: Timestamp,
    ) -> Result<(), WriteError> {
        if status::says(request, outcome) {
            return Ok(());
        }
        let patch = json!({
            "metadata": writes::seen(request),
            "status": status::status(request, outcome, now),
        });
        writes::merge_status(&self.requests(request), &request.name_any(), &patch).await?;
        Ok(())
    }

    /// A namespace that stands in the way is for the admin to mend, and for the caller to know.
    async fn refuse_namespace(&self, seen: &Observed<'_>, name: String) -> Result<Next, WriteError> {
        let outcome = seen.refused(&contract::Refusal::ForeignNamespace { name });
        self.say(seen.request, &outcome, seen.now).await?;
        Ok(Next::Change)
    }

    fn requests(&self, request: &BindableResourcesRequest) -> Api<BindableResourcesRequest> {
        let client = self.context.state.clients.write.clone();
        Api::namespaced(client, &request.namespace().unwrap_or_default())
    }
}
