//! Plans what an export that is not being deleted is missing.

use bindery_api::{
    Condition, Conditions as _, Severity, annotations,
    conditions::{false_condition, true_condition},
    finalizers,
    v1alpha2::APIServiceExport,
};
use jiff::Timestamp;
use kube::ResourceExt as _;
use serde_json::json;

use super::{claims, observed::Observed, rights, schemas};
use crate::writes::{self, Write};

/// The condition that says whether the export's schemas and rights exist.
pub(crate) const PROVIDER_IN_SYNC: &str = "ProviderInSync";
/// The condition that says whether the export is still what its template makes.
const TEMPLATE_IN_SYNC: &str = "TemplateInSync";

/// What to do for an export.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ExportStep {
    Apply(Vec<Write>),
    /// Ask whether the admission policy is in force, and plan again with the answer.
    Prove,
}

/// Whether an export has a resource.
pub(super) fn offers(export: &APIServiceExport, group: &str, plural: &str) -> bool {
    let mut resources = export.spec.resources.iter();
    resources.any(|resource| resource.group_resource.group == group && resource.group_resource.resource == plural)
}

/// Plans what to write. While something is missing, here or in the mapped namespaces, the status waits for the change that
/// its creation brings.
pub(super) fn plan(seen: &Observed<'_>) -> ExportStep {
    if let Some(finalizers) = writes::with_finalizer(seen.export, finalizers::EXPORT) {
        let write = Write::finalizers("the export lacks its finalizer", seen.export, &finalizers);
        return ExportStep::Apply(vec![write]);
    }
    let mut writes = Vec::new();
    schemas::plan(seen.schemas(), &mut writes);
    if rights::plan(seen, &mut writes).is_err() {
        return ExportStep::Prove;
    }
    claims::plan(seen, &mut writes);
    schemas::hash(seen.schemas(), &mut writes);
    writes.extend(cancel_replacement(seen));
    if !writes.is_empty() {
        return ExportStep::Apply(writes);
    }
    let unproved = seen.policy.and_then(|policy| policy.as_ref().err());
    let status = match seen.lacking.as_ref().or(unproved) {
        Some(refusal) => {
            let condition = out_of_sync(refusal.reason(), refusal.to_string());
            let conditions = [condition].into_iter().chain(rights::policy_in_force(seen));
            set_conditions(seen.export, conditions, seen.now)
        }
        None if seen.has_rights => status(seen),
        None => None,
    };
    ExportStep::Apply(status.into_iter().collect())
}

/// The status of an export that cannot be served for this reason, if it does not say so already.
pub(super) fn refused(export: &APIServiceExport, reason: &str, message: String, now: Timestamp) -> Option<Write> {
    set_conditions(export, [out_of_sync(reason, message)], now)
}

fn out_of_sync(reason: &str, message: String) -> Condition {
    false_condition(PROVIDER_IN_SYNC, Severity::Error, reason, message)
}

fn set_conditions(
    export: &APIServiceExport,
    conditions: impl IntoIterator<Item = Condition>,
    now: Timestamp,
) -> Option<Write> {
    let mut all = export.conditions().to_vec();
    let mut changed = false;
    for condition in conditions {
        changed |= all.set_condition(condition, now);
    }
    changed.then(|| {
        Write::status(
            "a condition of the export changed",
            export,
            &json!({ "conditions": all }),
        )
    })
}

/// Removes the annotation that has an export replaced, once the export is what its template makes again.
fn cancel_replacement(seen: &Observed<'_>) -> Option<Write> {
    let is_met = matches!(&seen.template, Some(Ok(plan)) if plan.is_met_by(seen.export));
    let is_replaced = seen.export.annotations().contains_key(annotations::REPLACE);
    let annotation = json!({ annotations::REPLACE: null });
    (is_met && is_replaced).then(|| Write::annotate("the export is what its template makes", seen.export, &annotation))
}

fn status(seen: &Observed<'_>) -> Option<Write> {
    let conditions = [
        provider_in_sync(seen),
        template_in_sync(seen),
        schemas::in_sync(seen.schemas()),
    ];
    let conditions = conditions.into_iter().chain(rights::policy_in_force(seen));
    set_conditions(seen.export, conditions, seen.now)
}

fn provider_in_sync(seen: &Observed<'_>) -> Condition {
    let missing = seen.schemas.iter().zip(seen.sources).find_map(|pair| match pair {
        (None, Err(refusal)) => Some(refusal),
        _ => None,
    });
    match missing {
        None => true_condition(PROVIDER_IN_SYNC),
        Some(refusal) => false_condition(
            PROVIDER_IN_SYNC,
            Severity::Error,
            "BoundSchemaMissing",
            refusal.to_string(),
        ),
    }
}

/// The condition [`TEMPLATE_IN_SYNC`]. An edited or deleted template does not change an export; a new bind does.
fn template_in_sync(seen: &Observed<'_>) -> Condition {
    let info = |reason: &str, message: String| false_condition(TEMPLATE_IN_SYNC, Severity::Info, reason, message);
    let name = seen.export.annotations().get(annotations::TEMPLATE);
    let name = name.map_or("its template", String::as_str);
    match &seen.template {
        None => info(
            "TemplateNotFound",
            format!("template {name} has gone; the export stays as it is"),
        ),
        Some(Err(refusal)) => info(refusal.reason(), format!("template {name} is not ready: {refusal}")),
        Some(Ok(plan)) => match plan.difference(seen.export) {
            None if let Some(field) = plan.moves(seen.export) => info(
                "PlacementChanged",
                format!(
                    "{field} of template {name} changed since this export was made, whose objects stay where they are; to \
                     have them elsewhere, unbind it and bind again"
                ),
            ),
            None if seen.request.as_ref().is_none_or(|request| plan.is_asked_by(request)) => {
                true_condition(TEMPLATE_IN_SYNC)
            }
            differs => info(
                "TemplateChanged",
                format!(
                    "{} of template {name} changed since this export was made; bind again to take it",
                    differs.unwrap_or("schemaUpdatePolicy")
                ),
            ),
        },
    }
}

#[cfg(test)]
mod tests;
