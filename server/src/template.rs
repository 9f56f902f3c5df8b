//! Assesses what a template offers, or why it cannot be bound: one pure function for catalog, calls and controllers.

use std::collections::{BTreeMap, BTreeSet};

use bindery_api::{
    annotations,
    crd::{Offer, bound_schema_spec},
    names,
    v1alpha2::{
        APIServiceExport, APIServiceExportRequest, APIServiceExportRequestSpec, APIServiceExportSpec,
        APIServiceExportTemplate, BoundSchema, BoundSchemaSpec, ExportResource, GroupResource, InformerScope, NameRef,
        SchemaUpdatePolicy, Scope,
    },
};
use bindery_runtime::crds::is_established;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt as _;

use crate::{rbac::claims::marks_secrets, settings::Settings};

mod claims;
mod refusal;
mod scopes;

pub use claims::ClaimableScopes;
pub use refusal::{Refusal, SERVER_LACKS_RIGHTS};

/// Looks up the exported CRD of a resource.
pub trait Definitions {
    /// The CRD of that name, if there is one that is labelled for export.
    fn definition(&self, name: &str) -> Option<std::sync::Arc<CustomResourceDefinition>>;
}

/// Everything an export of a template is made of.
#[derive(Clone, Debug, PartialEq)]
pub struct ExportPlan {
    /// The template.
    pub template: String,
    /// The template's labels, which the export carries.
    pub labels: BTreeMap<String, String>,
    /// The export's own fields.
    pub export: APIServiceExportSpec,
    /// Whether the konnector reads claimed Secrets cluster-wide.
    pub cluster_wide_secrets: bool,
    /// Namespaces of the consumer that are mapped from the start.
    pub namespaces: Vec<NameRef>,
    /// Whether the export follows changes of the provider's CRDs.
    pub schema_update_policy: SchemaUpdatePolicy,
    /// The schema of each resource, in the order of the resources.
    pub schemas: Vec<BoundSchemaSpec>,
}

/// Decides whether a template can be bound, and what its export is.
pub fn assess(
    template: &APIServiceExportTemplate,
    definitions: &(impl Definitions + ClaimableScopes),
    settings: &Settings,
) -> Result<ExportPlan, Refusal> {
    let spec = &template.spec;
    let isolation = spec.isolation.unwrap_or(settings.isolation);
    check_names(template)?;
    let mut schemas = Vec::with_capacity(spec.resources.len());
    for resource in &spec.resources {
        schemas.push(schema(resource, definitions, settings.informer_scope, None)?);
    }
    scopes::check(spec, isolation, &schemas)?;
    for schema in &mut schemas {
        schema.scope = spec.scope;
    }
    claims::check(spec, isolation, &settings.claimable_resources, definitions)?;
    let export = APIServiceExportSpec {
        resources: spec.resources.clone(),
        permission_claims: spec.permission_claims.clone(),
        informer_scope: settings.informer_scope,
        isolation,
        conflict_policy: spec.conflict_policy,
        cluster_scoped_namespace: spec.cluster_scoped_namespace.clone(),
        retention: spec.retention.clone(),
        ..APIServiceExportSpec::default()
    };
    Ok(ExportPlan {
        template: template.name_any(),
        labels: carried_labels(template),
        cluster_wide_secrets: marks_secrets(&export, settings.cluster_wide_secret_claims),
        export,
        namespaces: spec.namespaces.clone(),
        schema_update_policy: spec.schema_update_policy,
        schemas,
    })
}

/// The schema that a resource is offered with, in the CRD's own scope if `scope` is `None`.
pub fn schema(
    resource: &ExportResource,
    definitions: &impl Definitions,
    informer_scope: InformerScope,
    scope: Option<Scope>,
) -> Result<BoundSchemaSpec, Refusal> {
    let GroupResource {
        group,
        resource: plural,
    } = &resource.group_resource;
    if names::owner_of_group(group).is_some() {
        return Err(Refusal::ProtectedGroup {
            resource: resource.group_resource.clone(),
        });
    }
    let name = names::custom_resource_definition(plural, group);
    let definition = definitions.definition(&name).ok_or_else(|| Refusal::SchemaNotFound {
        definition: name.clone(),
    })?;
    if !is_established(&definition) {
        return Err(Refusal::NotEstablished { definition: name });
    }
    let offer = Offer {
        informer_scope,
        scope,
        versions: &resource.versions,
    };
    bound_schema_spec(&definition, &offer).map_err(|source| Refusal::Schema {
        definition: name,
        reason: source.reason(),
        message: source.to_string(),
    })
}

fn check_names(template: &APIServiceExportTemplate) -> Result<(), Refusal> {
    let mut seen = BTreeSet::new();
    for resource in &template.spec.resources {
        if !seen.insert(&resource.group_resource) {
            return Err(Refusal::DuplicateResource {
                resource: resource.group_resource.clone(),
            });
        }
    }
    let wrong = template
        .spec
        .namespaces
        .iter()
        .find(|namespace| !names::is_label(&namespace.name));
    match wrong {
        Some(namespace) => Err(Refusal::InvalidNamespace {
            namespace: namespace.name.clone(),
        }),
        None => Ok(()),
    }
}

/// The labels that an export takes over from its template: all but those of kube-bind.
fn carried_labels(template: &APIServiceExportTemplate) -> BTreeMap<String, String> {
    let labels = template.labels().iter();
    labels
        .filter(|(key, _)| !annotations::is_reserved(key))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

// === impl ExportPlan ===

impl ExportPlan {
    /// The spec of an APIServiceExportRequest for this plan.
    pub fn request_spec(&self) -> APIServiceExportRequestSpec {
        APIServiceExportRequestSpec {
            parameters: None,
            resources: self.export.resources.clone(),
            permission_claims: self.export.permission_claims.clone(),
            namespaces: self.namespaces.clone(),
            schema_update_policy: self.schema_update_policy,
        }
    }

    /// Whether an export is what the template makes today.
    pub fn is_met_by(&self, export: &APIServiceExport) -> bool {
        self.difference(export).is_none()
    }

    /// Whether the request of an export has the schemaUpdatePolicy of the template today. An export has no such field of its own:
    /// the one of its request counts.
    pub fn is_asked_by(&self, request: &APIServiceExportRequest) -> bool {
        request.spec.schema_update_policy == self.schema_update_policy
    }

    /// The first field in which an export differs from what the template makes today. The placement is not compared: it also
    /// follows the server's defaults, and a new one would move objects.
    pub fn difference(&self, export: &APIServiceExport) -> Option<&'static str> {
        let spec = &export.spec;
        if spec.resources != self.export.resources {
            return Some("resources");
        }
        if spec.permission_claims != self.export.permission_claims {
            return Some("permissionClaims");
        }
        if spec.conflict_policy != self.export.conflict_policy {
            return Some("conflictPolicy");
        }
        (spec.retention != self.export.retention).then_some("retention")
    }

    /// The first field by which a new export would have its objects in another place than this export.
    pub fn moves(&self, export: &APIServiceExport) -> Option<&'static str> {
        if self.schemas.iter().all(|schema| schema.scope == Scope::Namespaced) {
            return None;
        }
        let spec = &export.spec;
        if spec.isolation != self.export.isolation {
            return Some("isolation");
        }
        (spec.cluster_scoped_namespace != self.export.cluster_scoped_namespace).then_some("clusterScopedNamespace")
    }

    /// Fails if a schema of the contract has another scope than this plan: the first export of a resource fixes its scope.
    pub fn fits<'a>(&self, bound: impl IntoIterator<Item = &'a BoundSchema>) -> Result<(), Refusal> {
        for existing in bound {
            let same = self.schemas.iter().find(|schema| {
                schema.group == existing.spec.group && schema.names.plural == existing.spec.names.plural
            });
            if let Some(schema) = same
                && schema.scope != existing.spec.scope
            {
                return Err(Refusal::ScopeFixed {
                    resource: GroupResource::new(&schema.group, &schema.names.plural),
                    bound: existing.spec.scope,
                    offered: schema.scope,
                });
            }
        }
        Ok(())
    }

    /// The resources that are offered.
    pub fn resources(&self) -> impl Iterator<Item = &GroupResource> {
        self.export.resources.iter().map(|resource| &resource.group_resource)
    }
}

impl Definitions for bindery_runtime::cache::Cache<CustomResourceDefinition> {
    fn definition(&self, name: &str) -> Option<std::sync::Arc<CustomResourceDefinition>> {
        self.get("", name)
    }
}

#[cfg(test)]
pub(crate) mod tests;
