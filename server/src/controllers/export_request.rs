//! APIServiceExportRequest → APIServiceExport. Whoever made the request, what it asks for must be a template that was
//! granted to the contract; the export is made from the template, never from the request.

use std::sync::Arc;

use bindery_api::v1alpha2::{APIServiceExport, APIServiceExportRequest, APIServiceNamespace, Phase};
use bindery_runtime::{
    cache::{Cache, ObjectKey},
    queue::Queue,
};
use jiff::Timestamp;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::{Context, Next, Reconcile, Running, template::assess};
use crate::{
    contract,
    state::State,
    writes::{self, WriteError},
};

mod plan;

pub(super) use plan::phase;
use plan::{Observed, Offer, Op};

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
        let place = |mapped: &Arc<APIServiceNamespace>| mapped.status.clone();
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

/// Pending requests wait for what the provider's admin changes.
fn wake<K>(running: &mut Running, cache: &Cache<K>, requests: &Cache<APIServiceExportRequest>, queue: &Queue<ObjectKey>)
where
    K: Resource + DeserializeOwned + Send + Sync + 'static,
{
    let requests = requests.clone();
    running.watch(cache, queue, move |_| pending(&requests, None));
}

fn pending(requests: &Cache<APIServiceExportRequest>, contract: Option<&str>) -> Vec<ObjectKey> {
    let is_pending = |request: &APIServiceExportRequest| phase(request) == Phase::Pending;
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
        let decided = phase(&request) != Phase::Pending || request.metadata.deletion_timestamp.is_some();
        if decided || contract::is_terminating(&namespace) {
            return Ok(Next::Change);
        }
        let export = caches.exports.get(contract, name);
        let schemas = caches.bound_schemas.list_in(contract);
        let mapped = caches.service_namespaces.list_in(contract);
        let offers = match &export {
            // What it is to be is decided already.
            Some(_) => Vec::new(),
            None => self.offers(&contract::granted_templates(&namespace)).await?,
        };
        let now = Timestamp::now();
        let ops = plan::plan(&Observed {
            request: &request,
            export: export.as_deref(),
            offers: &offers,
            schemas: &schemas,
            mapped: &mapped,
            now,
        });
        for op in ops {
            self.apply(contract, name, op).await?;
        }
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

    async fn apply(&self, contract: &str, name: &str, op: Op) -> Result<(), WriteError> {
        let client = || self.state.clients.write.clone();
        match op {
            Op::CreateExport(export) => {
                let api: Api<APIServiceExport> = Api::namespaced(client(), contract);
                // Only the server makes exports; one that is there is looked at when the cache has seen it.
                writes::create(&api, &*export, |_| true).await?;
            }
            Op::CreateNamespace(namespace) => {
                let api: Api<APIServiceNamespace> = Api::namespaced(client(), contract);
                // The konnector may have been quicker, which is as well.
                writes::create(&api, &*namespace, |_| true).await?;
            }
            Op::ClaimNamespace { name, patch } => {
                let api: Api<APIServiceNamespace> = Api::namespaced(client(), contract);
                writes::merge(&api, &name, &patch).await?;
            }
            Op::Say { metadata, status } => {
                let api: Api<APIServiceExportRequest> = Api::namespaced(client(), contract);
                let patch = json!({ "metadata": metadata, "status": *status });
                writes::merge_status(&api, name, &patch).await?;
            }
        }
        Ok(())
    }
}
