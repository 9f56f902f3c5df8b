//! What a call may set going, beside writing a request: both are idempotent, and the controllers do the rest.

use bindery_api::{
    annotations,
    v1alpha2::{APIServiceExport, BindableResourcesRequest, Phase},
};
use kube::{Api, ResourceExt as _};
use serde_json::json;

use crate::{
    controllers::request,
    state::State,
    template,
    writes::{self, WriteError},
};

/// Whether a finished request is to run again: its export is gone, or not what the template makes today.
pub fn needs_rerun(state: &State, request: &BindableResourcesRequest) -> bool {
    let Some(status) = &request.status else {
        return false;
    };
    if status.phase != Phase::Succeeded {
        return false;
    }
    let contract = status.namespace.as_deref().unwrap_or_default();
    let name = request::request_name(request);
    let export = state.caches.exports.get(contract, name);
    let Some(export) = export.filter(|export| export.metadata.deletion_timestamp.is_none()) else {
        return true;
    };
    let template = request::template_name(request).and_then(|name| state.caches.templates.get("", name));
    let plan = template.and_then(|template| template::assess(&template, &state.caches, &state.settings).ok());
    // Without a template, or with a broken one, there is nothing to run again with.
    plan.is_some_and(|plan| {
        let asked = state.caches.export_requests.get(contract, name);
        !plan.is_met_by(&export) || !asked.is_some_and(|asked| plan.is_asked_by(&asked))
    })
}

/// Runs a finished request again.
pub async fn rerun(state: &State, request: &BindableResourcesRequest) -> Result<BindableResourcesRequest, WriteError> {
    let api: Api<BindableResourcesRequest> =
        Api::namespaced(state.clients.write.clone(), &request.namespace().unwrap_or_default());
    let patch = json!({
        "metadata": writes::seen(request),
        "status": { "phase": Phase::Pending, "completionTime": null, "conditions": [] },
    });
    writes::merge_status(&api, &request.name_any(), &patch).await
}

/// Deletes an export of that UID. Objects of it that are left stay, and the controller marks them released.
pub async fn delete_export(state: &State, export: &APIServiceExport) -> Result<(), WriteError> {
    if export.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    let api: Api<APIServiceExport> =
        Api::namespaced(state.clients.write.clone(), &export.namespace().unwrap_or_default());
    if export.annotations().contains_key(annotations::REPLACE) {
        // It was to make room for a successor, which is not wanted any more: everything goes.
        let patch = json!({
            "metadata": { "uid": export.metadata.uid, "annotations": { annotations::REPLACE: null } }
        });
        match writes::merge(&api, &export.name_any(), &patch).await {
            Err(error) if error.is_stale() || error.is_gone() => return Ok(()),
            outcome => drop(outcome?),
        }
    }
    writes::delete(&api, &export.name_any(), export.metadata.uid.as_deref()).await
}
