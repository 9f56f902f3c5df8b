//! The cluster that is bound: what is read from it and written to it.

mod again;
mod bundles;
mod definitions;
mod objects;

use again::again;
use bindery_api::{
    annotations, labels, names,
    v1alpha2::{APIServiceBinding, ClusterSecretKeyRef, GroupResource, PermissionClaim},
};
use bindery_runtime::{
    client::{self, Clients},
    errors,
    preconditions::same_uid,
};
use bindery_synk::Synk;
use k8s_openapi::{
    api::{
        core::v1::{Namespace, Secret},
        rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{
    Api, Client, Resource, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

pub(crate) use bundles::bundle_of;
pub(crate) use objects::PAGE;

use crate::{
    errors::Failure,
    kubeconfig::Credential,
    manifests::FIELD_MANAGER,
    plan::{Installed, InstalledApi, Object, Op},
    settings::Settings,
};

/// Idle connections that are kept: this command asks little at a time.
const IDLE_MAX: usize = 4;

/// Clients of the consumer cluster.
pub(crate) struct Consumer {
    clients: Clients,
    /// The namespace of the kubeconfig's context.
    pub(crate) namespace: String,
}

impl Consumer {
    pub(crate) async fn connect(settings: &Settings) -> Result<Self, Failure> {
        let cluster = &settings.cluster;
        let config = client::config(cluster.kubeconfig.as_deref(), cluster.context.as_deref()).await?;
        Ok(Self {
            clients: Clients::new(&config, IDLE_MAX)?,
            namespace: config.default_namespace.clone(),
        })
    }

    /// What applies sets of manifests to this cluster.
    pub(crate) fn synk(&self) -> Synk {
        Synk::new(self.clients.clone())
    }

    /// The client for watches.
    pub(crate) fn watch(&self) -> Client {
        self.clients.watch.clone()
    }

    /// By which identity a provider knows this cluster.
    pub(crate) async fn identity(&self) -> Result<String, Failure> {
        let namespaces = Api::<Namespace>::all(self.client());
        let namespace = again(async || namespaces.get("kube-system").await).await;
        let namespace = namespace.map_err(Failure::cluster(
            "read Namespace kube-system, whose UID is the identity of this cluster (or give --cluster-identity)",
        ))?;
        Ok(namespace.uid().unwrap_or_default())
    }

    /// All bindings of this cluster.
    pub(crate) async fn bindings(&self) -> Result<Vec<APIServiceBinding>, Failure> {
        let bindings = Api::<APIServiceBinding>::all(self.client());
        let bindings = again(async || bindings.list(&ListParams::default()).await).await;
        Ok(bindings.map_err(no_konnector("list APIServiceBindings"))?.items)
    }

    /// One binding.
    pub(crate) async fn binding(&self, name: &str) -> Result<APIServiceBinding, Failure> {
        let found = self.find_binding(name).await?;
        found.ok_or_else(|| Failure::NoBinding(name.to_owned()))
    }

    /// One binding, or none.
    pub(crate) async fn find_binding(&self, name: &str) -> Result<Option<APIServiceBinding>, Failure> {
        // Of an unknown name the API server answers the same as of an unknown kind, so it is looked up in the list.
        let fields = ListParams::default().fields(&format!("metadata.name={name}"));
        let bindings = Api::<APIServiceBinding>::all(self.client());
        let bindings = again(async || bindings.list(&fields).await).await;
        let bindings = bindings.map_err(no_konnector(&format!("read APIServiceBinding {name}")))?;
        Ok(bindings.items.into_iter().next())
    }

    /// What stands there of that which a bind of this name installs.
    pub(crate) async fn installed(
        &self,
        binding: Option<APIServiceBinding>,
        name: &str,
        secret: &ClusterSecretKeyRef,
    ) -> Result<Installed, Failure> {
        let role = names::konnector_cluster_role(name);
        let (namespace, secret_object, cluster_role, cluster_role_binding) = tokio::try_join!(
            self.find::<Namespace>(Api::all(self.client()), &secret.namespace),
            self.secret(secret),
            self.find::<ClusterRole>(Api::all(self.client()), &role),
            self.find::<ClusterRoleBinding>(Api::all(self.client()), &role),
        )?;
        Ok(Installed {
            namespace: namespace.is_some(),
            credential: secret_object
                .as_ref()
                .and_then(|object| credential(object, &secret.key)),
            secret: secret_object,
            cluster_role,
            cluster_role_binding,
            binding,
        })
    }

    /// The Secret that a binding names.
    pub(crate) async fn secret(&self, reference: &ClusterSecretKeyRef) -> Result<Option<Secret>, Failure> {
        let secrets = Api::namespaced(self.client(), &reference.namespace);
        self.find::<Secret>(secrets, &reference.name).await
    }

    /// Secrets with kubeconfigs that the konnector renewed for a contract.
    pub(crate) async fn renewed(&self, namespace: &str, contract_uid: &str) -> Result<Vec<Secret>, Failure> {
        let params = ListParams::default().labels(&format!("{}={contract_uid}", labels::CONTRACT_UID));
        let secrets = Api::<Secret>::namespaced(self.client(), namespace);
        let secrets = again(async || secrets.list(&params).await).await;
        Ok(secrets
            .map_err(Failure::cluster(format!("list Secrets in namespace {namespace}")))?
            .items)
    }

    /// The ClusterRole of a binding.
    pub(crate) async fn role(&self, binding: &str) -> Result<Option<ClusterRole>, Failure> {
        self.find(Api::all(self.client()), &names::konnector_cluster_role(binding))
            .await
    }

    /// Replaces the rules of a role, if nobody has changed it meanwhile.
    pub(crate) async fn set_rules(&self, role: &ClusterRole, rules: &[PolicyRule]) -> Result<(), Failure> {
        let patch =
            json!({ "metadata": { "uid": role.uid(), "resourceVersion": role.resource_version() }, "rules": rules });
        let name = role.name_any();
        self.merge(
            &Api::<ClusterRole>::all(self.client()),
            &name,
            &patch,
            format!("change ClusterRole {name}"),
        )
        .await
    }

    /// Says on a binding which claims are rejected, and which were accepted, if nobody has changed it meanwhile. What is left
    /// out stays as it is.
    pub(crate) async fn answer_claims(
        &self,
        binding: &APIServiceBinding,
        rejected: Option<&[GroupResource]>,
        accepted: Option<&[PermissionClaim]>,
    ) -> Result<(), Failure> {
        let name = binding.name_any();
        let mut patch = json!({
            "metadata": { "uid": binding.uid(), "resourceVersion": binding.resource_version() },
        });
        if let Some(rejected) = rejected {
            patch["spec"] = json!({ "rejectedPermissionClaims": rejected });
        }
        if let Some(accepted) = accepted {
            let record = json!(accepted).to_string();
            patch["metadata"]["annotations"] = json!({ annotations::ACCEPTED_CLAIMS: record });
        }
        self.merge(
            &Api::<APIServiceBinding>::all(self.client()),
            &name,
            &patch,
            format!("change APIServiceBinding {name}"),
        )
        .await
    }

    /// Which of these APIs this cluster has already.
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
                binding: owner(definition.owner_references()),
                offered: definition.annotations().get(annotations::ADOPT_BY).cloned(),
            }));
        }
        Ok(found)
    }

    /// Makes one write.
    pub(crate) async fn apply(&self, op: &Op) -> Result<(), Failure> {
        let verb = if op.exists { "change" } else { "create" };
        let doing = format!("{verb} {}", op.object);
        match &op.object {
            Object::Namespace(object) => self.patch(&Api::all(self.client()), object, op.exists, doing).await,
            Object::ClusterRole(object) => self.patch(&Api::all(self.client()), object, op.exists, doing).await,
            Object::ClusterRoleBinding(object) => {
                let tied = self.tied_to_role(object).await?;
                self.patch(&Api::all(self.client()), &tied, op.exists, doing).await
            }
            Object::Binding(object) => {
                self.patch(&Api::all(self.client()), object.as_ref(), op.exists, doing)
                    .await
            }
            Object::Bundle(object) => {
                self.patch(&Api::all(self.client()), object.as_ref(), op.exists, doing)
                    .await
            }
            Object::Record(object) => {
                let record = object.annotations().get(annotations::ACCEPTED_CLAIMS);
                let record = record.map_or("[]", String::as_str);
                self.annotate(object, annotations::ACCEPTED_CLAIMS, record).await
            }
            Object::Secret(object) => {
                let namespace = object.namespace().unwrap_or_default();
                self.patch(&Api::namespaced(self.client(), &namespace), object, op.exists, doing)
                    .await
            }
        }
    }

    /// The binding with its role as owner. The pair gives the konnector the right to delete the pair, and the first of two
    /// deletions takes that right away: the garbage collector does the second for certain.
    async fn tied_to_role(&self, binding: &ClusterRoleBinding) -> Result<ClusterRoleBinding, Failure> {
        let role = self
            .find::<ClusterRole>(Api::all(self.client()), &binding.role_ref.name)
            .await?;
        let mut tied = binding.clone();
        tied.metadata.owner_references = role.and_then(|role| role.owner_ref(&())).map(|owner| vec![owner]);
        Ok(tied)
    }

    /// Puts a kubeconfig into the Secret of a binding, whoever made that.
    pub(crate) async fn replace_kubeconfig(&self, secret: &Secret, name: &str) -> Result<(), Failure> {
        let api = Api::<Secret>::namespaced(self.client(), &secret.namespace().unwrap_or_default());
        self.patch(&api, secret, true, format!("write {name}")).await
    }

    /// Lets the Secret of a binding go with it. Whoever reads the Secret does so as long as the binding is there.
    pub(crate) async fn tie(&self, secret: &Secret, binding: &APIServiceBinding) -> Result<(), Failure> {
        let Some(owner) = binding.owner_ref(&()) else {
            return Ok(());
        };
        let mut owners = secret.owner_references().to_vec();
        if owners.iter().any(|other| other.uid == owner.uid) {
            return Ok(());
        }
        owners.push(OwnerReference {
            block_owner_deletion: None,
            controller: None,
            ..owner
        });
        let patch = json!({ "metadata": {
            "uid": secret.uid(), "resourceVersion": secret.resource_version(), "ownerReferences": owners,
        } });
        let api = Api::<Secret>::namespaced(self.client(), &secret.namespace().unwrap_or_default());
        self.merge(
            &api,
            &secret.name_any(),
            &patch,
            format!("change Secret {}", secret.name_any()),
        )
        .await
    }

    /// Sets an annotation of a binding.
    pub(crate) async fn annotate(&self, binding: &APIServiceBinding, key: &str, value: &str) -> Result<(), Failure> {
        let patch = json!({ "metadata": { "uid": binding.uid(), "annotations": { key: value } } });
        let api = Api::<APIServiceBinding>::all(self.client());
        let name = binding.name_any();
        self.merge(&api, &name, &patch, format!("annotate APIServiceBinding {name}"))
            .await
    }

    /// Deletes an object if it is still this one.
    pub(crate) async fn delete<K>(&self, api: Api<K>, object: &K) -> Result<(), Failure>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
    {
        let params = DeleteParams {
            preconditions: object.uid().map(same_uid),
            ..DeleteParams::background()
        };
        let name = object.name_any();
        match again(async || api.delete(&name, &params).await).await {
            Ok(_) => Ok(()),
            Err(error) if errors::is_not_found(&error) || errors::is_conflict(&error) => Ok(()),
            Err(error) => Err(Failure::cluster(format!("delete {} {name}", K::kind(&())))(error)),
        }
    }

    /// One object, or none.
    pub(crate) async fn find<K>(&self, api: Api<K>, name: &str) -> Result<Option<K>, Failure>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
    {
        let found = again(async || api.get_opt(name).await).await;
        found.map_err(Failure::cluster(format!("read {} {name}", K::kind(&()))))
    }

    /// The client for reads and writes.
    pub(crate) fn client(&self) -> Client {
        self.clients.write.clone()
    }

    /// Changes fields of an object.
    pub(crate) async fn merge<K>(&self, api: &Api<K>, name: &str, patch: &Value, doing: String) -> Result<(), Failure>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
    {
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let patched = again(async || api.patch(name, &params, &Patch::Merge(patch)).await).await;
        patched.map_err(Failure::cluster(doing))?;
        Ok(())
    }

    async fn patch<K>(&self, api: &Api<K>, object: &K, force: bool, doing: String) -> Result<(), Failure>
    where
        K: Resource<DynamicType = ()> + Clone + Serialize + DeserializeOwned + std::fmt::Debug,
    {
        let params = PatchParams {
            force,
            ..PatchParams::apply(FIELD_MANAGER)
        };
        let name = object.name_any();
        let patched = again(async || api.patch(&name, &params, &Patch::Apply(object)).await).await;
        patched.map_err(Failure::cluster(doing))?;
        Ok(())
    }
}

/// The kubeconfig in a Secret, if it is a good one.
pub(crate) fn credential(secret: &Secret, key: &str) -> Option<Credential> {
    Credential::parse(&secret.data.as_ref()?.get(key)?.0).ok()
}

/// The binding that owns an object.
fn owner(owners: &[OwnerReference]) -> Option<String> {
    let kind = APIServiceBinding::kind(&());
    let group = format!("{}/", bindery_api::v1alpha2::GROUP);
    let owner = owners
        .iter()
        .find(|owner| owner.kind == kind && owner.api_version.starts_with(&group) && owner.controller == Some(true));
    owner.map(|owner| owner.name.clone())
}

/// Of a kind that is not served, a list is answered with 404.
fn no_konnector(doing: &str) -> impl FnOnce(kube::Error) -> Failure {
    move |error| {
        if errors::is_not_found(&error) {
            return Failure::NoKonnector;
        }
        Failure::cluster(doing)(error)
    }
}
