//! What an export that stays is missing.

use std::{collections::BTreeMap, sync::Arc};

use bindery_api::{
    Condition, Conditions as _, Severity, annotations,
    conditions::{false_condition, true_condition},
    finalizers, hash, names,
    v1alpha2::{APIServiceExport, BoundSchema, BoundSchemaSpec, GroupResource, InformerScope},
};
use jiff::Timestamp;
use k8s_openapi::{
    api::{
        core::v1::Namespace,
        rbac::v1::{ClusterRole, ClusterRoleBinding},
    },
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{ResourceExt as _, api::ObjectMeta};
use serde_json::{Value, json};

use crate::{
    owner,
    rbac::{self, Grant},
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
    pub(super) cluster_role: Option<Arc<ClusterRole>>,
    pub(super) cluster_role_binding: Option<Arc<ClusterRoleBinding>>,
    /// Whether the rights are there in every namespace that is mapped already.
    pub(super) has_rights: bool,
    /// What the server lacks to give the rights that are missing.
    pub(super) lacking: Option<Refusal>,
    /// What the template offers today; `None` if it has gone.
    pub(super) template: Option<Result<ExportPlan, Refusal>>,
    pub(super) now: Timestamp,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Op {
    PatchExport(Value),
    CreateSchema(Box<BoundSchema>),
    PatchSchema { name: String, patch: Value },
    CreateClusterRole(Box<ClusterRole>),
    PatchClusterRole { name: String, patch: Value },
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
pub(super) fn plan(seen: &Observed<'_>) -> Vec<Op> {
    let mut ops = Vec::new();
    if let Some(finalizers) = writes::with_finalizer(seen.export, finalizers::EXPORT) {
        return vec![Op::PatchExport(writes::finalizers_patch(seen.export, &finalizers))];
    }
    schemas(seen, &mut ops);
    rights(seen, &mut ops);
    hash(seen, &mut ops);
    spare(seen, &mut ops);
    if !ops.is_empty() {
        return ops;
    }
    match &seen.lacking {
        Some(refusal) => {
            let refused = refused(seen.export, refusal.reason(), refusal.to_string(), seen.now);
            ops.extend(refused.map(Op::Say));
        }
        None if seen.has_rights => status(seen, &mut ops),
        None => {}
    }
    ops
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

fn schemas(seen: &Observed<'_>, ops: &mut Vec<Op>) {
    let own = owner::export(seen.export);
    for (schema, source) in seen.schemas.iter().zip(seen.sources) {
        match (schema, source) {
            (Some(schema), source) => ops.extend(join(schema, &own, source.as_ref().ok())),
            (None, Ok(spec)) => ops.push(Op::CreateSchema(Box::new(bound_schema(seen.export, spec)))),
            // Said in the condition.
            (None, Err(_)) => {}
        }
    }
}

/// Joins the owners of a schema. One that nobody owns, left by the export that this one replaces, is taken as it would be
/// made now; one that others use stays as it is.
fn join(schema: &BoundSchema, own: &OwnerReference, source: Option<&BoundSchemaSpec>) -> Option<Op> {
    let owners = owner::shared(schema, std::slice::from_ref(own))?;
    let mut metadata = writes::seen(schema);
    metadata["ownerReferences"] = json!(owners);
    let mut patch = json!({});
    if owners.len() == 1
        && let Some(spec) = source.filter(|spec| **spec != schema.spec)
    {
        metadata["annotations"] = json!({ annotations::SOURCE_SPEC_HASH: hash::schema_hash(spec) });
        patch["spec"] = json!(spec);
    }
    patch["metadata"] = metadata;
    Some(Op::PatchSchema {
        name: schema.name_any(),
        patch,
    })
}

fn bound_schema(export: &APIServiceExport, spec: &BoundSchemaSpec) -> BoundSchema {
    let resource = GroupResource::new(&spec.group, &spec.names.plural);
    let mut schema = BoundSchema::new(&names::bound_schema(&resource), spec.clone());
    schema.metadata = ObjectMeta {
        name: schema.metadata.name,
        namespace: export.namespace(),
        annotations: Some(BTreeMap::from([(
            annotations::SOURCE_SPEC_HASH.to_owned(),
            hash::schema_hash(spec),
        )])),
        owner_references: Some(vec![owner::export(export)]),
        ..ObjectMeta::default()
    };
    schema
}

/// A konnector that watches cluster-wide needs to read cluster-wide; it writes by the Roles of its own namespaces.
fn rights(seen: &Observed<'_>, ops: &mut Vec<Op>) {
    let (InformerScope::Cluster, Some(contract)) = (seen.export.spec.informer_scope, &seen.contract) else {
        return;
    };
    let resources: Vec<_> = resources(seen.export);
    let (contract_name, export_name) = (contract.name_any(), seen.export.name_any());
    let grant = Grant {
        contract: &contract_name,
        export: &export_name,
        resources: &resources,
    };
    let wanted = rbac::cluster_role(grant, contract);
    match &seen.cluster_role {
        None => ops.push(Op::CreateClusterRole(Box::new(wanted))),
        Some(role) if role.rules != wanted.rules => ops.push(Op::PatchClusterRole {
            name: role.name_any(),
            patch: json!({ "metadata": writes::seen(&**role), "rules": wanted.rules }),
        }),
        Some(_) => {}
    }
    let wanted = rbac::cluster_role_binding(grant, contract);
    match &seen.cluster_role_binding {
        Some(binding) if rbac::binds_the_same_everywhere(binding, &wanted) => return,
        // What a binding binds cannot be changed.
        Some(binding) => ops.push(Op::DeleteClusterRoleBinding {
            name: binding.name_any(),
            uid: binding.uid(),
        }),
        None => {}
    }
    ops.push(Op::CreateClusterRoleBinding(Box::new(wanted)));
}

pub(super) fn resources(export: &APIServiceExport) -> Vec<GroupResource> {
    let resources = export.spec.resources.iter();
    resources.map(|resource| resource.group_resource.clone()).collect()
}

/// The hash over the schemas as they stand, by which others see that one changed.
fn hash(seen: &Observed<'_>, ops: &mut Vec<Op>) {
    let schemas: Option<Vec<&BoundSchemaSpec>> = seen
        .schemas
        .iter()
        .map(|schema| schema.as_deref().map(|schema| &schema.spec))
        .collect();
    let Some(schemas) = schemas else {
        return;
    };
    let hash = hash::export_hash(schemas);
    if seen.export.annotations().get(annotations::SOURCE_SPEC_HASH) != Some(&hash) {
        let mut metadata = writes::seen(seen.export);
        metadata["annotations"] = json!({ annotations::SOURCE_SPEC_HASH: hash });
        ops.push(Op::PatchExport(json!({ "metadata": metadata })));
    }
}

fn status(seen: &Observed<'_>, ops: &mut Vec<Op>) {
    let mut conditions = seen.export.conditions().to_vec();
    let mut changed = conditions.set_condition(provider_in_sync(seen), seen.now);
    changed |= conditions.set_condition(template_in_sync(seen), seen.now);
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
            None => true_condition(TEMPLATE_IN_SYNC),
            Some(field) => info(
                "TemplateChanged",
                format!("{field} of template {name} changed since this export was made; bind again to take it"),
            ),
        },
    }
}

#[cfg(test)]
mod tests;
