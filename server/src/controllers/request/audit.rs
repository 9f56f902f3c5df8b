//! The line of the audit log, and the event, about a request made as a resource that was decided. Calls are recorded where they are
//! answered.

use bindery_api::v1alpha2::BindableResourcesRequest;
use jiff::Timestamp;
use kube::{Resource as _, ResourceExt as _};

use super::status::RequestOutcome;
use crate::{
    audit::{AuditEntry, AuditPrincipal, Decision, cut},
    request::template_name,
    state::State,
};

/// Records that a request was decided in another way than before. The author of a request that was served is verified; one that was
/// refused may have been refused before that.
pub(super) fn decided(state: &State, request: &BindableResourcesRequest, outcome: &RequestOutcome, now: Timestamp) {
    let (decision, reason, contract) = match outcome {
        RequestOutcome::Succeeded { contract, .. } => (Decision::Allowed, "", Some(contract.as_str())),
        RequestOutcome::Failed(refused) => (Decision::Refused, refused.reason.as_str(), refused.contract.as_deref()),
        RequestOutcome::Pending(_) | RequestOutcome::Unanswered(_) => return,
    };
    let (namespace, name) = (request.namespace().unwrap_or_default(), request.name_any());
    let template = template_name(request).unwrap_or_default();
    let author = &request.spec.author;
    state.audit.record(|| AuditEntry {
        time: now,
        request_id: String::new(),
        principal: (decision == Decision::Allowed).then(|| AuditPrincipal::new(author, None, &[])),
        claimed_author: if decision == Decision::Allowed {
            String::new()
        } else {
            cut(author)
        },
        peer: None,
        method: "BindableResourcesRequest".to_owned(),
        contract: contract.unwrap_or_default().to_owned(),
        template: template.to_owned(),
        name: format!("{namespace}/{name}"),
        groups: Vec::new(),
        dry_run: false,
        decision,
        reason: reason.to_owned(),
    });
    let object = request.object_ref(&());
    match decision {
        Decision::Allowed => state.recorder.normal(
            &object,
            "Bound",
            format!("{author} requested to bind template {template} as {name}"),
        ),
        _ => state.recorder.warn(
            &object,
            "BindRefused",
            format!("the request to bind template {template} as {name} was refused: {reason}"),
        ),
    }
}
