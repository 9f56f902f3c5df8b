//! Removes what an export left behind that made room for a successor, where that never came, or offers less.

use std::{collections::BTreeSet, sync::Arc};

use bindery_api::{
    names,
    v1alpha2::{APIServiceExport, APIServiceNamespace, BoundSchema, GroupResource, Phase},
};
use bindery_runtime::cache::ObjectKey;
use kube::{Api, Resource, api::ListParams};

use super::{Exports, IN_THE_WAY, plan::offers};
use crate::{
    controllers::Next,
    leftovers,
    writes::{self, Write, WriteError},
};

/// The schemas and mapped namespaces of a contract that no export needs.
#[derive(Clone, Debug, Default)]
pub(super) struct Unneeded {
    schemas: Vec<Arc<BoundSchema>>,
    namespaces: Vec<Arc<APIServiceNamespace>>,
}

/// What no export needs in a contract that has these exports and gets no others: schemas that none of them owns or offers, and,
/// if there is no export, the mapped namespaces.
pub(super) fn plan(
    exports: &[&APIServiceExport],
    schemas: Vec<Arc<BoundSchema>>,
    namespaces: Vec<Arc<APIServiceNamespace>>,
) -> Unneeded {
    let is_needed = |schema: &BoundSchema| {
        let owners = schema.metadata.owner_references.as_deref().unwrap_or_default();
        exports.iter().any(|export| {
            let owns = owners
                .iter()
                .any(|owner| Some(&owner.uid) == export.metadata.uid.as_ref());
            owns || offers(export, &schema.spec.group, &schema.spec.names.plural)
        })
    };
    Unneeded {
        schemas: staying(schemas).filter(|schema| !is_needed(schema)).collect(),
        namespaces: staying(namespaces).filter(|_| exports.is_empty()).collect(),
    }
}

fn staying<K: Resource>(objects: Vec<Arc<K>>) -> impl Iterator<Item = Arc<K>> {
    let objects = objects.into_iter();
    objects.filter(|object| object.meta().deletion_timestamp.is_none())
}

impl Exports {
    /// Removes the rights of an export that is gone, if it left any, and then what no export of the contract needs.
    pub(super) async fn clear(&self, key: &ObjectKey) -> Result<Next, WriteError> {
        let (contract, name) = (&*key.namespace, &*key.name);
        if self.has_pending_request(contract) {
            return Ok(Next::Change);
        }
        if self.has_roles(contract, name) {
            let exports: Api<APIServiceExport> = Api::namespaced(self.context.state.clients.write.clone(), contract);
            if exports.get_opt(name).await?.is_some() {
                // The cache does not show the export yet; it will be queued.
                return Ok(Next::Change);
            }
            self.take_rights(contract, name).await?;
        }
        self.sweep(contract).await
    }

    /// Removes what no export of a contract needs, unless a request is about to create an export.
    pub(super) async fn sweep(&self, contract: &str) -> Result<Next, WriteError> {
        if self.has_pending_request(contract) {
            return Ok(Next::Change);
        }
        match self.remove_unneeded(contract).await {
            // The provider's admin took the server's right on the resource away, so that its objects cannot be released.
            Err(error) if error.is_forbidden() => {
                tracing::debug!(contract, %error, "what an export left behind cannot be removed");
                Ok(Next::After(IN_THE_WAY))
            }
            taken => taken.map(|()| Next::Change),
        }
    }

    /// Releases the objects of schemas that no export needs, and deletes the schemas and namespaces.
    async fn remove_unneeded(&self, contract: &str) -> Result<(), WriteError> {
        let state = &self.context.state;
        let cached = state.caches.exports.list_in(contract);
        if self.unneeded_in(contract, cached.iter().map(AsRef::as_ref)).is_empty() {
            return Ok(());
        }
        // A deletion must not rest on what a cache shows.
        let exports = Api::<APIServiceExport>::namespaced(state.clients.write.clone(), contract);
        let exports = exports.list(&ListParams::default()).await?;
        let unneeded = self.unneeded_in(contract, exports.items.iter());
        let resources: BTreeSet<_> = unneeded.resources().collect();
        let leftovers = leftovers::of_resources(state, contract, &resources).await?;
        leftovers::release(state, contract, &leftovers, state.clients.clock.now_or_local()).await?;
        writes::apply_all(&state.clients.write, unneeded.deletions()).await
    }

    /// What these exports of a contract do not need.
    fn unneeded_in<'a>(&self, contract: &str, exports: impl Iterator<Item = &'a APIServiceExport>) -> Unneeded {
        let caches = &self.context.state.caches;
        let exports: Vec<_> = exports.collect();
        plan(
            &exports,
            caches.bound_schemas.list_in(contract),
            caches.service_namespaces.list_in(contract),
        )
    }

    /// Whether a pending request is about to create an export of a contract, or to replace one.
    fn has_pending_request(&self, contract: &str) -> bool {
        let state = &self.context.state;
        let Some(namespace) = state.contract(contract) else {
            return false;
        };
        let requests = state.caches.export_requests.list_in(contract);
        let mut requests = requests.iter();
        !self.context.pending_requests.exports(&namespace).is_empty()
            || requests.any(|request| request.phase() == Phase::Pending)
    }

    /// Whether the caches show rights of an export.
    fn has_roles(&self, contract: &str, export: &str) -> bool {
        let made = &self.context.made;
        let role = names::resources_role(export);
        let cluster_roles = [
            names::resources_cluster_role(contract, export),
            names::claims_cluster_role(contract, export),
        ];
        made.roles.get(contract, &role).is_some()
            || made.role_bindings.get(contract, &role).is_some()
            || cluster_roles.iter().any(|role| {
                made.cluster_roles.get("", role).is_some() || made.cluster_role_bindings.get("", role).is_some()
            })
    }
}

// === impl Unneeded ===

impl Unneeded {
    fn is_empty(&self) -> bool {
        self.schemas.is_empty() && self.namespaces.is_empty()
    }

    fn deletions(&self) -> impl Iterator<Item = Write> {
        const REASON: &str = "no export of the contract needs it";
        let schemas = self.schemas.iter().map(|schema| Write::delete_seen(REASON, &**schema));
        let namespaces = self.namespaces.iter();
        schemas.chain(namespaces.map(|namespace| Write::delete_seen(REASON, &**namespace)))
    }

    fn resources(&self) -> impl Iterator<Item = GroupResource> {
        let schemas = self.schemas.iter();
        schemas.map(|schema| GroupResource::new(&schema.spec.group, &schema.spec.names.plural))
    }
}

#[cfg(test)]
mod tests {
    use bindery_api::v1alpha2::{APIServiceExportSpec, APIServiceNamespaceSpec, BoundSchemaSpec, ExportResource};
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};

    use kube::ResourceExt as _;

    use super::*;

    fn export(name: &str, resources: &[&str]) -> APIServiceExport {
        let resource = |plural: &&str| ExportResource {
            group_resource: GroupResource::new("wildwest.dev", *plural),
            versions: Vec::new(),
        };
        let spec = APIServiceExportSpec {
            resources: resources.iter().map(resource).collect(),
            ..APIServiceExportSpec::default()
        };
        let mut export = APIServiceExport::new(name, spec);
        export.metadata.uid = Some(name.to_owned());
        export
    }

    fn schema(plural: &str, owner: Option<&str>, deleting: bool) -> Arc<BoundSchema> {
        let mut spec = BoundSchemaSpec {
            group: "wildwest.dev".to_owned(),
            ..BoundSchemaSpec::default()
        };
        plural.clone_into(&mut spec.names.plural);
        let mut schema = BoundSchema::new(plural, spec);
        let owner = owner.map(|uid| OwnerReference {
            uid: uid.to_owned(),
            ..OwnerReference::default()
        });
        schema.metadata.owner_references = Some(owner.into_iter().collect());
        schema.metadata.deletion_timestamp = deleting.then_some(Time(Timestamp::UNIX_EPOCH));
        Arc::new(schema)
    }

    #[track_caller]
    fn check(exports: &[APIServiceExport], schemas: &[Arc<BoundSchema>], expect: &[&str]) {
        let namespace = APIServiceNamespace::new("team1", APIServiceNamespaceSpec {});
        let exports: Vec<_> = exports.iter().collect();
        let left = plan(&exports, schemas.to_vec(), vec![Arc::new(namespace)]);
        let names = left.schemas.iter().map(|schema| schema.name_any());
        let names: Vec<_> = names.chain(left.namespaces.iter().map(|one| one.name_any())).collect();
        assert_eq!(names, expect);
    }

    #[test]
    fn what_an_export_left_that_got_no_successor_goes() {
        check(&[], &[], &["team1"]);
        check(&[], &[schema("cowboys", None, false)], &["cowboys", "team1"]);
        check(&[], &[schema("cowboys", Some("gone"), false)], &["cowboys", "team1"]);
        check(&[], &[schema("cowboys", None, true)], &["team1"]);
    }

    #[test]
    fn what_a_successor_lacks_goes_and_what_it_has_stays() {
        let both = [schema("cowboys", None, false), schema("bandits", None, false)];
        check(&[export("riders", &["cowboys", "bandits"])], &both, &[]);
        check(&[export("riders", &["cowboys"])], &both, &["bandits"]);
        // Also of another export, by what it offers or by what it owns.
        check(
            &[export("riders", &["cowboys"]), export("others", &["bandits"])],
            &both,
            &[],
        );
        check(
            &[export("riders", &["cowboys"])],
            &[schema("bandits", Some("riders"), false)],
            &[],
        );
        check(
            &[export("riders", &["cowboys"])],
            &[schema("bandits", Some("gone"), false)],
            &["bandits"],
        );
    }
}
