//! The next step towards what a request asks for.

use std::{collections::BTreeMap, sync::Arc};

use bindery_api::{
    annotations, meta,
    v1alpha2::{
        APIServiceExport, APIServiceExportRequest, APIServiceExportRequestSpec, BindableResourcesRequest, BoundSchema,
        LocalSecretKeyRef, Phase,
    },
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::{ResourceExt as _, api::ObjectMeta};
use serde_json::{Value, json};

use super::{phase, request_name, status, template_name};
use crate::{
    contract::{self, Located, NewContract},
    credentials::Revocation,
    principal::Principal,
    template::{self, ExportPlan},
    writes,
};

/// A pending request and all that it depends on.
pub(super) struct Observed<'a> {
    pub(super) request: &'a Arc<BindableResourcesRequest>,
    /// Who made it.
    pub(super) principal: Principal,
    /// The Secret for the response, where it was made as a resource: a call answers itself.
    pub(super) secret: Option<LocalSecretKeyRef>,
    /// What the template offers; `None` if there is no such template.
    pub(super) offer: Option<Result<ExportPlan, template::Refusal>>,
    pub(super) located: Result<Located, contract::Refusal>,
    /// Whether everything of the contract is there.
    pub(super) complete: bool,
    /// That its credentials are revoked.
    pub(super) revocation: Option<Revocation>,
    pub(super) export_request: Option<Arc<APIServiceExportRequest>>,
    pub(super) export: Option<Arc<APIServiceExport>>,
    /// The contract's schemas.
    pub(super) schemas: Vec<Arc<BoundSchema>>,
    /// Whether the contract has been bound for this very request, which was made as a resource.
    pub(super) served: bool,
    pub(super) now: Timestamp,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Op {
    CreateContract(Box<Namespace>),
    Grant {
        contract: String,
        patch: Value,
    },
    Reinstate {
        contract: String,
        /// Id of the revocation that ends.
        revocation: String,
    },
    CreateExportRequest(Box<APIServiceExportRequest>),
    DeleteExportRequest {
        contract: String,
        name: String,
        uid: Option<String>,
    },
    MarkReplaced {
        contract: String,
        name: String,
        patch: Value,
    },
    /// As it was seen, with its mark.
    DeleteReplaced(Arc<APIServiceExport>),
    /// All is there for the first time: what a request made as a resource has bound it never binds again.
    Remember {
        /// The contract's, as it was seen.
        namespace: Arc<Namespace>,
    },
    /// All is there but, perhaps, the response.
    Respond {
        contract: String,
    },
    Say(Outcome),
}

/// What a request's status says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Somebody else has to act, and then it goes on by itself.
    Pending(Refused),
    /// Only another request can help.
    Failed(Refused),
    Succeeded {
        contract: String,
        /// Where the response is.
        secret: Option<LocalSecretKeyRef>,
    },
    /// It succeeded, and its response was lost and cannot be written again.
    Unanswered(Refused),
}

/// Why a request does not go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) reason: String,
    pub(super) message: String,
    pub(super) contract: Option<String>,
}

impl Observed<'_> {
    /// What the refusal of a contract means: a call can be made again after the mend.
    pub(super) fn refused(&self, refusal: &contract::Refusal) -> Outcome {
        if !refusal.is_final() {
            return Outcome::Pending(Refused::new(refusal.reason(), refusal));
        }
        let message = if self.secret.is_some() {
            format!("{refusal}; then delete this request and create it again")
        } else {
            refusal.to_string()
        };
        Outcome::Failed(Refused::new(refusal.reason(), &message))
    }
}

impl Outcome {
    pub(super) fn phase(&self) -> Phase {
        match self {
            Self::Pending(_) => Phase::Pending,
            Self::Failed(_) => Phase::Failed,
            Self::Succeeded { .. } | Self::Unanswered(_) => Phase::Succeeded,
        }
    }

    pub(super) fn contract(&self) -> Option<&str> {
        match self {
            Self::Pending(refused) | Self::Failed(refused) | Self::Unanswered(refused) => refused.contract.as_deref(),
            Self::Succeeded { contract, .. } => Some(contract),
        }
    }

    pub(super) fn secret(&self) -> Option<&LocalSecretKeyRef> {
        match self {
            Self::Succeeded { secret, .. } => secret.as_ref(),
            Self::Pending(_) | Self::Failed(_) | Self::Unanswered(_) => None,
        }
    }

    /// What it means for a request that has succeeded, which nothing undoes.
    pub(super) fn once_succeeded(self) -> Self {
        match self {
            Self::Pending(refused) | Self::Failed(refused) => Self::Unanswered(refused),
            other => other,
        }
    }
}

impl Refused {
    pub(super) fn new(reason: &str, message: &(impl ToString + ?Sized)) -> Self {
        Self {
            reason: reason.to_owned(),
            message: message.to_string(),
            contract: None,
        }
    }

    pub(super) fn within(self, contract: &str) -> Self {
        Self {
            contract: Some(contract.to_owned()),
            ..self
        }
    }
}

/// What to do next. Steps that others take (the contract's parts, the export) are waited for by doing nothing.
pub(super) fn plan(seen: &Observed<'_>) -> Vec<Op> {
    let is_done = phase(seen.request) == Phase::Succeeded;
    let next = if is_done || seen.served {
        response(seen)
    } else {
        next(seen)
    };
    match next.map_err(|outcome| if is_done { outcome.once_succeeded() } else { outcome }) {
        Ok(ops) => ops,
        Err(outcome) if status::says(seen.request, &outcome) => Vec::new(),
        Err(outcome) => vec![Op::Say(outcome)],
    }
}

/// Of a request that was served once, nothing but the response is made again, and that for the contract's owner alone.
fn response(seen: &Observed<'_>) -> Result<Vec<Op>, Outcome> {
    let located = admitted(seen)?;
    let contract = located.name.clone();
    if seen.revocation.is_some() {
        return Err(revoked(&contract));
    }
    if bound(seen).is_none() {
        let name = request_name(seen.request);
        let message = format!("export {name} was unbound; delete this request and create it again to bind it anew");
        return Err(Outcome::Pending(
            Refused::new("ExportNotFound", &message).within(&contract),
        ));
    }
    Ok(vec![Op::Respond { contract }])
}

/// The export that was made for what the request asks.
fn bound<'a>(seen: &'a Observed<'_>) -> Option<&'a APIServiceExport> {
    let export = seen.export.as_deref()?;
    let from = export.annotations().get(annotations::TEMPLATE).map(String::as_str);
    (export.metadata.deletion_timestamp.is_none() && from == template_name(seen.request)).then_some(export)
}

/// What a response says was bound: as the export has it, and the template what an export does not. What is asked of the
/// contract the consumer can write.
pub(super) fn asked(seen: &Observed<'_>) -> Option<APIServiceExportRequestSpec> {
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

fn revoked(contract: &str) -> Outcome {
    let message = "the contract's credentials are revoked; its owner can bind again";
    Outcome::Pending(Refused::new("CredentialsRevoked", message).within(contract))
}

fn next(seen: &Observed<'_>) -> Result<Vec<Op>, Outcome> {
    let located = admitted(seen)?;
    let offer = offered(seen)?;
    let Some(namespace) = &located.namespace else {
        return Ok(vec![Op::CreateContract(Box::new(new_contract(seen, &located.name)))]);
    };
    let contract = located.name.as_str();
    let unfit = offer.fits(seen.schemas.iter().map(AsRef::as_ref));
    unfit.map_err(|refusal| Outcome::Failed(Refused::new(refusal.reason(), &refusal).within(contract)))?;
    if let Some(patch) = contract::grant(namespace, &offer.template) {
        let contract = contract.to_owned();
        return Ok(vec![Op::Grant { contract, patch }]);
    }
    // A bind by the owner ends a revocation, but not one that was made before it.
    if let Some(revocation) = seen.revocation.as_ref().filter(|it| it.is_before(seen.request)) {
        return Ok(vec![Op::Reinstate {
            contract: contract.to_owned(),
            revocation: revocation.id.clone(),
        }]);
    }
    if !seen.complete {
        return match seen.revocation {
            Some(_) => Err(revoked(contract)),
            // Whoever calls waits for the answer; one who has made a resource reads what it waits for.
            None if seen.secret.is_some() => Err(Outcome::Pending(
                Refused::new("ContractNotReady", "the server is setting up the contract").within(contract),
            )),
            None => Ok(Vec::new()),
        };
    }
    export(seen, offer, contract, namespace)
}

fn admitted<'a>(seen: &'a Observed<'_>) -> Result<&'a Located, Outcome> {
    let identity = &seen.request.spec.cluster_identity.identity;
    if identity.is_empty() || identity.len() > contract::IDENTITY_LENGTH_MAX {
        let message = format!(
            "spec.clusterIdentity.identity needs 1 to {} bytes, such as the UID of the consumer's namespace kube-system",
            contract::IDENTITY_LENGTH_MAX
        );
        return Err(Outcome::Failed(Refused::new("InvalidClusterIdentity", &message)));
    }
    let located = seen.located.as_ref().map_err(|refusal| seen.refused(refusal))?;
    contract::admit(located, identity, &seen.principal).map_err(|refusal| seen.refused(&refusal))?;
    Ok(located)
}

fn offered<'a>(seen: &'a Observed<'_>) -> Result<&'a ExportPlan, Outcome> {
    match (&seen.offer, template_name(seen.request)) {
        (Some(Ok(offer)), _) => Ok(offer),
        (Some(Err(refusal)), _) => Err(Outcome::Pending(Refused::new(refusal.reason(), refusal))),
        (None, Some(name)) => {
            let message = format!("there is no APIServiceExportTemplate {name}");
            Err(Outcome::Pending(Refused::new("TemplateNotFound", &message)))
        }
        (None, None) => {
            let message = "spec.templateRef.name is missing; name the template to bind";
            Err(Outcome::Failed(Refused::new("TemplateNotFound", message)))
        }
    }
}

/// From a whole contract to the export.
fn export(
    seen: &Observed<'_>,
    offer: &ExportPlan,
    contract: &str,
    namespace: &Arc<Namespace>,
) -> Result<Vec<Op>, Outcome> {
    let name = request_name(seen.request);
    if let Some(export) = &seen.export {
        if export.metadata.deletion_timestamp.is_some() {
            // It comes back to life only when the old one has gone.
            return Ok(Vec::new());
        }
        let from = export.annotations().get(annotations::TEMPLATE);
        if from != Some(&offer.template) {
            let message = format!(
                "export {name} of this contract was made from {}; choose another name or unbind it",
                from.map_or_else(|| "no template".to_owned(), |from| format!("template {from}"))
            );
            return Err(Outcome::Failed(
                Refused::new("ExportNameTaken", &message).within(contract),
            ));
        }
        if !offer.is_met_by(export) {
            if let Some(field) = offer.moves(export) {
                let export = name.to_owned();
                let refusal = template::Refusal::PlacementFixed { export, field };
                return Err(Outcome::Failed(
                    Refused::new(refusal.reason(), &refusal).within(contract),
                ));
            }
            return Ok(replace(seen, export, contract));
        }
    }
    let Some(existing) = &seen.export_request else {
        let wanted = export_request(seen.request, offer, contract);
        return Ok(vec![Op::CreateExportRequest(Box::new(wanted))]);
    };
    let status = existing.status.as_ref();
    match status.map(|status| status.phase).unwrap_or_default() {
        Phase::Succeeded if seen.export.is_some() && offer.is_asked_by(existing) => {
            let contract = contract.to_owned();
            let namespace = Arc::clone(namespace);
            match seen.secret {
                Some(_) => Ok(vec![Op::Remember { namespace }]),
                None => Err(Outcome::Succeeded { contract, secret: None }),
            }
        }
        Phase::Failed if is_for(existing, seen.request) => {
            let message = status.and_then(|status| status.terminal_message.clone());
            let message = message.unwrap_or_else(|| format!("APIServiceExportRequest {name} failed"));
            let reason = failure_reason(existing);
            Err(Outcome::Failed(Refused::new(&reason, &message).within(contract)))
        }
        // It has made an export that has gone, has its schemas updated in another way, or failed for an earlier request:
        // another one does its work.
        Phase::Succeeded | Phase::Failed => Ok(vec![delete(existing, contract)]),
        Phase::Pending => match waiting_for(existing) {
            Some((reason, message)) => Err(Outcome::Pending(Refused::new(reason, message).within(contract))),
            None => Ok(Vec::new()),
        },
    }
}

/// An export cannot be changed: it is marked, so that its end takes nothing along, and made anew under its name. It is
/// deleted as it was seen with its mark: where the template is taken back in between, the mark goes, and the export stays.
fn replace(seen: &Observed<'_>, export: &Arc<APIServiceExport>, contract: &str) -> Vec<Op> {
    let is_marked = meta::is_annotated(&export.metadata, annotations::REPLACE);
    if !is_marked {
        let mut metadata = writes::seen(&**export);
        metadata["annotations"] = json!({ annotations::REPLACE: annotations::TRUE });
        return vec![Op::MarkReplaced {
            contract: contract.to_owned(),
            name: export.name_any(),
            patch: json!({ "metadata": metadata }),
        }];
    }
    let request = seen.export_request.as_ref().map(|existing| delete(existing, contract));
    request
        .into_iter()
        .chain([Op::DeleteReplaced(Arc::clone(export))])
        .collect()
}

fn delete(existing: &APIServiceExportRequest, contract: &str) -> Op {
    Op::DeleteExportRequest {
        contract: contract.to_owned(),
        name: existing.name_any(),
        uid: existing.uid(),
    }
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
        template: template_name(seen.request).unwrap_or_default(),
    })
}

fn export_request(request: &BindableResourcesRequest, offer: &ExportPlan, contract: &str) -> APIServiceExportRequest {
    let marks = [
        (annotations::TEMPLATE, offer.template.clone()),
        (annotations::REQUEST_UID, request.uid().unwrap_or_default()),
    ];
    APIServiceExportRequest {
        metadata: ObjectMeta {
            name: Some(request_name(request).to_owned()),
            namespace: Some(contract.to_owned()),
            annotations: Some(BTreeMap::from(marks.map(|(key, value)| (key.to_owned(), value)))),
            ..ObjectMeta::default()
        },
        spec: offer.request_spec(),
        status: None,
    }
}

#[cfg(test)]
mod tests;
