//! The schemas of an export: made with it, shared with others, and carried along with the provider's CRD where each that
//! shares them asks for that.

use std::{collections::BTreeMap, sync::Arc};

use bindery_api::{
    Condition, Severity, annotations,
    conditions::{false_condition, true_condition},
    crd::{
        compat::{self, Incompatible},
        listed_bound,
    },
    hash, meta, names,
    v1alpha2::{APIServiceExport, BoundSchema, BoundSchemaSpec, ExportResource, GroupResource},
    versions,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{ResourceExt as _, api::ObjectMeta};
use serde_json::{Value, json};

use super::plan::Op;
use crate::{owner, template::Refusal, writes};

/// Whether the schemas are those of the provider's CRDs.
pub(super) const SCHEMA_IN_SYNC: &str = "SchemaInSync";

/// What decides about the schemas of an export, each list in the order of its resources.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) export: &'a APIServiceExport,
    /// The schema of each resource, as far as it is there.
    pub(super) schemas: &'a [Option<Arc<BoundSchema>>],
    /// What each schema is made from.
    pub(super) sources: &'a [Result<BoundSchemaSpec, Refusal>],
    /// The export that keeps each schema as it was, if one that shares it does.
    pub(super) keepers: &'a [Option<String>],
}

/// How a schema stands to what it is made from.
#[derive(Debug)]
enum Standing<'a> {
    Same,
    /// Compatible, and all that share the schema take what the CRD is now.
    Follows(Box<BoundSchemaSpec>),
    /// An export that shares the schema keeps it as it was.
    Kept {
        by: &'a str,
        incompatible: Option<Incompatible>,
    },
    Incompatible(Incompatible),
    /// The CRD is gone, or cannot be offered any more.
    Refused(&'a Refusal),
}

pub(super) fn plan(seen: View<'_>, ops: &mut Vec<Op>) {
    let own = meta::owner_reference(seen.export);
    for (index, (schema, source)) in seen.schemas.iter().zip(seen.sources).enumerate() {
        match (schema, source) {
            (Some(schema), source) => {
                let op = join(schema, &own, source.as_ref().ok()).or_else(|| follow(seen, index, schema));
                ops.extend(op);
            }
            (None, Ok(spec)) => ops.push(Op::CreateSchema(Box::new(bound_schema(seen.export, spec)))),
            // Said in the condition.
            (None, Err(_)) => {}
        }
    }
}

/// The hash over the schemas as they stand, by which others see that one changed.
pub(super) fn hash(seen: View<'_>, ops: &mut Vec<Op>) {
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

/// Says whether the schemas are those of the provider's CRDs, and what mends it where one is not: the first that needs
/// somebody to act, else the first that is kept on purpose.
pub(super) fn in_sync(seen: View<'_>) -> Condition {
    let said = seen.schemas.iter().enumerate().filter_map(|(index, schema)| {
        let standing = match (schema, seen.sources.get(index)) {
            (Some(schema), _) => standing(seen, index, schema)?,
            (None, Some(Err(refusal))) => Standing::Refused(refusal),
            (None, _) => return None,
        };
        said(&seen.export.spec.resources.get(index)?.group_resource, &standing)
    });
    let worst = said.min_by_key(|condition| condition.severity == Severity::Info);
    worst.unwrap_or_else(|| true_condition(SCHEMA_IN_SYNC))
}

fn said(resource: &GroupResource, standing: &Standing<'_>) -> Option<Condition> {
    let name = names::bound_schema(resource);
    let (severity, reason, message) = match standing {
        Standing::Same | Standing::Follows(_) => return None,
        Standing::Kept { by, incompatible } => {
            let how = incompatible.as_ref().map(|how| format!(" ({how})")).unwrap_or_default();
            let message = format!(
                "{name}: the provider's CRD changed{how}, and schemaUpdatePolicy Never of export {by} keeps the schema as it was \
                 bound; to take the change, unbind and bind again"
            );
            (Severity::Info, "SchemaChanged", message)
        }
        Standing::Incompatible(change) => {
            let message = format!(
                "{name}: {change}; this is not compatible, so the schema stays as it was bound: take it back in the provider's CRD, \
                 or unbind and bind again to take it"
            );
            (Severity::Warning, change.reason(), message)
        }
        Standing::Refused(refusal) => {
            let message = format!("{name}: {refusal}; the schema stays as it was bound");
            (Severity::Warning, refusal.reason(), message)
        }
    };
    Some(false_condition(SCHEMA_IN_SYNC, severity, reason, message))
}

fn standing<'a>(seen: View<'a>, index: usize, schema: &BoundSchema) -> Option<Standing<'a>> {
    let source = match seen.sources.get(index)? {
        Ok(source) => source,
        Err(refusal) => return Some(Standing::Refused(refusal)),
    };
    let wanted = wanted(schema, source, seen.export.spec.resources.get(index)?);
    if is_made_from(schema, &wanted) {
        return Some(Standing::Same);
    }
    let compatible = compat::check(&schema.spec, &wanted);
    Some(match (seen.keepers.get(index)?, compatible) {
        (Some(by), compatible) => Standing::Kept {
            by,
            incompatible: compatible.err(),
        },
        (None, Err(incompatible)) => Standing::Incompatible(incompatible),
        (None, Ok(())) => Standing::Follows(Box::new(wanted)),
    })
}

fn follow(seen: View<'_>, index: usize, schema: &BoundSchema) -> Option<Op> {
    match standing(seen, index, schema)? {
        Standing::Follows(wanted) => {
            let mut patch = spec_patch(schema, &wanted);
            patch["metadata"]["uid"] = json!(schema.metadata.uid);
            patch["metadata"]["resourceVersion"] = json!(schema.metadata.resource_version);
            Some(Op::PatchSchema {
                name: schema.name_any(),
                patch,
            })
        }
        _ => None,
    }
}

/// What a schema would be if it were made today. Versions that only others ask for, who share it, are for those to see
/// to, and how it is watched was said by whoever made it.
fn wanted(schema: &BoundSchema, source: &BoundSchemaSpec, resource: &ExportResource) -> BoundSchemaSpec {
    let mut wanted = BoundSchemaSpec {
        informer_scope: schema.spec.informer_scope,
        ..source.clone()
    };
    let of_others = |name: &String| !resource.versions.is_empty() && !resource.versions.contains(name);
    let before = &schema.spec.versions;
    let others: Vec<_> = before
        .iter()
        .filter(|version| of_others(&version.name))
        .cloned()
        .collect();
    if !others.is_empty() {
        let storage = versions::preferred(before.iter().map(listed_bound)).map(ToOwned::to_owned);
        wanted.versions.extend(others);
        wanted.versions.sort_by_key(|version| {
            let place = before.iter().position(|before| before.name == version.name);
            place.unwrap_or(before.len())
        });
        for version in &mut wanted.versions {
            version.storage = Some(&version.name) == storage.as_ref();
        }
    }
    wanted
}

/// Whether a schema is what was made from such a source, as far as nobody edited it since.
fn is_made_from(schema: &BoundSchema, wanted: &BoundSchemaSpec) -> bool {
    let hash = hash::schema_hash(wanted);
    schema.annotations().get(annotations::SOURCE_SPEC_HASH) == Some(&hash) || hash::schema_hash(&schema.spec) == hash
}

/// Joins the owners of a schema. One that nobody owns, left by the export that this one replaces, is taken as it would be
/// made now; one that others use stays as it is.
fn join(schema: &BoundSchema, own: &OwnerReference, source: Option<&BoundSchemaSpec>) -> Option<Op> {
    let owners = owner::shared(schema, std::slice::from_ref(own))?;
    let mut patch = match source {
        Some(spec) if owners.len() == 1 && hash::schema_hash(&schema.spec) != hash::schema_hash(spec) => {
            spec_patch(schema, spec)
        }
        _ => json!({ "metadata": {} }),
    };
    patch["metadata"]["uid"] = json!(schema.metadata.uid);
    patch["metadata"]["resourceVersion"] = json!(schema.metadata.resource_version);
    patch["metadata"]["ownerReferences"] = json!(owners);
    Some(Op::PatchSchema {
        name: schema.name_any(),
        patch,
    })
}

/// The merge patch that makes a schema another one, with the hash of what it is made from.
fn spec_patch(schema: &BoundSchema, wanted: &BoundSchemaSpec) -> Value {
    let mut spec = json!(wanted);
    clear(&json!(schema.spec), &mut spec);
    json!({
        "metadata": { "annotations": { annotations::SOURCE_SPEC_HASH: hash::schema_hash(wanted) } },
        "spec": spec,
    })
}

/// A merge leaves what is not named; lists it replaces as a whole.
fn clear(before: &Value, after: &mut Value) {
    if let (Value::Object(before), Value::Object(after)) = (before, after) {
        for (key, before) in before {
            clear(before, after.entry(key).or_insert(Value::Null));
        }
    }
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
        owner_references: Some(vec![meta::owner_reference(export)]),
        ..ObjectMeta::default()
    };
    schema
}

#[cfg(test)]
mod tests;
