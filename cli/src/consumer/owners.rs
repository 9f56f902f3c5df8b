//! Bindings and bundles of the consumer cluster, and what was installed for them.

use std::collections::BTreeSet;

use bindery_api::{
    annotations, names,
    v1alpha2::{APIServiceBinding, APIServiceBindingBundle, ClusterSecretKeyRef, GroupResource},
};
use bindery_runtime::errors;
use k8s_openapi::{
    api::{
        core::v1::Namespace,
        rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{Api, Resource, ResourceExt as _, api::ListParams, core::NamespaceResourceScope};
use serde::de::DeserializeOwned;

use super::{Consumer, again};
use crate::{
    errors::Failure,
    install::{
        manifests::ClaimRights,
        owner::{CredentialOwner, bundle_of, controller},
        plan::{Installed, InstalledApi},
    },
    konnector::{self, BUNDLES_ROLE},
    provider::kubeconfig::Credential,
    text::joined,
};

impl Consumer {
    /// All bindings of this cluster; fails where it does not serve bindings.
    pub(crate) async fn bindings(&self) -> Result<Vec<APIServiceBinding>, Failure> {
        self.list_served(None).await?.ok_or(Failure::NoKonnector)
    }

    /// All bundles of this cluster; empty where it does not serve bundles.
    pub(crate) async fn bundles(&self) -> Result<Vec<APIServiceBindingBundle>, Failure> {
        Ok(self.list_served(None).await?.unwrap_or_default())
    }

    /// Reads the binding of this name; fails if it does not exist.
    pub(crate) async fn binding(&self, name: &str) -> Result<APIServiceBinding, Failure> {
        let found = self.find_binding(name).await?;
        found.ok_or_else(|| Failure::NoBinding(name.to_owned()))
    }

    /// Reads the binding of this name; none if it does not exist.
    pub(crate) async fn find_binding(&self, name: &str) -> Result<Option<APIServiceBinding>, Failure> {
        let found = self.list_served(Some(name)).await?.ok_or(Failure::NoKonnector)?;
        Ok(found.into_iter().next())
    }

    /// Reads the bundle of this name; none if it does not exist.
    pub(crate) async fn find_bundle(&self, name: &str) -> Result<Option<APIServiceBindingBundle>, Failure> {
        let found = self.list_served(Some(name)).await?.unwrap_or_default();
        Ok(found.into_iter().next())
    }

    /// Reads the binding of this name, or else the bundle. With `is_bundle`, a binding of this name does not count.
    pub(crate) async fn owner(&self, name: &str, is_bundle: bool) -> Result<CredentialOwner, Failure> {
        if !is_bundle && let Some(binding) = self.find_binding(name).await? {
            return Ok(binding.into());
        }
        let bundle = self.find_bundle(name).await?;
        let missing = || Failure::NeitherBindingNorBundle(name.to_owned());
        bundle.map(CredentialOwner::from).ok_or_else(missing)
    }

    /// All objects of a kind, or the one of this name; none where the kind is not served. One object is read by a list too:
    /// to a GET, the API server answers 404 both for an unknown name and for an unknown kind.
    async fn list_served<K>(&self, name: Option<&str>) -> Result<Option<Vec<K>>, Failure>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
    {
        let kind = K::kind(&());
        let (params, doing) = match name {
            None => (ListParams::default(), format!("list {kind}s")),
            Some(name) => {
                let params = ListParams::default().fields(&format!("metadata.name={name}"));
                (params, format!("read {kind} {name}"))
            }
        };
        let api = Api::<K>::all(self.client());
        match again(async || api.list(&params).await).await {
            Ok(found) => Ok(Some(found.items)),
            Err(error) if errors::is_not_found(&error) => Ok(None),
            Err(error) => Err(Failure::cluster(doing)(error)),
        }
    }

    /// Lists the ClusterRoleBindings of all konnectors of the cluster.
    pub(crate) async fn konnector_grants(&self) -> Result<Vec<ClusterRoleBinding>, Failure> {
        let grants = Api::<ClusterRoleBinding>::all(self.client());
        let params = ListParams::default().labels(konnector::SELECTOR);
        let listed = again(async || grants.list(&params).await).await;
        let listed = listed.map_err(Failure::cluster("list the ClusterRoleBindings of konnectors"))?;
        Ok(listed.items)
    }

    /// What is installed for an owner: the Secret, and for the binding of this name its namespace and its role.
    pub(crate) async fn installed(
        &self,
        owner: Option<CredentialOwner>,
        binding: Option<&str>,
        secret: &ClusterSecretKeyRef,
    ) -> Result<Installed, Failure> {
        let found = self.secret(secret).await?;
        let mut installed = Installed {
            owner,
            credential: found
                .as_ref()
                .and_then(|found| Credential::of_secret(found, &secret.key)?.ok()),
            secret: found,
            ..Installed::default()
        };
        if let Some(binding) = binding {
            let role = names::konnector_cluster_role(binding);
            let namespace = self.find::<Namespace>(Api::all(self.client()), &secret.namespace);
            let (namespace, cluster_role, cluster_role_binding, roles, role_bindings) = tokio::try_join!(
                namespace,
                self.find::<ClusterRole>(Api::all(self.client()), &role),
                self.find::<ClusterRoleBinding>(Api::all(self.client()), &role),
                self.named::<Role>(&role),
                self.named::<RoleBinding>(&role),
            )?;
            installed = Installed {
                has_namespace: namespace.is_some(),
                cluster_role,
                cluster_role_binding,
                roles,
                role_bindings,
                ..installed
            };
        }
        Ok(installed)
    }

    /// Lists the objects of a kind that have this name, in all namespaces; none if the user may not list them, who then has made none.
    async fn named<K>(&self, name: &str) -> Result<Vec<K>, Failure>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + std::fmt::Debug,
    {
        let api = Api::<K>::all(self.client());
        let params = ListParams::default().fields(&format!("metadata.name={name}"));
        let listed = again(async || api.list(&params).await).await;
        match listed {
            Ok(listed) => Ok(listed.items),
            Err(error) if errors::is_forbidden(&error) => Ok(Vec::new()),
            Err(error) => Err(Failure::cluster(format!("list {}s of all namespaces", K::kind(&())))(
                error,
            )),
        }
    }

    /// The Roles that were made for the binding of this name, in all namespaces.
    pub(crate) async fn roles(&self, binding: &str) -> Result<Vec<Role>, Failure> {
        self.named(&names::konnector_cluster_role(binding)).await
    }

    /// Where the konnector needs rights on claimed objects for a binding that lists these namespaces, which have to exist: there, and where
    /// the installed binding may have copies still.
    pub(crate) async fn claim_rights(
        &self,
        listed: &[String],
        seen: Option<&APIServiceBinding>,
    ) -> Result<ClaimRights, Failure> {
        if listed.is_empty() {
            return Ok(ClaimRights::default());
        }
        let listed: BTreeSet<_> = listed.iter().cloned().collect();
        let missing = self.missing_namespaces(&listed).await?;
        if !missing.is_empty() {
            return Err(Failure::Usage(format!(
                "namespace {} does not exist, and the konnector gets its rights on claimed objects in the namespaces that --claim-namespace \
                 or spec.claimNamespaces lists; create it, or leave it out; nothing was bound",
                joined(&missing)
            )));
        }
        let status = seen.and_then(|seen| seen.status.as_ref());
        let is_any = status.is_some_and(|status| !status.permission_claims.is_empty());
        let recorded = status.iter().flat_map(|status| status.claim_namespaces.iter().cloned());
        let recorded: BTreeSet<_> = recorded.collect();
        let gone = self.missing_namespaces(&recorded).await?;
        let all = listed.into_iter().chain(recorded.iter().cloned());
        Ok(ClaimRights {
            in_cluster: is_any && recorded.is_empty(),
            namespaces: all.filter(|name| !gone.contains(name)).collect(),
        })
    }

    /// The namespaces of these that do not exist.
    async fn missing_namespaces(&self, namespaces: &BTreeSet<String>) -> Result<Vec<String>, Failure> {
        let mut missing = Vec::new();
        for name in namespaces {
            if self.find::<Namespace>(Api::all(self.client()), name).await?.is_none() {
                missing.push(name.clone());
            }
        }
        Ok(missing)
    }

    /// The role that was made for the binding of this name.
    pub(crate) async fn role(&self, binding: &str) -> Result<Option<ClusterRole>, Failure> {
        self.find(Api::all(self.client()), &names::konnector_cluster_role(binding))
            .await
    }

    /// The rules that give the konnector rights on what the binding binds and claims: of its own roles, or of the role of all bundles.
    /// Those of Roles count where claims are limited to namespaces.
    pub(crate) async fn rules_for(&self, binding: &APIServiceBinding) -> Result<Vec<PolicyRule>, Failure> {
        let role = match bundle_of(binding) {
            None => self.role(&binding.name_any()).await?,
            Some(_) => self.find(Api::all(self.client()), BUNDLES_ROLE).await?,
        };
        let mut rules = role.and_then(|role| role.rules).unwrap_or_default();
        if bundle_of(binding).is_none() && !binding.spec.claim_namespaces.is_empty() {
            let limited = self.roles(&binding.name_any()).await?;
            rules.extend(limited.into_iter().flat_map(|role| role.rules.unwrap_or_default()));
        }
        Ok(rules)
    }

    /// The CustomResourceDefinitions that this cluster has already of these resources.
    pub(crate) async fn apis(
        &self,
        resources: impl IntoIterator<Item = &GroupResource>,
    ) -> Result<Vec<InstalledApi>, Failure> {
        let mut found = Vec::new();
        for resource in resources {
            let name = names::custom_resource_definition(&resource.resource, &resource.group);
            let definition = self
                .find::<CustomResourceDefinition>(Api::all(self.client()), &name)
                .await?;
            found.extend(definition.map(|definition| InstalledApi {
                resource: resource.clone(),
                binding: controller::<APIServiceBinding>(&definition.metadata).map(|(name, _)| name.to_owned()),
                offered: definition.annotations().get(annotations::ADOPT_BY).cloned(),
            }));
        }
        Ok(found)
    }
}
