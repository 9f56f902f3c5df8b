//! Checks that the scope of a template's resources and the isolation that it asks for go together.

use bindery_api::{
    names, retention,
    v1alpha2::{APIServiceExportTemplateSpec, BoundSchemaSpec, GroupResource, Isolation, Scope},
};

use super::Refusal;

/// Checks a template's scope, isolation and what belongs to it against the schemas in their CRDs' own scopes.
pub(super) fn check(
    spec: &APIServiceExportTemplateSpec,
    isolation: Isolation,
    schemas: &[BoundSchemaSpec],
) -> Result<(), Refusal> {
    one_scope(schemas)?;
    for schema in schemas {
        offered(spec.scope, isolation, schema)?;
    }
    if spec.conflict_policy.is_some() && (spec.scope, isolation) != (Scope::Cluster, Isolation::None) {
        return Err(Refusal::ConflictPolicyUnused { isolation });
    }
    if let Some(retention) = &spec.retention {
        if (spec.scope, isolation) == (Scope::Cluster, Isolation::None) {
            return Err(Refusal::RetentionOfSharedNames);
        }
        retention::check(retention)?;
    }
    if let Some(namespace) = &spec.cluster_scoped_namespace {
        if (spec.scope, isolation) != (Scope::Cluster, Isolation::Namespaced) {
            return Err(Refusal::ClusterScopedNamespaceUnused { isolation });
        }
        if !names::is_label(namespace) {
            return Err(Refusal::InvalidNamespace {
                namespace: namespace.clone(),
            });
        }
    }
    Ok(())
}

/// Fails if the resources of a template have different scopes on the provider.
fn one_scope(schemas: &[BoundSchemaSpec]) -> Result<(), Refusal> {
    if let [first, rest @ ..] = schemas
        && let Some(other) = rest.iter().find(|other| other.scope != first.scope)
    {
        return Err(Refusal::DifferentScopes {
            one: (of(first), first.scope),
            other: (of(other), other.scope),
        });
    }
    Ok(())
}

/// Fails if a resource cannot be shown in the scope of its template. A namespaced resource can be shown as a cluster-scoped one,
/// but only with isolation Namespaced; nothing else is converted.
fn offered(offered: Scope, isolation: Isolation, schema: &BoundSchemaSpec) -> Result<(), Refusal> {
    match (offered, isolation, schema.scope) {
        (Scope::Cluster, Isolation::Namespaced, Scope::Cluster) => {
            Err(Refusal::NotConvertible { resource: of(schema) })
        }
        (Scope::Cluster, Isolation::Prefixed | Isolation::None, Scope::Namespaced) => Err(Refusal::NotConverted {
            resource: of(schema),
            isolation,
        }),
        (Scope::Namespaced, _, Scope::Cluster) => Err(Refusal::ScopeOfTemplate { resource: of(schema) }),
        _ => Ok(()),
    }
}

fn of(schema: &BoundSchemaSpec) -> GroupResource {
    GroupResource::new(&schema.group, &schema.names.plural)
}
