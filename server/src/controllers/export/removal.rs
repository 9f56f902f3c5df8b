//! Ends an export: removes its rights, releases the objects that are left of it, and deletes all that was made for it.

use std::sync::Arc;

use bindery_api::{
    annotations, names,
    v1alpha2::{APIServiceExport, BindableResourcesRequest, Phase},
};
use bindery_runtime::cache::Cache;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kube::{Api, Client, ResourceExt as _};

use super::{
    Exports,
    deletion::{self, Deletion},
    is_for, is_labelled,
};
use crate::{
    contract::grants,
    controllers::Next,
    leftovers, owner, rbac, request,
    state::State,
    writes::{self, Object, Write, WriteError},
};

/// How many deletions run at a time.
const CONCURRENT: usize = 8;

impl Exports {
    /// Takes the next step towards the end of an export that is being deleted.
    pub(super) async fn delete(&self, export: &APIServiceExport) -> Result<Next, WriteError> {
        let Some(Deletion {
            take_all,
            remove_finalizer,
        }) = deletion::plan(export)
        else {
            return Ok(Next::Change);
        };
        // The cache may not show yet that the cluster was restored, and that the export stays.
        if take_all && !self.is_ending(export).await? {
            return Ok(Next::Change);
        }
        if take_all && let Err(error) = self.take_all(export).await {
            self.explain(export, &error).await?;
            return Err(error);
        }
        remove_finalizer.apply(&self.context.state.clients.write).await?;
        Ok(Next::Change)
    }

    /// Whether the API server shows, too, that this export is being deleted.
    async fn is_ending(&self, export: &APIServiceExport) -> Result<bool, WriteError> {
        let client = self.context.state.clients.write.clone();
        let contract = export.namespace().unwrap_or_default();
        let exports = Api::<APIServiceExport>::namespaced(client, &contract);
        let found = exports.get_metadata_opt(&export.name_any()).await?;
        Ok(found.is_some_and(|found| found.uid() == export.uid() && found.metadata.deletion_timestamp.is_some()))
    }

    /// Removes the export's rights, releases its objects, and deletes all that was made for it, in this order.
    async fn take_all(&self, export: &APIServiceExport) -> Result<(), WriteError> {
        let state = &self.context.state;
        let contract = export.namespace().unwrap_or_default();
        self.take_rights(&contract, &export.name_any()).await?;
        // After the rights: the consumer could still create objects before, which would be missed.
        let leftovers = leftovers::of_export(state, export).await?;
        // By the clock of the API server, as the creation of an export that comes later.
        let deleted = export.metadata.deletion_timestamp.as_ref();
        let at = deleted.map_or_else(Timestamp::now, |deleted| deleted.0);
        leftovers::release(state, &contract, &leftovers, at).await?;
        leftovers::withdraw(state, export).await?;
        self.take_rest(export).await?;
        self.take_grant(export).await
    }

    /// Takes the grant of the export's template from the contract, unless another export was made from it, or is about to be.
    async fn take_grant(&self, export: &APIServiceExport) -> Result<(), WriteError> {
        let state = &self.context.state;
        let Some(template) = export.annotations().get(annotations::TEMPLATE) else {
            return Ok(());
        };
        let Some(contract) = state.contract(&export.namespace().unwrap_or_default()) else {
            return Ok(());
        };
        let exports = state.caches.exports.list_in(&contract.name_any());
        if is_last_of(export, template, &exports) && !self.context.pending_requests.binds(&contract, template) {
            let patch = grants::withdraw(&contract, template);
            let write = patch.map(|patch| Write::patch("its last export goes", &*contract, patch));
            writes::apply_all(&state.clients.write, write).await?;
        }
        Ok(())
    }

    /// Deletes every role and role binding that was made for an export.
    pub(super) async fn take_rights(&self, contract: &str, name: &str) -> Result<(), WriteError> {
        let state = &self.context.state;
        let made = &self.context.made;
        delete_made::<RoleBinding>(state, &made.role_bindings, contract, name).await?;
        delete_made::<Role>(state, &made.roles, contract, name).await?;
        let client = &state.clients.write;
        let cloned = || client.clone();
        let role = names::resources_role(name);
        let unseen = leftovers::unseen_namespaces(state, contract);
        for namespace in unseen.iter().map(String::as_str).chain([contract]) {
            delete_named::<RoleBinding>(client, Api::namespaced(cloned(), namespace), &role, contract, name).await?;
            delete_named::<Role>(client, Api::namespaced(cloned(), namespace), &role, contract, name).await?;
        }
        for role in [
            names::claims_cluster_role(contract, name),
            names::resources_cluster_role(contract, name),
        ] {
            delete_named::<ClusterRoleBinding>(client, Api::all(cloned()), &role, contract, name).await?;
            delete_named::<ClusterRole>(client, Api::all(cloned()), &role, contract, name).await?;
        }
        Ok(())
    }

    /// Deletes the request, the schemas and the namespaces of an export, and the records of the calls that made it. The garbage
    /// collector would delete schemas and namespaces too, but it discovers new kinds only every 30 seconds.
    async fn take_rest(&self, export: &APIServiceExport) -> Result<(), WriteError> {
        const REASON: &str = "its export goes";
        let state = &self.context.state;
        let caches = &state.caches;
        let (contract, name) = (export.namespace().unwrap_or_default(), export.name_any());
        let uid = export.metadata.uid.as_deref();
        let request = caches.export_requests.get(&contract, &name);
        let mut writes: Vec<_> = request
            .iter()
            .map(|request| Write::delete(REASON, &**request))
            .collect();
        writes.extend(sole_owned(&caches.bound_schemas.list_in(&contract), uid));
        writes.extend(sole_owned(&caches.service_namespaces.list_in(&contract), uid));
        let calls = caches
            .requests
            .list(|request| is_record_of(request, &state.settings.namespace, &contract, &name));
        writes.extend(calls.iter().map(|request| Write::delete_seen(REASON, &**request)));
        writes::apply_all(&state.clients.write, writes).await
    }
}

/// Whether no other export of the contract that stays was made from the template.
fn is_last_of(export: &APIServiceExport, template: &str, exports: &[Arc<APIServiceExport>]) -> bool {
    !exports.iter().any(|other| {
        other.uid() != export.uid()
            && other.metadata.deletion_timestamp.is_none()
            && other.annotations().get(annotations::TEMPLATE).map(String::as_str) == Some(template)
    })
}

/// The deletions of objects that have this owner and no other.
fn sole_owned<K: Object>(objects: &[Arc<K>], owner: Option<&str>) -> impl Iterator<Item = Write> {
    let objects = objects.iter().filter(move |object| owner::is_alone(&***object, owner));
    objects.map(|object| Write::delete_seen("its only export goes", &**object))
}

/// Deletes the namespaced objects that a cache shows to be made for an export.
async fn delete_made<K>(state: &State, cache: &Cache<K>, contract: &str, export: &str) -> Result<(), WriteError>
where
    K: Object + Send + Sync + 'static,
{
    let label = rbac::export_label(export);
    let made = cache.list(|object| is_labelled(object, contract, &label)).into_iter();
    let deletions = made.map(|object| async move {
        let write = Write::delete("its export goes", &*object);
        write.apply(&state.clients.write).await.map(drop)
    });
    stream::iter(deletions).buffer_unordered(CONCURRENT).try_collect().await
}

/// Deletes the object of that name, if it was made for an export. Asks the API server, since the caches may not show yet what
/// was created a moment ago.
async fn delete_named<K>(
    client: &Client,
    api: Api<K>,
    name: &str,
    contract: &str,
    export: &str,
) -> Result<(), WriteError>
where
    K: Object,
{
    match api.get_opt(name).await? {
        Some(found) if is_for(&found, contract, export) => {
            Write::delete("its export goes", &found).apply(client).await.map(drop)
        }
        _ => Ok(()),
    }
}

/// Whether a request records the call that made an export. A pending one does not count: it is about to make the export anew.
fn is_record_of(request: &BindableResourcesRequest, home: &str, contract: &str, export: &str) -> bool {
    request
        .status
        .as_ref()
        .is_some_and(|status| status.phase != Phase::Pending && status.namespace.as_deref() == Some(contract))
        && request.is_grpc(home)
        && request::request_name(request) == export
}

#[cfg(test)]
mod tests {
    use bindery_api::v1alpha2::APIServiceExportSpec;
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    #[test]
    fn a_grant_stays_while_another_export_of_the_template_does() {
        let export = |uid: &str, template: &str, ends: bool| {
            let mut export = APIServiceExport::new(uid, APIServiceExportSpec::default());
            export.metadata.uid = Some(uid.to_owned());
            export.metadata.deletion_timestamp = ends.then_some(Time(Timestamp::UNIX_EPOCH));
            let entry = (annotations::TEMPLATE.to_owned(), template.to_owned());
            export.annotations_mut().extend([entry]);
            Arc::new(export)
        };
        let ending = export("1", "cowboys", true);
        let last = |others: &[Arc<APIServiceExport>]| is_last_of(&ending, "cowboys", others);
        assert!(last(&[Arc::clone(&ending)]));
        assert!(last(&[export("2", "sheriffs", false), export("3", "cowboys", true)]));
        assert!(!last(&[export("4", "cowboys", false)]));
    }
}
