//! Writes to the consumer cluster.

use bindery_api::{
    annotations,
    meta::owner_reference,
    v1alpha2::{APIServiceBinding, DeletionPolicy, GroupResource, PermissionClaim},
};
use bindery_runtime::preconditions::unchanged;
use k8s_openapi::{
    api::{
        core::v1::Secret,
        rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding},
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::{
    Api, Resource, ResourceExt as _,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{Consumer, again};
use crate::{
    errors::Failure,
    install::{
        manifests::{FIELD_MANAGER, is_ours},
        write::{Write, WriteKind},
    },
    render::steps::Steps,
};

impl Consumer {
    /// Sends one planned write.
    pub(crate) async fn write(&self, write: &Write) -> Result<(), Failure> {
        let (name, namespace) = write.key();
        let api: Api<DynamicObject> = self.objects(&write.resource, namespace.unwrap_or_default());
        let verb = match write.kind {
            WriteKind::Create => "create",
            WriteKind::Change => "change",
            WriteKind::RecordClaims => "annotate",
        };
        let mut manifest = write.manifest.clone();
        if write.kind == WriteKind::RecordClaims {
            let metadata = &manifest["metadata"];
            let record = &metadata["annotations"][annotations::ACCEPTED_CLAIMS];
            let patch = json!({ "metadata": {
                "uid": metadata["uid"], "annotations": { annotations::ACCEPTED_CLAIMS: record },
            } });
            return self.merge(&api, name, &patch, format!("{verb} {write}")).await;
        }
        if ["ClusterRoleBinding", "RoleBinding"].contains(&&*write.resource.kind) {
            let role = manifest["roleRef"]["name"].as_str().unwrap_or_default();
            manifest["metadata"]["ownerReferences"] = json!(self.owner_by_role(role, namespace).await?);
        }
        let force = write.kind == WriteKind::Change;
        self.apply(&api, name, &manifest, force, format!("{verb} {write}"))
            .await
    }

    /// The owner reference of a ClusterRoleBinding or, in a namespace, a RoleBinding to its role. The pair gives the konnector the right to
    /// delete the pair, and the first of the two deletions takes that right away, so the garbage collector has to make the second one.
    async fn owner_by_role(&self, role: &str, namespace: Option<&str>) -> Result<Vec<OwnerReference>, Failure> {
        let owner = match namespace {
            None => {
                let role: Option<ClusterRole> = self.find(Api::all(self.client()), role).await?;
                role.as_ref().map(owner_reference)
            }
            Some(namespace) => {
                let role: Option<Role> = self.find(Api::namespaced(self.client(), namespace), role).await?;
                role.as_ref().map(owner_reference)
            }
        };
        Ok(owner.into_iter().collect())
    }

    /// Deletes a Role that was made for a binding, and its grant.
    pub(crate) async fn delete_role(&self, role: &Role) -> Result<(), Failure> {
        let (name, namespace) = (role.name_any(), role.namespace().unwrap_or_default());
        let grants = Api::<RoleBinding>::namespaced(self.client(), &namespace);
        let grant = self.find(grants.clone(), &name).await?;
        if let Some(grant) = grant.filter(|grant| is_ours(&grant.metadata)) {
            self.delete(grants, &grant).await?;
        }
        self.delete(Api::namespaced(self.client(), &namespace), role).await
    }

    /// Deletes a Role of a namespace that no claim needs any more, and says so.
    pub(crate) async fn delete_obsolete_role(&self, role: &Role, steps: &mut Steps) -> Result<(), Failure> {
        self.delete_role(role).await?;
        let (namespace, name) = (role.namespace().unwrap_or_default(), role.name_any());
        steps.done(&format!(
            "Role {namespace}/{name} is gone, because no claim needs it any more"
        ));
        Ok(())
    }

    /// Stores a kubeconfig in the Secret, whichever program made the Secret.
    pub(crate) async fn replace_kubeconfig(&self, secret: &Secret, name: &str) -> Result<(), Failure> {
        let api = Api::<Secret>::namespaced(self.client(), &secret.namespace().unwrap_or_default());
        self.apply(&api, &secret.name_any(), secret, true, format!("write {name}"))
            .await
    }

    /// Makes the binding an owner of its Secret, so that the garbage collector deletes the Secret after the binding.
    pub(crate) async fn tie(&self, secret: &Secret, binding: &APIServiceBinding) -> Result<(), Failure> {
        let owner = owner_reference(binding);
        let mut owners = secret.owner_references().to_vec();
        if owners.iter().any(|other| other.uid == owner.uid) {
            return Ok(());
        }
        owners.push(owner);
        let mut patch = json!({ "metadata": unchanged(&secret.metadata) });
        patch["metadata"]["ownerReferences"] = json!(owners);
        self.change(secret, &patch).await
    }

    /// Sets an annotation of the binding.
    pub(crate) async fn annotate(&self, binding: &APIServiceBinding, key: &str, value: &str) -> Result<(), Failure> {
        let patch = json!({ "metadata": { "uid": binding.uid(), "annotations": { key: value } } });
        let api = Api::<APIServiceBinding>::all(self.client());
        let name = binding.name_any();
        self.merge(&api, &name, &patch, format!("annotate APIServiceBinding {name}"))
            .await
    }

    /// Sets what becomes of the provider's objects when the binding is deleted; `None` removes what was set.
    pub(crate) async fn set_deletion_policy(
        &self,
        binding: &APIServiceBinding,
        policy: Option<DeletionPolicy>,
    ) -> Result<(), Failure> {
        let patch = json!({ "metadata": { "uid": binding.uid() }, "spec": { "deletionPolicy": policy } });
        self.change(binding, &patch).await
    }

    /// Replaces the rules of a role; fails if the role has changed since it was read.
    pub(crate) async fn set_rules<K: Resource<DynamicType = ()>>(
        &self,
        role: &K,
        rules: &[PolicyRule],
    ) -> Result<(), Failure> {
        let patch = json!({ "metadata": unchanged(role.meta()), "rules": rules });
        self.change(role, &patch).await
    }

    /// Writes into the binding which claims it rejects and which were accepted; `None` leaves them as they are. Fails if the
    /// binding has changed since it was read.
    pub(crate) async fn answer_claims(
        &self,
        binding: &APIServiceBinding,
        rejected: Option<&[GroupResource]>,
        accepted: Option<&[PermissionClaim]>,
    ) -> Result<(), Failure> {
        let mut patch = json!({ "metadata": unchanged(&binding.metadata) });
        if let Some(rejected) = rejected {
            patch["spec"] = json!({ "rejectedPermissionClaims": rejected });
        }
        if let Some(accepted) = accepted {
            let record = json!(accepted).to_string();
            patch["metadata"]["annotations"] = json!({ annotations::ACCEPTED_CLAIMS: record });
        }
        self.change(binding, &patch).await
    }

    /// Deletes the ClusterRoleBinding and the ClusterRole of this name, each if `is_meant`. Returns the kinds that it deleted.
    pub(crate) async fn delete_rights(
        &self,
        name: &str,
        is_meant: impl Fn(&ObjectMeta) -> bool,
    ) -> Result<Vec<&'static str>, Failure> {
        let mut deleted = Vec::new();
        let grants = Api::<ClusterRoleBinding>::all(self.client());
        if let Some(grant) = self
            .find(grants.clone(), name)
            .await?
            .filter(|grant| is_meant(&grant.metadata))
        {
            self.delete(grants, &grant).await?;
            deleted.push("ClusterRoleBinding");
        }
        let roles = Api::<ClusterRole>::all(self.client());
        if let Some(role) = self
            .find(roles.clone(), name)
            .await?
            .filter(|role| is_meant(&role.metadata))
        {
            self.delete(roles, &role).await?;
            deleted.push("ClusterRole");
        }
        Ok(deleted)
    }

    /// Changes fields of an object, which was read before, by a merge patch.
    async fn change<K: Resource<DynamicType = ()>>(&self, object: &K, patch: &Value) -> Result<(), Failure> {
        let (kind, name) = (K::kind(&()), object.name_any());
        let api = self.objects(&ApiResource::erase::<K>(&()), &object.namespace().unwrap_or_default());
        self.merge(&api, &name, patch, format!("change {kind} {name}")).await
    }

    /// Changes fields of an object by a merge patch. `doing` says in an error what was tried.
    pub(crate) async fn merge<K>(&self, api: &Api<K>, name: &str, patch: &Value, doing: String) -> Result<(), Failure>
    where
        K: Clone + DeserializeOwned + std::fmt::Debug,
    {
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let patched = again(async || api.patch(name, &params, &Patch::Merge(patch)).await).await;
        patched.map_err(Failure::cluster(doing)).map(drop)
    }

    /// Applies an object by server-side apply; with `force`, fields of other managers are taken over.
    async fn apply<K>(
        &self,
        api: &Api<K>,
        name: &str,
        object: &(impl Serialize + std::fmt::Debug),
        force: bool,
        doing: String,
    ) -> Result<(), Failure>
    where
        K: Clone + DeserializeOwned + std::fmt::Debug,
    {
        let params = PatchParams {
            force,
            ..PatchParams::apply(FIELD_MANAGER)
        };
        let patched = again(async || api.patch(name, &params, &Patch::Apply(object)).await).await;
        patched.map_err(Failure::cluster(doing)).map(drop)
    }
}
