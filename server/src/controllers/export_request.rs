//! Creates the APIServiceExport for each APIServiceExportRequest. The export is made from a template that is granted to the
//! contract and offers what the request asks for, and never from the request, which a consumer may have written. It is made only while who
//! bound the template may still bind it.

use std::{sync::Arc, time::Duration};

use bindery_api::{
    labels,
    v1alpha2::{APIServiceExportRequest, APIServiceNamespace, Phase},
};
use bindery_runtime::{
    backoff::Backoff,
    cache::{Cache, ObjectKey},
    queue::Queue,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Resource, ResourceExt as _};
use serde::de::DeserializeOwned;

use super::{Context, Next, Reconcile, Running, template::assess, traces::Traced};
use crate::{
    contract::{self, grants},
    limits::{LimitName, LimitReached},
    rights,
    writes::{self, WriteError},
};

mod plan;

use plan::{Observed, Offer};

/// How often to look again at a request that a limit refuses: no change tells when there is room.
const LIMITED: Backoff = Backoff::new(Duration::from_secs(5), Duration::from_mins(1));

struct ExportRequests {
    context: Context,
}

pub(super) fn start(context: &Context, running: &mut Running) {
    let queue = Queue::fair(ExportRequests::WORKERS, super::contract_of);
    let caches = &context.state.caches;
    running.watch(&caches.export_requests, &queue, |change| {
        change.new.map(|_| change.key.clone())
    });
    // An export has the name of its request.
    running.watch(&caches.exports, &queue, |change| Some(change.key.clone()));
    let requests = &caches.export_requests;
    wake(running, &caches.templates, requests, &queue);
    wake(running, &caches.definitions, requests, &queue);
    wake(running, &caches.aggregated_role, requests, &queue);
    let requests = requests.clone();
    running.watch(&caches.service_namespaces, &queue, move |change| {
        // A plan that labels a namespace, which a konnector may have mapped before, goes on when the label is seen.
        let place = |mapped: &Arc<APIServiceNamespace>| {
            let owner = mapped.labels().get(labels::OWNER).cloned();
            (mapped.status.clone(), owner)
        };
        if change.old.is_some() && change.old.map(place) == change.new.map(place) {
            return Vec::new();
        }
        pending(&requests, Some(&change.key.namespace))
    });
    let export_requests = ExportRequests {
        context: context.clone(),
    };
    running.work(export_requests, &queue);
}

/// Queues all pending requests for each change in a cache that the provider's admin makes.
fn wake<K>(running: &mut Running, cache: &Cache<K>, requests: &Cache<APIServiceExportRequest>, queue: &Queue<ObjectKey>)
where
    K: Resource + DeserializeOwned + Send + Sync + 'static,
{
    let requests = requests.clone();
    running.watch(cache, queue, move |_| pending(&requests, None));
}

/// Keys of the pending requests, of one contract or of all.
fn pending(requests: &Cache<APIServiceExportRequest>, contract: Option<&str>) -> Vec<ObjectKey> {
    let is_pending = |request: &APIServiceExportRequest| request.phase() == Phase::Pending;
    let pending = match contract {
        Some(contract) => {
            let mut all = requests.list_in(contract);
            all.retain(|request| is_pending(request));
            all
        }
        None => requests.list(is_pending),
    };
    pending.iter().map(|request| ObjectKey::of(&**request)).collect()
}

impl Reconcile for ExportRequests {
    type Key = ObjectKey;
    const NAME: &'static str = "export-request";

    async fn reconcile(&self, key: &ObjectKey) -> Result<Next, WriteError> {
        let state = &self.context.state;
        let caches = &state.caches;
        let (contract, name) = (&*key.namespace, &*key.name);
        let Some(request) = caches.export_requests.get_key(key) else {
            return Ok(Next::Change);
        };
        let Some(namespace) = state.contract(contract) else {
            return Ok(Next::Change);
        };
        let decided = request.phase() != Phase::Pending || request.metadata.deletion_timestamp.is_some();
        if decided || contract::is_terminating(&namespace) {
            return Ok(Next::Change);
        }
        let export = caches.exports.get(contract, name);
        let schemas = caches.bound_schemas.list_in(contract);
        let mapped = caches.service_namespaces.list_in(contract);
        let (offers, reached) = match &export {
            // An existing export does not change with its template.
            Some(_) => (Vec::new(), None),
            None => (
                self.offers(&namespace, &request).await?,
                self.reached(&namespace, &request),
            ),
        };
        let now = Timestamp::now();
        let writes = plan::plan(&Observed {
            request: &request,
            export: export.as_deref(),
            offers: &offers,
            reached: reached.as_ref(),
            schemas: &schemas,
            mapped: &mapped,
            now,
        });
        let Some(reached) = reached else {
            writes::apply_all(&state.clients.write, writes).await?;
            return Ok(Next::Change);
        };
        if !writes.is_empty() {
            state.refusals.count(reached.name);
        }
        writes::apply_all(&state.clients.write, writes).await?;
        Ok(Next::Seldom(LIMITED))
    }

    fn traced(&self, key: &ObjectKey) -> Option<Traced> {
        let request = self.context.state.caches.export_requests.get_key(key)?;
        let is_under_way = request.phase() == Phase::Pending;
        is_under_way.then(|| Traced::of(&*request, Timestamp::now())).flatten()
    }
}

impl ExportRequests {
    /// The templates that the contract may have an export of by this name: those that are granted to it, and those that a bind which is
    /// under way is about to be granted.
    async fn offers(&self, contract: &Namespace, request: &APIServiceExportRequest) -> Result<Vec<Offer>, WriteError> {
        let bound = self
            .context
            .pending_requests
            .templates_of(contract, &request.name_any());
        let mut names = grants::granted_templates(contract);
        names.extend(bound.iter().cloned());
        names.sort_unstable();
        names.dedup();
        let mut offers = Vec::new();
        for name in names {
            let Some(template) = self.context.state.caches.templates.get("", &name) else {
                continue;
            };
            let verdict = assess(&self.context.state, &template).await?;
            // The right of who binds was checked for the bind itself.
            let may_bind = bound.contains(&name)
                || !plan::asks_for(request, &template)
                || self.may_still_bind(contract, &name).await?;
            offers.push(Offer {
                template,
                verdict,
                may_bind,
            });
        }
        Ok(offers)
    }

    /// Whether who bound the template may still do so. A contract may write a request itself, at any time.
    async fn may_still_bind(&self, contract: &Namespace, template: &str) -> Result<bool, WriteError> {
        for granter in grants::granters(contract, template) {
            let may_bind = rights::may_bind(&self.context.state.clients.write, &granter, template).await;
            if may_bind.map_err(|error| WriteError::Unasked(Arc::new(error)))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The limit of the contract because of which the request gets no export.
    fn reached(&self, contract: &Namespace, request: &APIServiceExportRequest) -> Option<LimitReached> {
        let state = &self.context.state;
        let limits = state.settings.limits.of_contract(contract);
        let name = contract.name_any();
        if !state
            .counts
            .admits_export_request(request, &name, limits.export_requests)
        {
            return Some(limits.reached(LimitName::ExportRequests, Some(&name)));
        }
        let exports = state.caches.exports.list_in(&name).len();
        limits.check(LimitName::Exports, exports, Some(&name)).err()
    }
}
