//! Plans the next writes for a pending APIServiceExportRequest.

use std::{collections::BTreeMap, sync::Arc};

use bindery_api::{
    Condition, Conditions as _, Severity, annotations,
    conditions::{READY, false_condition, true_condition},
    finalizers, hash, labels, meta,
    v1alpha2::{
        APIServiceExport, APIServiceExportRequest, APIServiceExportTemplate, APIServiceNamespace,
        APIServiceNamespaceSpec, BoundSchema, Owner, Phase,
    },
};
use jiff::Timestamp;
use kube::{ResourceExt as _, api::ObjectMeta};
use serde_json::json;

use crate::{
    controllers::{export::PROVIDER_IN_SYNC, traces},
    limits::{LIMIT_REACHED, LimitReached},
    template::{ExportPlan, Refusal},
    writes::Write,
};

/// The condition that says whether the export, and all that it needs, exists.
const EXPORTS_READY: &str = "ExportsReady";

/// A pending request, and all that its plan depends on.
pub(super) struct Observed<'a> {
    pub(super) request: &'a APIServiceExportRequest,
    pub(super) export: Option<&'a APIServiceExport>,
    /// The templates that are granted to the contract.
    pub(super) offers: &'a [Offer],
    /// The limit that the contract has reached, if it has reached one.
    pub(super) reached: Option<&'a LimitReached>,
    pub(super) schemas: &'a [Arc<BoundSchema>],
    /// The mapped namespaces of the contract, in any order.
    pub(super) mapped: &'a [Arc<APIServiceNamespace>],
    pub(super) now: Timestamp,
}

/// A granted template, and its assessment.
pub(super) struct Offer {
    pub(super) template: Arc<APIServiceExportTemplate>,
    pub(super) verdict: Result<ExportPlan, Refusal>,
    /// Whether who bound the template may bind it now. Asked only for templates that offer what the request asks for.
    pub(super) may_bind: bool,
}

/// Plans the next writes; none where the request waits for others to act.
pub(super) fn plan(seen: &Observed<'_>) -> Vec<Write> {
    match seen.export {
        Some(export) if export.metadata.deletion_timestamp.is_some() => Vec::new(),
        Some(export) if is_answered_by(seen.request, export) => finish(seen, export),
        Some(export) => {
            let message = format!(
                "an export {} with other resources or claims exists; choose another name or unbind it",
                export.name_any()
            );
            report(
                seen,
                Phase::Failed,
                &[false_condition(
                    EXPORTS_READY,
                    Severity::Error,
                    "ExportNameTaken",
                    message,
                )],
            )
        }
        None => begin(seen),
    }
}

fn is_answered_by(request: &APIServiceExportRequest, export: &APIServiceExport) -> bool {
    request.spec.resources == export.spec.resources && request.spec.permission_claims == export.spec.permission_claims
}

/// Plans the export of a request that has none yet.
fn begin(seen: &Observed<'_>) -> Vec<Write> {
    let Some(offer) = offer_for(seen.request, seen.offers) else {
        let message = "no template that is granted to this contract offers exactly these resources, claims and \
                       namespaces; bind a template, or take resources and claims as the template has them";
        let condition = false_condition(EXPORTS_READY, Severity::Error, "TemplateNotGranted", message);
        return report(seen, Phase::Failed, &[condition]);
    };
    if !offer.may_bind {
        let message = format!(
            "who bound template {name} for this contract may not bind it any more; ask the provider's admin for verb bind on \
             apiserviceexporttemplates.kube-bind.io {name}, then bind it again",
            name = offer.template.name_any()
        );
        let condition = false_condition(EXPORTS_READY, Severity::Error, "TemplateBindDenied", message);
        return report(seen, Phase::Failed, &[condition]);
    }
    if let Some(reached) = seen.reached {
        let condition = false_condition(EXPORTS_READY, Severity::Error, LIMIT_REACHED, reached.to_string());
        return report(seen, Phase::Pending, &[condition]);
    }
    let fitting = offer.verdict.as_ref().map_err(Clone::clone).and_then(|plan| {
        plan.fits(seen.schemas.iter().map(AsRef::as_ref))?;
        Ok(plan)
    });
    match fitting {
        // Only the server can create exports, so that one of the name is ours.
        Ok(plan) => vec![Write::create(
            "the request has no export",
            &export(seen.request, plan),
            &[],
        )],
        Err(refusal) => {
            let phase = if refusal.is_final() {
                Phase::Failed
            } else {
                Phase::Pending
            };
            let condition = false_condition(
                refusal.condition(),
                Severity::Error,
                refusal.reason(),
                refusal.to_string(),
            );
            report(seen, phase, &[condition])
        }
    }
}

/// A granted template that offers what the request asks for: one that may be bound, if there is one. The template that the request names
/// comes first, but the name is only a hint, since a consumer may have written it.
fn offer_for<'a>(request: &APIServiceExportRequest, offers: &'a [Offer]) -> Option<&'a Offer> {
    let hint = request.annotations().get(annotations::TEMPLATE);
    let mut fitting: Vec<_> = offers
        .iter()
        .filter(|offer| asks_for(request, &offer.template))
        .collect();
    fitting.sort_by_key(|offer| (!offer.may_bind, Some(&offer.template.name_any()) != hint));
    fitting.first().copied()
}

pub(super) fn asks_for(request: &APIServiceExportRequest, template: &APIServiceExportTemplate) -> bool {
    let (requested, offered) = (&request.spec, &template.spec);
    requested.resources == offered.resources
        && requested.permission_claims == offered.permission_claims
        && requested.namespaces == offered.namespaces
        && requested.schema_update_policy == offered.schema_update_policy
}

fn export(request: &APIServiceExportRequest, plan: &ExportPlan) -> APIServiceExport {
    let mut marks = vec![
        (annotations::TEMPLATE, plan.template.clone()),
        (annotations::SOURCE_SPEC_HASH, hash::export_hash(&plan.schemas)),
    ];
    if plan.cluster_wide_secrets {
        marks.push((annotations::CLUSTER_WIDE_SECRETS, annotations::TRUE.to_owned()));
    }
    marks.extend(traces::continued(request));
    let marks = marks.into_iter().map(|(key, value)| (key.to_owned(), value));
    APIServiceExport {
        metadata: ObjectMeta {
            name: Some(request.name_any()),
            namespace: request.namespace(),
            labels: (!plan.labels.is_empty()).then(|| plan.labels.clone()),
            annotations: Some(marks.collect()),
            // From the first write on, so that no export goes without its rights going too.
            finalizers: Some(vec![finalizers::EXPORT.to_owned()]),
            ..ObjectMeta::default()
        },
        spec: plan.export.clone(),
        status: None,
    }
}

/// Plans the rest for a request whose export exists: the namespaces that it names, and success once the export is ready.
fn finish(seen: &Observed<'_>, export: &APIServiceExport) -> Vec<Write> {
    let wanted = seen.request.spec.namespaces.iter();
    let wanted: Vec<_> = wanted
        .map(|namespace| {
            let mut mapped = seen.mapped.iter();
            let found = mapped.find(|mapped| mapped.metadata.name.as_ref() == Some(&namespace.name));
            (&namespace.name, found)
        })
        .collect();
    let missing: Vec<_> = wanted
        .iter()
        .filter_map(|(name, found)| match found {
            // The konnector may have created it meanwhile.
            None => Some(Write::create(
                "the request names it",
                &mapped_namespace(export, name),
                &[],
            )),
            Some(found) => claim(found),
        })
        .collect();
    if !missing.is_empty() {
        return missing;
    }
    if wanted
        .iter()
        .any(|(_, found)| found.is_some_and(|found| is_under_way(found)))
    {
        // A provider that prepares objects for the consumer needs the provider namespaces.
        return Vec::new();
    }
    match export.condition(PROVIDER_IN_SYNC) {
        None => Vec::new(),
        Some(condition) if condition.is_true() => report(seen, Phase::Succeeded, &[true_condition(EXPORTS_READY)]),
        Some(condition) => {
            let waiting = false_condition(
                EXPORTS_READY,
                condition.severity,
                condition.reason.clone(),
                condition.message.clone(),
            );
            report(seen, Phase::Pending, &[waiting])
        }
    }
}

fn mapped_namespace(export: &APIServiceExport, name: &str) -> APIServiceNamespace {
    let mut namespace = APIServiceNamespace::new(name, APIServiceNamespaceSpec {});
    namespace.metadata = ObjectMeta {
        name: Some(name.to_owned()),
        namespace: export.namespace(),
        labels: Some(BTreeMap::from([(
            labels::OWNER.to_owned(),
            Owner::Provider.as_str().to_owned(),
        )])),
        finalizers: Some(vec![finalizers::NAMESPACE.to_owned()]),
        owner_references: Some(vec![meta::owner_reference(export)]),
        ..ObjectMeta::default()
    };
    namespace
}

/// Labels a namespace of the request as the provider's, also if the konnector mapped it first, so that no konnector removes it.
fn claim(namespace: &APIServiceNamespace) -> Option<Write> {
    let owner = namespace.labels().get(labels::OWNER);
    let is_provided = owner.is_some_and(|owner| owner == Owner::Provider.as_str());
    if is_provided || namespace.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let labels = json!({ "metadata": { "labels": { labels::OWNER: Owner::Provider.as_str() } } });
    Some(Write::patch("the request names it", namespace, labels))
}

/// Whether a mapped namespace has neither its provider namespace nor a refusal yet, or is being deleted and then created anew.
fn is_under_way(namespace: &APIServiceNamespace) -> bool {
    if namespace.metadata.deletion_timestamp.is_some() {
        return true;
    }
    let status = namespace.status.as_ref();
    let is_refused = namespace.condition(READY).is_some_and(|ready| !ready.is_true());
    !is_refused && status.and_then(|status| status.namespace.as_ref()).is_none()
}

/// Writes a status with these conditions and no others, unless it is so already.
fn report(seen: &Observed<'_>, phase: Phase, conditions: &[Condition]) -> Vec<Write> {
    let before = seen.request.status.clone().unwrap_or_default();
    let mut status = before.clone();
    status.phase = phase;
    status
        .conditions
        .retain(|condition| condition.type_ == READY || conditions.iter().any(|other| other.type_ == condition.type_));
    for condition in conditions {
        status.set_condition(condition.clone(), seen.now);
    }
    status.set_ready_summary(seen.now);
    let failure = conditions.iter().find(|condition| !condition.is_true());
    status.terminal_message = failure
        .filter(|_| phase == Phase::Failed)
        .map(|condition| condition.message.clone());
    if status == before {
        return Vec::new();
    }
    vec![Write::status(
        "the state of the request changed",
        seen.request,
        &json!(status),
    )]
}

#[cfg(test)]
mod tests;
