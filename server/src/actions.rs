//! What calls write beside requests. Both actions are idempotent; the controllers do the rest.

use bindery_api::{
    annotations,
    v1alpha2::{APIServiceExport, BindableResourcesRequest, Phase},
};
use kube::ResourceExt as _;
use serde_json::json;

use crate::{
    request,
    state::State,
    template,
    writes::{Write, WriteError},
};

/// Whether a request that succeeded must run again: its export is gone, or is not what the template makes today.
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
        let request = state.caches.export_requests.get(contract, name);
        !plan.is_met_by(&export) || !request.is_some_and(|request| plan.is_asked_by(&request))
    })
}

/// Runs a finished request again.
pub async fn rerun(state: &State, request: &BindableResourcesRequest) -> Result<BindableResourcesRequest, WriteError> {
    let status = json!({ "phase": Phase::Pending, "completionTime": null, "conditions": [] });
    let write = Write::status("a call binds again", request, &status);
    write.apply_as(&state.clients.write).await
}

/// Deletes an export. Its remaining objects stay, and the controller releases them.
pub async fn delete_export(state: &State, export: &APIServiceExport) -> Result<(), WriteError> {
    if export.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    let client = &state.clients.write;
    if export.annotations().contains_key(annotations::REPLACE) {
        // Nothing takes its place any more, so that everything goes with it.
        let annotation = json!({ annotations::REPLACE: null });
        let write = Write::annotate("a call unbinds the export", export, &annotation).of_any_version();
        match write.apply(client).await {
            Err(error) if error.is_stale() || error.is_gone() => return Ok(()),
            outcome => drop(outcome?),
        }
    }
    Write::delete("a call unbinds the export", export)
        .apply(client)
        .await
        .map(drop)
}
