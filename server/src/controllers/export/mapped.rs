//! The rights of an export in the namespaces that are mapped for its consumer. They are the same in all namespaces but the one
//! for cluster-scoped objects, so that they are computed once for any number of namespaces.

use bindery_api::v1alpha2::APIServiceExport;

use crate::rbac::{self, Scopes, claims::Right};

/// The rights of one export in mapped namespaces.
#[derive(Debug)]
pub(super) struct MappedRights<'a> {
    everywhere: Vec<Right>,
    /// The consumer's namespace for cluster-scoped objects, and the rights in it.
    within: Option<(&'a str, Vec<Right>)>,
}

// === impl MappedRights ===

impl<'a> MappedRights<'a> {
    /// The rights that an export needs.
    pub(super) fn of(contract: &str, export: &'a APIServiceExport, scopes: &Scopes) -> Self {
        // Names and rules do not depend on the provider namespace. An empty name stands for any other namespace of the consumer.
        let rights = |mapped: &str| rbac::mapped_rights(contract, export, scopes, mapped, "");
        let only = export.spec.cluster_scoped_namespace.as_deref();
        Self {
            everywhere: rights(""),
            within: only.map(|only| (only, rights(only))),
        }
    }

    /// The rights in the provider namespace that is mapped for this namespace of the consumer.
    pub(super) fn within(&self, mapped: &str) -> &[Right] {
        match &self.within {
            Some((only, rights)) if *only == mapped => rights,
            _ => &self.everywhere,
        }
    }
}

#[cfg(test)]
mod tests {
    use bindery_api::v1alpha2::{
        APIServiceExportSpec, BoundSchema, BoundSchemaSpec, ExportResource, GroupResource, Isolation, PermissionClaim,
        Scope,
    };

    use super::*;

    #[track_caller]
    fn check(only: Option<&str>, scope: Scope, claims: &[&str]) {
        let resource = GroupResource::new("wildwest.dev", "cowboys");
        let spec = APIServiceExportSpec {
            resources: vec![ExportResource {
                group_resource: resource.clone(),
                versions: Vec::new(),
            }],
            permission_claims: claims
                .iter()
                .map(|plural| PermissionClaim {
                    group_resource: GroupResource::new("bank.dev", *plural),
                    ..PermissionClaim::default()
                })
                .collect(),
            isolation: Isolation::Namespaced,
            cluster_scoped_namespace: only.map(ToOwned::to_owned),
            ..APIServiceExportSpec::default()
        };
        let export = APIServiceExport::new("riders", spec);
        let mut schema = BoundSchemaSpec {
            group: resource.group,
            scope,
            ..BoundSchemaSpec::default()
        };
        schema.names.plural = resource.resource;
        let schema = BoundSchema::new("cowboys", schema);
        let scopes = [&schema].into_iter().collect();
        let rights = MappedRights::of("kube-bind-a", &export, &scopes);
        for mapped in ["ranch", "town"] {
            assert_eq!(
                rights.within(mapped),
                rbac::mapped_rights("kube-bind-a", &export, &scopes, mapped, ""),
                "{mapped}"
            );
        }
    }

    #[test]
    fn they_are_those_that_each_namespace_gets() {
        for claims in [&[][..], &["safes"]] {
            check(None, Scope::Namespaced, claims);
            check(None, Scope::Cluster, claims);
            check(Some("town"), Scope::Cluster, claims);
            check(Some("town"), Scope::Namespaced, claims);
        }
    }
}
