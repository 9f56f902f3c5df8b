//! Plans the next step towards what a BindableResourcesRequest asks for.

use std::sync::Arc;

use bindery_api::{
    annotations, labels, meta,
    v1alpha2::{
        APIServiceExport, APIServiceExportRequest, APIServiceExportRequestSpec, BindableResourcesRequest, BoundSchema,
        LocalSecretKeyRef, Phase,
    },
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::{ResourceExt as _, api::ObjectMeta};
use serde_json::json;

use super::{
    super::traces,
    status::{self, Refused, RequestOutcome},
};
use crate::{
    contract::{
        self, Located, NewContract,
        grants::{self, Granter},
    },
    credentials::Revocation,
    limits::LimitReached,
    principal::Principal,
    request::{request_name, template_name},
    template::{self, ExportPlan},
    writes::Write,
};

/// A request, and all that its plan depends on.
pub(super) struct Observed<'a> {
    pub(super) request: &'a Arc<BindableResourcesRequest>,
    /// Who made the request.
    pub(super) principal: Principal,
    /// The owner groups by which the caller of a call may use the contract.
    pub(super) groups: Vec<String>,
    /// All groups of the caller of a call.
    pub(super) caller_groups: Vec<String>,
    /// The limit that refuses the request, if one does.
    pub(super) reached: Option<LimitReached>,
    /// The Secret for the response; `None` for a call, which returns its response.
    pub(super) secret: Option<LocalSecretKeyRef>,
    /// What the template offers; `None` if the template does not exist.
    pub(super) offer: Option<Result<ExportPlan, template::Refusal>>,
    /// The contract of the request's cluster, if there is one or may be one.
    pub(super) located: Result<Located, contract::Refusal>,
    /// Whether every part of the contract exists.
    pub(super) complete: bool,
    /// The revocation of the contract's credentials that is in force.
    pub(super) revocation: Option<Revocation>,
    pub(super) export_request: Option<Arc<APIServiceExportRequest>>,
    pub(super) export: Option<Arc<APIServiceExport>>,
    /// The schemas of the contract.
    pub(super) schemas: Vec<Arc<BoundSchema>>,
    /// Whether the contract records the request as fulfilled. Only requests made as resources are recorded.
    pub(super) fulfilled: bool,
    pub(super) now: Timestamp,
}

/// The next step for a request.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum RequestStep {
    /// Write these; none where the request waits for others to act.
    Write(Vec<Write>),
    /// End the revocation of the contract's credentials.
    Reinstate {
        contract: String,
        /// Id of the revocation that ends.
        revocation: String,
    },
    /// Record in the contract that the request, which was made as a resource, is fulfilled: it never binds anything again.
    Fulfil {
        /// The contract namespace, as it was seen.
        namespace: Arc<Namespace>,
    },
    /// Write the response, if it is not written yet, and report success.
    Respond { contract: String },
    /// Report this in the status.
    Report(RequestOutcome),
}

impl RequestStep {
    /// Do nothing until something changes.
    const fn wait() -> Self {
        Self::Write(Vec::new())
    }
}

impl Observed<'_> {
    /// The outcome of a request whose contract is refused. A call can simply be made again once the cause is mended; a request
    /// made as a resource must be created again.
    pub(super) fn refused(&self, refusal: &contract::Refusal) -> RequestOutcome {
        if !refusal.is_final() {
            return RequestOutcome::Pending(Refused::new(refusal.reason(), refusal));
        }
        let message = if self.secret.is_some() {
            format!("{refusal}; then delete this request and create it again")
        } else {
            refusal.to_string()
        };
        RequestOutcome::Failed(Refused::new(refusal.reason(), &message))
    }
}

/// Plans the next step. Where others have to act (create the parts of the contract, or the export), it waits.
pub(super) fn plan(seen: &Observed<'_>) -> RequestStep {
    let is_done = seen.request.phase() == Phase::Succeeded;
    let next = if is_done || seen.fulfilled {
        response(seen)
    } else {
        next(seen)
    };
    match next.map_err(|outcome| if is_done { outcome.once_succeeded() } else { outcome }) {
        Ok(step) => step,
        Err(outcome) if status::says(seen.request, &outcome) => RequestStep::wait(),
        Err(outcome) => RequestStep::Report(outcome),
    }
}

/// The next step for a request that was fulfilled: its response is written again, for an owner of the contract, and nothing else.
fn response(seen: &Observed<'_>) -> Result<RequestStep, RequestOutcome> {
    let located = admitted(seen)?;
    let contract = located.name.clone();
    if seen.revocation.is_some() {
        return Err(revoked(&contract));
    }
    if bound(seen).is_none() {
        let name = request_name(seen.request);
        let message = format!("export {name} was unbound; delete this request and create it again to bind it anew");
        return Err(RequestOutcome::Pending(
            Refused::new("ExportNotFound", &message).within(&contract),
        ));
    }
    Ok(RequestStep::Respond { contract })
}

/// The export that was created for the request's template.
fn bound<'a>(seen: &'a Observed<'_>) -> Option<&'a APIServiceExport> {
    let export = seen.export.as_deref()?;
    let from = export.annotations().get(annotations::TEMPLATE).map(String::as_str);
    (export.metadata.deletion_timestamp.is_none() && from == template_name(seen.request)).then_some(export)
}

/// What a response says was bound: resources and claims as the export has them, and the rest as the template has it. The
/// APIServiceExportRequest does not count, since the consumer can write it.
pub(super) fn requested(seen: &Observed<'_>) -> Option<APIServiceExportRequestSpec> {
    let export = bound(seen)?;
    let offer = seen.offer.as_ref().and_then(|offer| offer.as_ref().ok());
    Some(APIServiceExportRequestSpec {
        parameters: None,
        resources: export.spec.resources.clone(),
        permission_claims: export.spec.permission_claims.clone(),
        namespaces: offer.map(|offer| offer.namespaces.clone()).unwrap_or_default(),
        schema_update_policy: offer.map(|offer| offer.schema_update_policy).unwrap_or_default(),
    })
}

fn revoked(contract: &str) -> RequestOutcome {
    let message = "the contract's credentials are revoked; its owner can bind again";
    RequestOutcome::Pending(Refused::new("CredentialsRevoked", message).within(contract))
}

/// The next step for a request that has not been fulfilled.
fn next(seen: &Observed<'_>) -> Result<RequestStep, RequestOutcome> {
    let located = admitted(seen)?;
    if let Some(reached) = &seen.reached {
        let refused = Refused::by_limit(reached);
        // A caller gets an answer; a resource goes on by itself.
        return Err(match seen.secret {
            Some(_) => RequestOutcome::Pending(refused),
            None => RequestOutcome::Failed(refused),
        });
    }
    let offer = offered(seen)?;
    let Some(namespace) = &located.namespace else {
        let namespace = new_contract(seen, &located.name);
        let write = Write::create("the cluster has no contract", &namespace, &[labels::CONTRACT]);
        return Ok(RequestStep::Write(vec![write]));
    };
    let contract = located.name.as_str();
    let unfit = offer.fits(seen.schemas.iter().map(AsRef::as_ref));
    unfit.map_err(|refusal| RequestOutcome::Failed(Refused::new(refusal.reason(), &refusal).within(contract)))?;
    let granter = Granter::new(seen.principal.clone(), &seen.caller_groups);
    if let Some(patch) = grants::grant(namespace, &offer.template, &granter) {
        let write = Write::patch("the template is granted", &**namespace, patch);
        return Ok(RequestStep::Write(vec![write]));
    }
    // A bind by the owner ends a revocation, but not one that was made before it.
    if let Some(revocation) = seen.revocation.as_ref().filter(|it| it.is_before(seen.request)) {
        return Ok(RequestStep::Reinstate {
            contract: contract.to_owned(),
            revocation: revocation.id.clone(),
        });
    }
    if !seen.complete {
        return match seen.revocation {
            Some(_) => Err(revoked(contract)),
            // A caller waits for the answer; the author of a resource reads the status.
            None if seen.secret.is_some() => Err(RequestOutcome::Pending(
                Refused::new("ContractNotReady", "the server is setting up the contract").within(contract),
            )),
            None => Ok(RequestStep::wait()),
        };
    }
    export(seen, offer, contract, namespace)
}

fn admitted<'a>(seen: &'a Observed<'_>) -> Result<&'a Located, RequestOutcome> {
    let identity = &seen.request.spec.cluster_identity.identity;
    if identity.is_empty() || identity.len() > contract::IDENTITY_LENGTH_MAX {
        let message = format!(
            "spec.clusterIdentity.identity needs 1 to {} bytes, such as the UID of the consumer's namespace kube-system",
            contract::IDENTITY_LENGTH_MAX
        );
        return Err(RequestOutcome::Failed(Refused::new("InvalidClusterIdentity", &message)));
    }
    let located = seen.located.as_ref().map_err(|refusal| seen.refused(refusal))?;
    contract::admit(located, identity, &seen.principal, &seen.groups).map_err(|refusal| seen.refused(&refusal))?;
    Ok(located)
}

fn offered<'a>(seen: &'a Observed<'_>) -> Result<&'a ExportPlan, RequestOutcome> {
    match (&seen.offer, template_name(seen.request)) {
        (Some(Ok(offer)), _) => Ok(offer),
        (Some(Err(refusal)), _) => Err(RequestOutcome::Pending(Refused::new(refusal.reason(), refusal))),
        (None, Some(name)) => {
            let message = format!("there is no APIServiceExportTemplate {name}");
            Err(RequestOutcome::Pending(Refused::new("TemplateNotFound", &message)))
        }
        (None, None) => {
            let message = "spec.templateRef.name is missing; name the template to bind";
            Err(RequestOutcome::Failed(Refused::new("TemplateNotFound", message)))
        }
    }
}

/// The next step once the contract is complete: towards the export.
fn export(
    seen: &Observed<'_>,
    offer: &ExportPlan,
    contract: &str,
    namespace: &Arc<Namespace>,
) -> Result<RequestStep, RequestOutcome> {
    let name = request_name(seen.request);
    if let Some(export) = &seen.export {
        if export.metadata.deletion_timestamp.is_some() {
            // The new export is created when the old one is gone.
            return Ok(RequestStep::wait());
        }
        let from = export.annotations().get(annotations::TEMPLATE);
        if from != Some(&offer.template) {
            let message = format!(
                "export {name} of this contract was made from {}; choose another name or unbind it",
                from.map_or_else(|| "no template".to_owned(), |from| format!("template {from}"))
            );
            return Err(RequestOutcome::Failed(
                Refused::new("ExportNameTaken", &message).within(contract),
            ));
        }
        if !offer.is_met_by(export) {
            if let Some(field) = offer.moves(export) {
                let export = name.to_owned();
                let refusal = template::Refusal::PlacementFixed { export, field };
                return Err(RequestOutcome::Failed(
                    Refused::new(refusal.reason(), &refusal).within(contract),
                ));
            }
            return Ok(RequestStep::Write(replace(seen, export)));
        }
    }
    let Some(existing) = &seen.export_request else {
        let wanted = export_request(seen.request, offer, contract);
        // One that exists is looked at when the cache shows it.
        let write = Write::create("the contract has no such export", &wanted, &[]);
        return Ok(RequestStep::Write(vec![write]));
    };
    let status = existing.status.as_ref();
    match status.map(|status| status.phase).unwrap_or_default() {
        Phase::Succeeded if seen.export.is_some() && offer.is_asked_by(existing) => {
            let contract = contract.to_owned();
            let namespace = Arc::clone(namespace);
            match seen.secret {
                Some(_) => Ok(RequestStep::Fulfil { namespace }),
                None => Err(RequestOutcome::Succeeded { contract, secret: None }),
            }
        }
        Phase::Failed if is_for(existing, seen.request) => {
            let message = status.and_then(|status| status.terminal_message.clone());
            let message = message.unwrap_or_else(|| format!("APIServiceExportRequest {name} failed"));
            let reason = failure_reason(existing);
            Err(RequestOutcome::Failed(Refused::new(&reason, &message).within(contract)))
        }
        // Its export is gone, or it has another schemaUpdatePolicy, or it failed for an earlier request: a new one takes its
        // place.
        Phase::Succeeded | Phase::Failed => Ok(RequestStep::Write(vec![delete(existing)])),
        Phase::Pending => match waiting_for(existing) {
            Some((reason, message)) => Err(RequestOutcome::Pending(Refused::new(reason, message).within(contract))),
            None => Ok(RequestStep::wait()),
        },
    }
}

/// Replaces an export, since its spec cannot be changed. An annotation comes first, by which its end takes nothing along; then
/// it is deleted as it was seen with the annotation. Where the template is changed back in between, the annotation is removed,
/// and the export stays.
fn replace(seen: &Observed<'_>, export: &APIServiceExport) -> Vec<Write> {
    let is_marked = meta::is_annotated(&export.metadata, annotations::REPLACE);
    if !is_marked {
        let annotation = json!({ annotations::REPLACE: annotations::TRUE });
        return vec![Write::annotate("its template changed", export, &annotation)];
    }
    let request = seen.export_request.as_deref().map(delete);
    // Schemas, namespaces and rights stay for the export that takes its place.
    let export = Write::delete_seen("its template changed", export).leaving_dependents();
    request.into_iter().chain([export]).collect()
}

fn delete(existing: &APIServiceExportRequest) -> Write {
    Write::delete("a new one takes its place", existing)
}

fn is_for(existing: &APIServiceExportRequest, request: &BindableResourcesRequest) -> bool {
    existing.annotations().get(annotations::REQUEST_UID) == request.metadata.uid.as_ref()
}

fn failure_reason(existing: &APIServiceExportRequest) -> String {
    let ready = waiting_for(existing).map(|(reason, _)| reason.to_owned());
    ready.unwrap_or_else(|| "ExportRequestFailed".to_owned())
}

/// Why an APIServiceExportRequest is not ready, if it says so.
fn waiting_for(existing: &APIServiceExportRequest) -> Option<(&str, &str)> {
    let conditions = &existing.status.as_ref()?.conditions;
    let ready = bindery_api::conditions::get(conditions, bindery_api::conditions::READY)?;
    (!ready.is_true() && !ready.reason.is_empty()).then_some((ready.reason.as_str(), ready.message.as_str()))
}

fn new_contract(seen: &Observed<'_>, name: &str) -> Namespace {
    let identity = &seen.request.spec.cluster_identity;
    contract::namespace(&NewContract {
        name,
        identity: &identity.identity,
        pretty_name: identity
            .pretty_name
            .as_deref()
            .unwrap_or_else(|| request_name(seen.request)),
        owner: &seen.principal,
        owner_groups: &seen.caller_groups,
        template: template_name(seen.request).unwrap_or_default(),
    })
}

fn export_request(request: &BindableResourcesRequest, offer: &ExportPlan, contract: &str) -> APIServiceExportRequest {
    let marks = [
        (annotations::TEMPLATE, offer.template.clone()),
        (annotations::REQUEST_UID, request.uid().unwrap_or_default()),
    ];
    let marks = marks.into_iter().chain(traces::continued(request));
    APIServiceExportRequest {
        metadata: ObjectMeta {
            name: Some(request_name(request).to_owned()),
            namespace: Some(contract.to_owned()),
            annotations: Some(marks.map(|(key, value)| (key.to_owned(), value)).collect()),
            ..ObjectMeta::default()
        },
        spec: offer.request_spec(),
        status: None,
    }
}

#[cfg(test)]
mod tests;
