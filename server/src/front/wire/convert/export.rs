//! Conversion of APIServiceExports.

use bindery_api::{Conditions as _, v1alpha2 as api};
use bindery_proto::v1alpha2 as proto;

use crate::front::wire::convert::{claims::claims, condition::conditions, enums, meta};

/// The message of an export. `bound_schemas` refers to the BoundSchemas of its resources, which hold their CRD schemas.
pub(crate) fn export(export: &api::APIServiceExport, bound_schemas: Vec<proto::BoundSchemaRef>) -> proto::Export {
    proto::Export {
        metadata: Some(meta::metadata(&export.metadata)),
        spec: Some(spec(&export.spec)),
        status: Some(proto::ExportStatus {
            conditions: conditions(export.conditions()),
        }),
        bound_schemas,
    }
}

fn spec(spec: &api::APIServiceExportSpec) -> proto::ExportSpec {
    proto::ExportSpec {
        resources: meta::resources(&spec.resources),
        permission_claims: claims(&spec.permission_claims),
        informer_scope: enums::informer_scope(spec.informer_scope),
        isolation: enums::isolation(spec.isolation),
        conflict_policy: spec.conflict_policy.map_or(0, enums::conflict_policy),
        cluster_scoped_namespace: spec.cluster_scoped_namespace.clone().unwrap_or_default(),
        retention: spec.retention.as_ref().map(meta::retention),
    }
}
