//! What an export that stays is missing.

use std::sync::Arc;

use bindery_api::{
    Condition, Conditions as _, Severity, annotations,
    conditions::{false_condition, true_condition},
    finalizers,
    v1alpha2::{APIServiceExport, APIServiceExportRequest, BoundSchema, BoundSchemaSpec},
};
use jiff::Timestamp;
use k8s_openapi::api::{
    core::v1::Namespace,
    rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
};
use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::{claims, rights, schemas};
use crate::{
    template::{ExportPlan, Refusal},
    writes,
};

/// The wire's condition: schemas and rights are there.
pub(in crate::controllers) const PROVIDER_IN_SYNC: &str = "ProviderInSync";
/// Whether the export is still what its template makes.
const TEMPLATE_IN_SYNC: &str = "TemplateInSync";

pub(super) struct Observed<'a> {
    pub(super) export: &'a APIServiceExport,
    pub(super) contract: Option<Arc<Namespace>>,
    /// The schema of each resource, as far as it is there.
    pub(super) schemas: &'a [Option<Arc<BoundSchema>>],
    /// What each resource's schema is made from.
    pub(super) sources: &'a [Result<BoundSchemaSpec, Refusal>],
    /// The export that keeps each resource's schema as it was, if one that has the resource does.
    pub(super) keepers: &'a [Option<String>],
    /// What the export was made by.
    pub(super) request: Option<Arc<APIServiceExportRequest>>,
    pub(super) cluster_role: Option<Arc<ClusterRole>>,
    pub(super) cluster_role_binding: Option<Arc<ClusterRoleBinding>>,
    /// The export's Role in the contract namespace.
    pub(super) role: Option<Arc<Role>>,
    /// The RoleBinding of that Role.
    pub(super) role_binding: Option<Arc<RoleBinding>>,
    /// What the export may read of claimed objects in the whole cluster.
    pub(super) claims: claims::Seen,
    /// Whether the admission policy bounds what is written in the cluster's scope; `None` if that was not asked.
    pub(super) policy: Option<&'a Result<(), Refusal>>,
    /// Whether the rights are there in every namespace that is mapped already.
    pub(super) has_rights: bool,
    /// What the server lacks to give the rights that are missing.
    pub(super) lacking: Option<Refusal>,
    /// What the template offers today; `None` if it has gone.
    pub(super) template: Option<Result<ExportPlan, Refusal>>,
    pub(super) now: Timestamp,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    Apply(Vec<Op>),
    /// The admission policy must be tried before more can be said.
    Prove,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Op {
    PatchExport(Value),
    CreateSchema(Box<BoundSchema>),
    PatchSchema { name: String, patch: Value },
    CreateRole(Box<Role>),
    PatchRole { name: String, patch: Value },
    DeleteRole { name: String, uid: Option<String> },
    CreateRoleBinding(Box<RoleBinding>),
    DeleteRoleBinding { name: String, uid: Option<String> },
    CreateClusterRole(Box<ClusterRole>),
    PatchClusterRole { name: String, patch: Value },
    DeleteClusterRole { name: String, uid: Option<String> },
    CreateClusterRoleBinding(Box<ClusterRoleBinding>),
    DeleteClusterRoleBinding { name: String, uid: Option<String> },
    Say(Vec<Condition>),
}

/// Whether an export has a resource.
pub(super) fn offers(export: &APIServiceExport, group: &str, plural: &str) -> bool {
    let mut resources = export.spec.resources.iter();
    resources.any(|resource| resource.group_resource.group == group && resource.group_resource.resource == plural)
}

/// What to write. While something is being made, here or in the mapped namespaces, the status waits: the change that
/// it brings comes back here.
pub(super) fn plan(seen: &Observed<'_>) -> Step {
    let mut ops = Vec::new();
    if let Some(finalizers) = writes::with_finalizer(seen.export, finalizers::EXPORT) {
        let patch = writes::finalizers_patch(seen.export, &finalizers);
        return Step::Apply(vec![Op::PatchExport(patch)]);
    }
    schemas::plan(seen.schemas(), &mut ops);
    if rights::plan(seen, &mut ops).is_err() {
        return Step::Prove;
    }
    claims::plan(seen, &mut ops);
    schemas::hash(seen.schemas(), &mut ops);
    spare(seen, &mut ops);
    if !ops.is_empty() {
        return Step::Apply(ops);
    }
    let unproved = seen.policy.and_then(|policy| policy.as_ref().err());
    match seen.lacking.as_ref().or(unproved) {
        Some(refusal) => {
            let refused = refused(seen.export, refusal.reason(), refusal.to_string(), seen.now);
            ops.extend(refused.map(Op::Say));
        }
        None if seen.has_rights => status(seen, &mut ops),
        None => {}
    }
    Step::Apply(ops)
}

/// The conditions of an export whose provider side cannot be seen to, if it does not say so already.
pub(super) fn refused(
    export: &APIServiceExport,
    reason: &str,
    message: String,
    now: Timestamp,
) -> Option<Vec<Condition>> {
    let mut conditions = export.conditions().to_vec();
    let condition = false_condition(PROVIDER_IN_SYNC, Severity::Error, reason, message);
    conditions.set_condition(condition, now).then_some(conditions)
}

/// Takes back the mark of one that was to make room for a successor, once it is what the template makes again.
fn spare(seen: &Observed<'_>, ops: &mut Vec<Op>) {
    let is_met = matches!(&seen.template, Some(Ok(plan)) if plan.is_met_by(seen.export));
    if is_met && seen.export.annotations().contains_key(annotations::REPLACE) {
        let mut metadata = writes::seen(seen.export);
        metadata["annotations"] = json!({ annotations::REPLACE: null });
        ops.push(Op::PatchExport(json!({ "metadata": metadata })));
    }
}

fn status(seen: &Observed<'_>, ops: &mut Vec<Op>) {
    let mut conditions = seen.export.conditions().to_vec();
    let mut changed = conditions.set_condition(provider_in_sync(seen), seen.now);
    changed |= conditions.set_condition(template_in_sync(seen), seen.now);
    changed |= conditions.set_condition(schemas::in_sync(seen.schemas()), seen.now);
    if changed {
        ops.push(Op::Say(conditions));
    }
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

/// Neither an edited nor a deleted template changes an export; taking what it makes today is a new bind.
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

// === impl Observed ===

impl<'a> Observed<'a> {
    fn schemas(&self) -> schemas::View<'a> {
        schemas::View {
            export: self.export,
            schemas: self.schemas,
            sources: self.sources,
            keepers: self.keepers,
        }
    }
}

#[cfg(test)]
mod tests;
