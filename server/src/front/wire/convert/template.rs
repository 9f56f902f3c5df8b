//! Conversion of APIServiceExportTemplates.

use bindery_api::{Conditions as _, v1alpha2 as api};
use bindery_proto::v1alpha2 as proto;

use crate::front::wire::convert::{claims::claims, condition::conditions, enums, meta};

/// The message of a template. `granted_by` says what lets the caller bind it.
pub(crate) fn template(template: &api::APIServiceExportTemplate, granted_by: &str) -> proto::Template {
    let spec = &template.spec;
    proto::Template {
        metadata: Some(meta::metadata(&template.metadata)),
        spec: Some(proto::TemplateSpec {
            description: spec.description.clone().unwrap_or_default(),
            scope: enums::scope(spec.scope),
            resources: meta::resources(&spec.resources),
            permission_claims: claims(&spec.permission_claims),
            namespaces: meta::names(&spec.namespaces),
            schema_update_policy: enums::schema_update_policy(spec.schema_update_policy),
            isolation: spec.isolation.map_or(0, enums::isolation),
            conflict_policy: spec.conflict_policy.map_or(0, enums::conflict_policy),
            cluster_scoped_namespace: spec.cluster_scoped_namespace.clone().unwrap_or_default(),
            retention: spec.retention.as_ref().map(meta::retention),
        }),
        status: Some(proto::TemplateStatus {
            conditions: conditions(template.conditions()),
        }),
        granted_by: granted_by.to_owned(),
    }
}

/// The message of a schema that a template exports.
pub(crate) fn schema(spec: &api::BoundSchemaSpec) -> proto::TemplateSchema {
    let storage_first = spec.versions.iter().filter(|version| version.storage);
    let others = spec.versions.iter().filter(|version| !version.storage);
    let served = storage_first.chain(others).filter(|version| version.served);
    proto::TemplateSchema {
        group: spec.group.clone(),
        resource: spec.names.plural.clone(),
        kind: spec.names.kind.clone(),
        scope: enums::scope(spec.scope),
        versions: served.map(|version| version.name.clone()).collect(),
    }
}
