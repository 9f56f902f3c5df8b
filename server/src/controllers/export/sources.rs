//! What a BoundSchema is made from: the provider's CRD, and the scope in which the consumer sees it.

use bindery_api::{
    annotations,
    v1alpha2::{APIServiceExport, BoundSchemaSpec, ExportResource, Isolation, Scope},
};
use kube::ResourceExt as _;

use crate::template::{self, Definitions, Refusal};

/// What the schema of a resource would be made from now. `bound` is the scope of the schema that exists, and `offered` that of
/// the export's template.
pub(super) fn source(
    export: &APIServiceExport,
    resource: &ExportResource,
    definitions: &impl Definitions,
    bound: Option<Scope>,
    offered: Option<Scope>,
) -> Result<BoundSchemaSpec, Refusal> {
    let scope = match (export.spec.isolation, bound.or(offered)) {
        // The consumer sees the CRD's own scope where nothing is converted.
        (Isolation::Prefixed | Isolation::None, _) | (_, Some(Scope::Namespaced)) => None,
        (Isolation::Namespaced, Some(Scope::Cluster)) => Some(Scope::Cluster),
        (Isolation::Namespaced, None) => {
            let template = export.annotations().get(annotations::TEMPLATE);
            return Err(Refusal::ScopeUnknown {
                resource: resource.group_resource.clone(),
                template: template.cloned().unwrap_or_default(),
            });
        }
    };
    template::schema(resource, definitions, export.spec.informer_scope, scope)
}

#[cfg(test)]
mod tests {
    use bindery_api::v1alpha2::APIServiceExportSpec;

    use super::*;
    use crate::template::tests::{offered, resource};

    #[track_caller]
    fn check(isolation: Isolation, bound: Option<Scope>, template: Option<Scope>, expect: Result<Scope, &str>) {
        let spec = APIServiceExportSpec {
            isolation,
            ..APIServiceExportSpec::default()
        };
        let export = APIServiceExport::new("riders", spec);
        let cowboys = resource("wildwest.dev", "cowboys");
        let made = source(&export, &cowboys, &offered(), bound, template);
        assert_eq!(made.map(|spec| spec.scope).map_err(|refusal| refusal.reason()), expect);
    }

    #[test]
    fn the_scope_of_a_first_schema_is_the_templates_and_then_stays() {
        let (cluster, namespaced) = (Some(Scope::Cluster), Some(Scope::Namespaced));
        check(Isolation::Namespaced, None, cluster, Ok(Scope::Cluster));
        check(Isolation::Namespaced, None, namespaced, Ok(Scope::Namespaced));
        check(Isolation::Namespaced, namespaced, cluster, Ok(Scope::Namespaced));
        check(Isolation::Namespaced, cluster, None, Ok(Scope::Cluster));
        check(Isolation::Namespaced, None, None, Err("ScopeUnknown"));
        check(Isolation::Prefixed, None, None, Ok(Scope::Namespaced));
        check(Isolation::None, cluster, cluster, Ok(Scope::Namespaced));
    }
}
