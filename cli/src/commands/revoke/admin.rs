//! Revokes on the provider's cluster, as the server does: the record first, then the anchors and the RoleBinding. The server
//! mints no token after the record, and finishes what is left if this command is interrupted.

use bindery_api::{
    labels, meta, names,
    revocation::{Revocation, revocation},
    v1alpha2::{APIServiceExport, BindableResourcesRequest, ClusterBinding},
};
use bindery_runtime::{
    client::{self, Clients},
    errors,
    preconditions::same_uid,
};
use jiff::Timestamp;
use k8s_openapi::api::{
    core::v1::{Namespace, Secret},
    rbac::v1::RoleBinding,
};
use kube::{
    Api, Client, Resource, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{args::KubeContext, errors::Failure, install::manifests::FIELD_MANAGER, render::steps::Steps};

/// A contract on the provider's cluster.
pub(in crate::commands) struct Contract {
    client: Client,
    namespace: Namespace,
    name: String,
}

impl Contract {
    /// Reads the contract. Fails if there is no such contract, or if its namespace has another UID than `uid`, which this cluster
    /// knows: it is a namespace of the same name then, on another provider or made anew.
    pub(in crate::commands) async fn open(
        cluster: KubeContext<'_>,
        name: &str,
        uid: Option<&str>,
    ) -> Result<Self, Failure> {
        let config = client::config(cluster.kubeconfig, cluster.context).await?;
        let client = Clients::new(&config, 2)?.write;
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let found = namespaces.get_opt(name).await;
        let found = found.map_err(Failure::cluster(format!("read Namespace {name} of the provider")))?;
        let contract = found.filter(|namespace| meta::is_contract(&namespace.metadata));
        let namespace = contract.ok_or_else(|| Failure::NoContract(name.to_owned()))?;
        is_meant(&namespace, uid)?;
        Ok(Self {
            client,
            namespace,
            name: name.to_owned(),
        })
    }

    /// Namespace of the contract, as it was read last.
    pub(in crate::commands) fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Changes the namespace of the contract, if it has not changed since it was read.
    pub(in crate::commands) async fn change(&mut self, patch: &Value) -> Result<(), Failure> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let changed = namespaces.patch(&self.name, &params, &Patch::Merge(patch)).await;
        let doing = format!("change Namespace {} of the provider", self.name);
        self.namespace = changed.map_err(Failure::cluster(doing))?;
        Ok(())
    }

    /// The exports of the contract, in words.
    pub(in crate::commands) async fn exports(&self) -> Result<Vec<String>, Failure> {
        let exports: Vec<APIServiceExport> = self.list("").await?;
        let named = exports
            .iter()
            .map(|export| format!("APIServiceExport {}/{}", self.name, export.name_any()));
        Ok(named.collect())
    }

    /// Secrets that the tokens of the contract are bound to.
    pub(in crate::commands) async fn anchors(&self) -> Result<Vec<Secret>, Failure> {
        let mut anchors: Vec<Secret> = self
            .list(&format!("{}={}", labels::COMPONENT, labels::TOKEN_ANCHOR))
            .await?;
        anchors.retain(|anchor| meta::is_anchor(&anchor.metadata));
        Ok(anchors)
    }

    /// Revokes all credentials. Returns since when they are revoked, which is earlier if they were, and how many anchors were
    /// deleted now.
    pub(in crate::commands) async fn revoke(
        &self,
        server_namespace: &str,
        reason: Option<&str>,
        steps: &mut Steps,
    ) -> Result<(Timestamp, usize), Failure> {
        let bindings: Api<ClusterBinding> = Api::namespaced(self.client.clone(), &self.name);
        let named = format!("ClusterBinding {}/{}", self.name, names::CLUSTER_BINDING);
        let binding = bindings.get(names::CLUSTER_BINDING).await;
        let binding = binding.map_err(Failure::cluster(format!("read {named}")))?;
        if let Some(before) = revocation(&binding) {
            steps.note(&format!("they are revoked since {} already", before.time));
        } else {
            let revocation = self.record(server_namespace, reason).await?;
            let params = PatchParams {
                field_manager: Some(FIELD_MANAGER.to_owned()),
                ..PatchParams::default()
            };
            let patch = Patch::Merge(revocation.patch(&binding));
            let written = bindings.patch(names::CLUSTER_BINDING, &params, &patch).await;
            written.map_err(Failure::cluster(format!("record the revocation on {named}")))?;
            steps.done(&format!("recorded the revocation on {named}"));
        }
        // Listed after the record: no token is minted for another anchor from then on.
        let anchors = self.anchors().await?;
        let grants: Api<RoleBinding> = Api::namespaced(self.client.clone(), &self.name);
        let grant = grants.get_opt(names::KUBE_BINDER).await;
        let grant = grant.map_err(Failure::cluster(format!(
            "read RoleBinding {}/{}",
            self.name,
            names::KUBE_BINDER
        )))?;
        // Read after anchors and grant, which are therefore older than the revocation. Without one, an owner has bound again.
        let binding = bindings.get(names::CLUSTER_BINDING).await;
        let binding = binding.map_err(Failure::cluster(format!("read {named}")))?;
        let current = revocation(&binding).ok_or_else(|| Failure::Reinstated(self.name.clone()))?;
        for anchor in &anchors {
            self.delete(anchor).await?;
        }
        if let Some(grant) = grant {
            self.delete(&grant).await?;
        }
        Ok((current.time, anchors.len()))
    }

    async fn record(&self, server_namespace: &str, reason: Option<&str>) -> Result<Revocation, Failure> {
        let requests: Api<BindableResourcesRequest> = Api::all(self.client.clone());
        let requests = requests.list(&ListParams::default()).await;
        let requests = requests.map_err(Failure::cluster("list BindableResourcesRequests of the provider"))?;
        let now = Timestamp::now();
        Ok(Revocation::new(
            format!("{:016x}", rand::random::<u64>()),
            Timestamp::from_second(now.as_second()).unwrap_or(now),
            reason,
            meta::identity(&self.namespace.metadata),
            &requests.items,
            server_namespace,
        ))
    }

    async fn list<K>(&self, selector: &str) -> Result<Vec<K>, Failure>
    where
        K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
            + Clone
            + DeserializeOwned
            + std::fmt::Debug,
    {
        let api: Api<K> = Api::namespaced(self.client.clone(), &self.name);
        let listed = api.list(&ListParams::default().labels(selector)).await;
        let doing = format!("list {} in namespace {} of the provider", K::plural(&()), self.name);
        Ok(listed.map_err(Failure::cluster(doing))?.items)
    }

    async fn delete<K>(&self, object: &K) -> Result<(), Failure>
    where
        K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
            + Clone
            + DeserializeOwned
            + std::fmt::Debug,
    {
        let api: Api<K> = Api::namespaced(self.client.clone(), &self.name);
        let params = DeleteParams {
            preconditions: object.uid().map(same_uid),
            ..DeleteParams::default()
        };
        let name = object.name_any();
        match api.delete(&name, &params).await {
            Ok(_) => Ok(()),
            // The server deletes them too, as soon as it sees the record.
            Err(error) if errors::is_not_found(&error) || errors::is_conflict(&error) => Ok(()),
            Err(error) => {
                let doing = format!("delete {} {}/{name} of the provider", K::kind(&()), self.name);
                Err(Failure::cluster(doing)(error))
            }
        }
    }
}

/// Fails if a contract namespace is not the one that this cluster is bound to.
fn is_meant(namespace: &Namespace, uid: Option<&str>) -> Result<(), Failure> {
    let found = namespace.metadata.uid.as_deref();
    match uid {
        Some(meant) if found != Some(meant) => Err(Failure::OtherContract(namespace.name_any())),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_of_the_same_name_is_another_contract() {
        let mut namespace = Namespace::default();
        namespace.metadata.name = Some("kube-bind-x".to_owned());
        namespace.metadata.uid = Some("1".to_owned());
        assert!(is_meant(&namespace, Some("1")).is_ok());
        assert!(is_meant(&namespace, None).is_ok());
        let error = is_meant(&namespace, Some("2")).unwrap_err().shown();
        assert!(
            error.contains("kube-bind-x") && error.contains("--provider-context"),
            "{error}"
        );
    }
}
