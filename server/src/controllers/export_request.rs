//! Creates the APIServiceExport for each APIServiceExportRequest. The export is made from a template that is granted to the
//! contract and offers what the request asks for, and never from the request, which a consumer may have written.

use std::sync::Arc;

use bindery_api::{
    labels,
    v1alpha2::{APIServiceExportRequest, APIServiceNamespace, Phase},
};
use bindery_runtime::{
    cache::{Cache, ObjectKey},
    queue::Queue,
};
use jiff::Timestamp;
use kube::{Resource, ResourceExt as _};
use serde::de::DeserializeOwned;

use super::{Context, Next, Reconcile, Running, template::assess};
use crate::{
    contract,
    state::State,
    writes::{self, WriteError},
};

mod plan;

use plan::{Observed, Offer};

struct ExportRequests {
    state: State,
}

pub(super) fn start(context: &Context, running: &mut Running) {
    let queue = Queue::new();
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
        state: context.state.clone(),
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
        let caches = &self.state.caches;
        let (contract, name) = (&*key.namespace, &*key.name);
        let Some(request) = caches.export_requests.get_key(key) else {
            return Ok(Next::Change);
        };
        let Some(namespace) = self.state.contract(contract) else {
            return Ok(Next::Change);
        };
        let decided = request.phase() != Phase::Pending || request.metadata.deletion_timestamp.is_some();
        if decided || contract::is_terminating(&namespace) {
            return Ok(Next::Change);
        }
        let export = caches.exports.get(contract, name);
        let schemas = caches.bound_schemas.list_in(contract);
        let mapped = caches.service_namespaces.list_in(contract);
        let offers = match &export {
            // An existing export does not change with its template.
            Some(_) => Vec::new(),
            None => self.offers(&contract::granted_templates(&namespace)).await?,
        };
        let now = Timestamp::now();
        let writes = plan::plan(&Observed {
            request: &request,
            export: export.as_deref(),
            offers: &offers,
            schemas: &schemas,
            mapped: &mapped,
            now,
        });
        writes::apply_all(&self.state.clients.write, writes).await?;
        Ok(Next::Change)
    }
}

impl ExportRequests {
    async fn offers(&self, granted: &[String]) -> Result<Vec<Offer>, WriteError> {
        let mut offers = Vec::new();
        for name in granted {
            if let Some(template) = self.state.caches.templates.get("", name) {
                let verdict = assess(&self.state, &template).await?;
                offers.push(Offer { template, verdict });
            }
        }
        Ok(offers)
    }
}
