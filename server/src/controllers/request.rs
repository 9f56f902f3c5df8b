//! Serves BindableResourcesRequests: creates the contract, grants the template, asks for the export by an
//! APIServiceExportRequest, and waits until that is ready.

use std::{sync::Arc, time::Duration};

use bindery_api::v1alpha2::{BindableResourcesRequest, LocalSecretKeyRef, Phase};
use bindery_runtime::cache::ObjectKey;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;

use super::{Context, Next, Reconcile, Running, contract::ContractParts, template::assess, traces::Traced};
use crate::{
    contract::{self, served},
    credentials::{self, IssueError},
    limits::{LimitName, LimitReached},
    request::{caller_groups, principal, principal_groups, request_name, template_name},
    writes::{self, Write, WriteError},
};

mod audit;
mod plan;
mod response;
mod serve;
mod status;
mod triggers;
mod validate;

use plan::{Observed, RequestStep};
use status::RequestOutcome;

/// How soon to look again at a request whose time to live may be over, while the API server tells no time.
const UNTIMED: Duration = Duration::from_mins(1);

/// Works on requests that calls made.
#[derive(Clone)]
struct Requests {
    context: Context,
}

/// Works on requests that users create as resources.
struct Resources(Requests);

pub(super) fn start(context: &Context, running: &mut Running) {
    let (requests, home) = (
        context.state.caches.requests.clone(),
        context.state.settings.namespace.clone(),
    );
    let queues = triggers::Queues::new((Requests::WORKERS, Resources::WORKERS), move |key| {
        // A request that is gone costs no more than a look.
        let request = requests.get_key(key);
        request.map_or_else(
            || Arc::clone(&key.namespace),
            |request| principal(&request, &home).username.into(),
        )
    });
    triggers::watch(context, running, &queues);
    let requests = Requests {
        context: context.clone(),
    };
    running.work(requests.clone(), &queues.calls);
    running.work(Resources(requests), &queues.resources);
}

impl Reconcile for Requests {
    type Key = ObjectKey;
    const NAME: &'static str = "request";

    async fn reconcile(&self, key: &ObjectKey) -> Result<Next, WriteError> {
        let caches = &self.context.state.caches;
        let Some(request) = caches.requests.get_key(key) else {
            return Ok(Next::Change);
        };
        let now = self.context.state.clients.clock.now_or_local();
        if let Some(next) = self.finished(&request, now).await? {
            return Ok(next);
        }
        if !request.is_grpc(&self.context.state.settings.namespace) {
            return self.serve(&request, now).await;
        }
        let seen = self.observe(&request, None, now).await?;
        self.advance(&seen, plan::plan(&seen)).await
    }

    fn traced(&self, key: &ObjectKey) -> Option<Traced> {
        let request = self.context.state.caches.requests.get_key(key)?;
        let is_under_way = request.phase() == Phase::Pending;
        is_under_way.then(|| Traced::of(&*request, Timestamp::now())).flatten()
    }
}

impl Reconcile for Resources {
    type Key = ObjectKey;
    const NAME: &'static str = "resource-request";
    const WORKERS: usize = 2;

    async fn reconcile(&self, key: &ObjectKey) -> Result<Next, WriteError> {
        self.0.reconcile(key).await
    }
}

impl Requests {
    /// Deletes a decided request whose time to live is over. Returns `None` where there is more to do: the request is not
    /// decided, or its response may have to be written again.
    async fn finished(&self, request: &BindableResourcesRequest, now: Timestamp) -> Result<Option<Next>, WriteError> {
        if request.metadata.deletion_timestamp.is_some() {
            return Ok(Some(Next::Change));
        }
        let next = match status::expiry(request, now) {
            status::Expiry::Undecided => return Ok(None),
            status::Expiry::Never => Next::Change,
            status::Expiry::In(delay) => Next::After(delay),
            status::Expiry::Now if self.context.state.time().is_none() => Next::After(UNTIMED),
            status::Expiry::Now => {
                let write = Write::delete("its time to live is over", request);
                write.apply(&self.context.state.clients.write).await?;
                return Ok(Some(Next::Change));
            }
        };
        let is_call = request.is_grpc(&self.context.state.settings.namespace);
        Ok((is_call || request.phase() == Phase::Failed).then_some(next))
    }

    /// Takes a step.
    async fn advance(&self, seen: &Observed<'_>, step: RequestStep) -> Result<Next, WriteError> {
        match step {
            RequestStep::Write(writes) => {
                for write in writes {
                    match write.apply(&self.context.state.clients.write).await {
                        Err(WriteError::Foreign { .. }) if write.is_of::<Namespace>() => {
                            let outcome = seen.refused(&contract::Refusal::ForeignNamespace { name: write.name });
                            self.report(seen.request, &outcome, seen.now).await?;
                        }
                        applied => drop(applied?),
                    }
                }
            }
            RequestStep::Reinstate { contract, revocation } => {
                let reinstated = self.context.issuer.reinstate(&contract, Some(&revocation)).await;
                reinstated.or_else(|error| match error {
                    IssueError::Write { source, .. } => Err(source),
                    // Gone in between: the change brings the request back.
                    _ => Ok(()),
                })?;
            }
            RequestStep::Fulfil { namespace } => return self.fulfil(seen, &namespace).await,
            RequestStep::Respond { contract } => return self.answer(seen, &contract).await,
            RequestStep::Report(outcome) => self.report(seen.request, &outcome, seen.now).await?,
        }
        Ok(Next::Change)
    }

    /// Observes a request, and all that its plan depends on.
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
        let parts = ContractParts::observe(&self.context, contract);
        Ok(Observed {
            request,
            principal: principal(request, &state.settings.namespace),
            groups: principal_groups(request, &state.settings.namespace),
            caller_groups: caller_groups(request, &state.settings.namespace),
            reached: self.reached(request, &located),
            secret,
            offer,
            export_request: caches.export_requests.get(contract, name),
            export: caches.exports.get(contract, name),
            schemas: caches.bound_schemas.list_in(contract),
            fulfilled: namespace.is_some_and(|namespace| served::is_served(namespace, request.metadata.uid.as_deref())),
            complete: parts.as_ref().is_some_and(ContractParts::are_complete),
            revocation: parts.and_then(|parts| {
                let binding = parts.cluster_binding.as_ref()?;
                credentials::revocation(binding).or_else(|| credentials::renewal::lock(binding))
            }),
            located,
            now,
        })
    }

    /// The limit because of which a request is not served: its author has too many requests, or as many contracts as it may, and the
    /// cluster has none yet.
    fn reached(
        &self,
        request: &BindableResourcesRequest,
        located: &Result<contract::Located, contract::Refusal>,
    ) -> Option<LimitReached> {
        let state = &self.context.state;
        let limits = &state.settings.limits;
        let author = principal(request, &state.settings.namespace).username;
        if !state.counts.admits_request(request, &author, limits.requests) {
            return Some(limits.reached(LimitName::Requests, None));
        }
        let is_new = located.as_ref().is_ok_and(|located| located.namespace.is_none());
        let owned = is_new.then(|| state.counts.contracts(&author));
        owned.and_then(|owned| limits.check(LimitName::Contracts, owned, None).err())
    }

    /// Writes an outcome into the status, unless that reports it already.
    async fn report(
        &self,
        request: &BindableResourcesRequest,
        outcome: &RequestOutcome,
        now: Timestamp,
    ) -> Result<(), WriteError> {
        let write = status::report(request, outcome, now);
        let is_new = write.is_some();
        writes::apply_all(&self.context.state.clients.write, write).await?;
        if let Some(limit) = outcome.limit().filter(|_| is_new) {
            self.context.state.refusals.count(limit);
        }
        if is_new && !request.is_grpc(&self.context.state.settings.namespace) {
            audit::decided(&self.context.state, request, outcome, now);
        }
        Ok(())
    }
}
