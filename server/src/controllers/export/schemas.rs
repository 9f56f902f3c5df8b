//! The BoundSchemas of an export. Exports of one contract share the schema of a resource; it follows the provider's CRD where
//! every export that shares it asks for that.

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

use crate::{owner, template::Refusal, writes::Write};

/// The condition that says whether the schemas are those of the provider's CRDs.
pub(super) const SCHEMA_IN_SYNC: &str = "SchemaInSync";

/// What is known of an export's schemas, each list in the order of the export's resources.
#[derive(Clone, Copy)]
pub(super) struct SchemaView<'a> {
    pub(super) export: &'a APIServiceExport,
    /// The schema of each resource, as far as it exists.
    pub(super) schemas: &'a [Option<Arc<BoundSchema>>],
    /// What each schema is made from today, or why it cannot be made.
    pub(super) sources: &'a [Result<BoundSchemaSpec, Refusal>],
    /// The export whose policy `Never` keeps the schema as it was bound, for each schema that has one.
    pub(super) keepers: &'a [Option<String>],
}

/// How a schema compares with the provider's CRD of today.
#[derive(Debug)]
enum SchemaDrift<'a> {
    /// The schema is what would be made from the CRD.
    None,
    /// The CRD changed compatibly, and every export that shares the schema follows it: the schema becomes this.
    Follows(Box<BoundSchemaSpec>),
    /// The CRD changed, and the policy of an export keeps the schema as it was bound.
    Kept {
        by: &'a str,
        incompatible: Option<Incompatible>,
    },
    /// The CRD changed incompatibly, so that the schema stays as it was bound.
    Incompatible(Incompatible),
    /// The CRD is gone, or cannot be offered any more.
    Refused(&'a Refusal),
}

/// Plans the schemas that are missing, the owner reference of the export on each, and the changes of the CRDs that the
/// schemas follow.
pub(super) fn plan(seen: SchemaView<'_>, writes: &mut Vec<Write>) {
    let own = meta::owner_reference(seen.export);
    for (index, (schema, source)) in seen.schemas.iter().zip(seen.sources).enumerate() {
        match (schema, source) {
            (Some(schema), source) => {
                let write = join(schema, &own, source.as_ref().ok()).or_else(|| follow(seen, index, schema));
                writes.extend(write);
            }
            (None, Ok(spec)) => {
                // Only the server can create schemas, so that one of the name is ours.
                writes.push(Write::create(
                    "the export has no schema",
                    &bound_schema(seen.export, spec),
                    &[],
                ));
            }
            // The condition says so.
            (None, Err(_)) => {}
        }
    }
}

/// Plans the annotation with the hash over the schemas of an export, by which konnectors see that one changed.
pub(super) fn hash(seen: SchemaView<'_>, writes: &mut Vec<Write>) {
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
        let annotation = json!({ annotations::SOURCE_SPEC_HASH: hash });
        writes.push(Write::annotate(
            "a schema of the export changed",
            seen.export,
            &annotation,
        ));
    }
}

/// The condition [`SCHEMA_IN_SYNC`]. Of several schemas that differ from their CRDs it names the first that somebody has to
/// act on; if there is none, the first that a policy keeps as it was bound.
pub(super) fn in_sync(seen: SchemaView<'_>) -> Condition {
    let said = seen.schemas.iter().enumerate().filter_map(|(index, schema)| {
        let drift = match (schema, seen.sources.get(index)) {
            (Some(schema), _) => drift(seen, index, schema)?,
            (None, Some(Err(refusal))) => SchemaDrift::Refused(refusal),
            (None, _) => return None,
        };
        said(&seen.export.spec.resources.get(index)?.group_resource, &drift)
    });
    let worst = said.min_by_key(|condition| condition.severity == Severity::Info);
    worst.unwrap_or_else(|| true_condition(SCHEMA_IN_SYNC))
}

/// The condition for one schema, if that differs from its CRD.
fn said(resource: &GroupResource, drift: &SchemaDrift<'_>) -> Option<Condition> {
    let name = names::bound_schema(resource);
    let (severity, reason, message) = match drift {
        SchemaDrift::None | SchemaDrift::Follows(_) => return None,
        SchemaDrift::Kept { by, incompatible } => {
            let how = incompatible.as_ref().map(|how| format!(" ({how})")).unwrap_or_default();
            let message = format!(
                "{name}: the provider's CRD changed{how}, and schemaUpdatePolicy Never of export {by} keeps the schema as it was \
                 bound; to take the change, unbind and bind again"
            );
            (Severity::Info, "SchemaChanged", message)
        }
        SchemaDrift::Incompatible(change) => {
            let message = format!(
                "{name}: {change}; this is not compatible, so the schema stays as it was bound: take it back in the provider's CRD, \
                 or unbind and bind again to take it"
            );
            (Severity::Warning, change.reason(), message)
        }
        SchemaDrift::Refused(refusal) => {
            let message = format!("{name}: {refusal}; the schema stays as it was bound");
            (Severity::Warning, refusal.reason(), message)
        }
    };
    Some(false_condition(SCHEMA_IN_SYNC, severity, reason, message))
}

/// How a schema compares with the CRD of today; `None` where that is unknown.
fn drift<'a>(seen: SchemaView<'a>, index: usize, schema: &BoundSchema) -> Option<SchemaDrift<'a>> {
    let source = match seen.sources.get(index)? {
        Ok(source) => source,
        Err(refusal) => return Some(SchemaDrift::Refused(refusal)),
    };
    let wanted = wanted(schema, source, seen.export.spec.resources.get(index)?);
    if is_made_from(schema, &wanted) {
        return Some(SchemaDrift::None);
    }
    let compatible = compat::check(&schema.spec, &wanted);
    Some(match (seen.keepers.get(index)?, compatible) {
        (Some(by), compatible) => SchemaDrift::Kept {
            by,
            incompatible: compatible.err(),
        },
        (None, Err(incompatible)) => SchemaDrift::Incompatible(incompatible),
        (None, Ok(())) => SchemaDrift::Follows(Box::new(wanted)),
    })
}

/// Changes a schema to what its CRD is now, where it follows that.
fn follow(seen: SchemaView<'_>, index: usize, schema: &BoundSchema) -> Option<Write> {
    match drift(seen, index, schema)? {
        SchemaDrift::Follows(wanted) => {
            let patch = spec_patch(schema, &wanted);
            Some(Write::patch("the provider's CRD changed", schema, patch))
        }
        _ => None,
    }
}

/// What a schema would be if this export created it today. Versions that only other exports ask for stay as they are, and so
/// does the informer scope, which the first export of the schema decided.
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

/// Whether a schema is made from this source: by its hash annotation, or by what it holds.
fn is_made_from(schema: &BoundSchema, wanted: &BoundSchemaSpec) -> bool {
    let hash = hash::schema_hash(wanted);
    schema.annotations().get(annotations::SOURCE_SPEC_HASH) == Some(&hash) || hash::schema_hash(&schema.spec) == hash
}

/// Adds the export to the owners of a schema. A schema without other owners, left by the export that this one replaces, is
/// made anew from its source; one that others use stays as it is.
fn join(schema: &BoundSchema, own: &OwnerReference, source: Option<&BoundSchemaSpec>) -> Option<Write> {
    let owners = owner::shared(schema, std::slice::from_ref(own))?;
    let mut patch = match source {
        Some(spec) if owners.len() == 1 && hash::schema_hash(&schema.spec) != hash::schema_hash(spec) => {
            spec_patch(schema, spec)
        }
        _ => json!({}),
    };
    patch["metadata"]["ownerReferences"] = json!(owners);
    Some(Write::patch("the export shares the schema", schema, patch))
}

/// The merge patch that changes a schema's spec to the wanted one, and its hash annotation.
fn spec_patch(schema: &BoundSchema, wanted: &BoundSchemaSpec) -> Value {
    let mut spec = json!(wanted);
    clear(&json!(schema.spec), &mut spec);
    json!({
        "metadata": { "annotations": { annotations::SOURCE_SPEC_HASH: hash::schema_hash(wanted) } },
        "spec": spec,
    })
}

/// Adds a null to a merge patch for each field that is to be removed: a merge keeps fields that it does not name. Lists need
/// none, since a merge replaces them as a whole.
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
