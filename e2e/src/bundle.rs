//! Creates bundles of a consumer without an interactive bind, and waits for what becomes of them.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use bindery_api::{
    Condition, Conditions as _, Severity, annotations,
    conditions::ConditionStatus,
    names::KUBECONFIG_KEY,
    v1alpha2::{APIServiceBinding, APIServiceBindingBundle, APIServiceBindingBundleStatus},
};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{NAMESPACE, eventually_ok, remains::COLLECTED, wildwest::SOON};

/// The field manager with which tests apply manifests.
const MANAGER: &str = "gitops";

/// A bundle of a consumer by its name, whether it exists or not.
#[derive(Clone, Debug)]
pub struct Bundle {
    /// The name of the bundle and of its Secret.
    pub name: String,
    /// All bundles of the cluster.
    pub bundles: Api<APIServiceBindingBundle>,
    /// All bindings of the cluster.
    pub all_bindings: Api<APIServiceBinding>,
    /// The Secrets that the konnector reads.
    pub secrets: Api<Secret>,
}

// === impl Bundle ===

impl Bundle {
    /// The bundle of a name.
    pub fn new(client: Client, name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            bundles: Api::all(client.clone()),
            all_bindings: Api::all(client.clone()),
            secrets: Api::namespaced(client, NAMESPACE),
        }
    }

    // --- What its user does.

    /// The manifest of the bundle: the reference to its Secret, the wish that copies are deleted with it, and the fields of `spec`, which
    /// override both; one that is null is left out.
    pub fn manifest(&self, spec: &Value) -> Value {
        let mut whole = json!({
            "kubeconfigSecretRef": {"name": self.name, "namespace": NAMESPACE, "key": KUBECONFIG_KEY},
            "deletionPolicy": "Delete",
        });
        for (field, value) in spec.as_object().into_iter().flatten() {
            whole[field] = value.clone();
        }
        if let Some(fields) = whole.as_object_mut() {
            fields.retain(|_, value| !value.is_null());
        }
        json!({
            "apiVersion": "kube-bind.io/v1alpha2", "kind": "APIServiceBindingBundle",
            "metadata": {"name": self.name}, "spec": whole,
        })
    }

    /// Applies the bundle by server-side apply: fields of an earlier manifest that this one lacks are removed.
    pub async fn apply(&self, spec: Value) -> Result<()> {
        let apply = PatchParams::apply(MANAGER).force();
        let bundle = self.manifest(&spec);
        self.bundles.patch(&self.name, &apply, &Patch::Apply(bundle)).await?;
        Ok(())
    }

    /// Applies the Secret of the bundle with a kubeconfig.
    pub async fn give(&self, kubeconfig: &str) -> Result<()> {
        self.give_under(KUBECONFIG_KEY, kubeconfig).await
    }

    /// Applies the Secret of the bundle with one key and its text.
    pub async fn give_under(&self, key: &str, text: &str) -> Result<()> {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": self.name}, "data": {key: BASE64_STANDARD.encode(text)},
        });
        let apply = PatchParams::apply(MANAGER).force();
        self.secrets.patch(&self.name, &apply, &Patch::Apply(secret)).await?;
        Ok(())
    }

    /// Sets an annotation of the bundle, or removes it.
    pub async fn annotate(&self, annotation: &str, value: Value) -> Result<()> {
        let patch = Patch::Merge(json!({"metadata": {"annotations": {annotation: value}}}));
        self.bundles.patch(&self.name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Deletes the bundle and waits until none of these bindings is left.
    pub async fn delete(&self, bindings: &[&str]) -> Result<()> {
        self.bundles.delete(&self.name, &DeleteParams::default()).await?;
        for binding in bindings {
            self.unbound(binding).await?;
        }
        Ok(())
    }

    // --- What is seen.

    /// Gets the bundle.
    pub async fn get(&self) -> Result<APIServiceBindingBundle> {
        Ok(self.bundles.get(&self.name).await?)
    }

    /// Gets the status of the bundle; the default if it has none.
    pub async fn status(&self) -> Result<APIServiceBindingBundleStatus> {
        Ok(self.get().await?.status.unwrap_or_default())
    }

    /// Gets a condition of the bundle.
    pub async fn condition(&self, type_: &str) -> Result<Condition> {
        let bundle = self.get().await?;
        let condition = bundle.condition(type_).cloned();
        condition.with_context(|| format!("no condition {type_}: {:?}", bundle.conditions()))
    }

    /// Gets the bindings that the bundle controls.
    pub async fn bindings(&self) -> Result<Vec<APIServiceBinding>> {
        let uid = self.get().await?.uid().context("no UID")?;
        let mut bindings = self.all_bindings.list(&ListParams::default()).await?.items;
        bindings.retain(|binding| {
            let mut owners = binding.owner_references().iter();
            owners.any(|owner| owner.uid == uid && owner.controller == Some(true))
        });
        Ok(bindings)
    }

    /// Gets names, UIDs and generations of the bindings that the bundle controls. They tell whether one was replaced.
    pub async fn bound(&self) -> Result<Vec<(String, Option<String>, Option<i64>)>> {
        let bindings = self.bindings().await?;
        let mut bound: Vec<_> = bindings
            .into_iter()
            .map(|binding| (binding.name_any(), binding.uid(), binding.metadata.generation))
            .collect();
        bound.sort();
        Ok(bound)
    }

    // --- What is waited for.

    /// Waits until a condition of the bundle exists for which `is_so` is true.
    pub async fn is(&self, type_: &str, is_so: impl Fn(&Condition) -> bool) -> Result<Condition> {
        eventually_ok(format!("{type_} of bundle {}", self.name), SOON, async || {
            let condition = self.condition(type_).await?;
            ensure!(is_so(&condition), "{condition:?}");
            Ok(condition)
        })
        .await
    }

    /// Waits until a condition is false for this reason; its message must say all of `says`, and `Ready` must not hold.
    pub async fn complains(&self, type_: &str, severity: Severity, reason: &str, says: &[&str]) -> Result<Condition> {
        let what = format!("{type_} of bundle {} to be false with {reason}", self.name);
        eventually_ok(what, SOON, async || {
            let condition = self.condition(type_).await?;
            let found = (condition.status, condition.severity, condition.reason.as_str());
            ensure!(found == (ConditionStatus::False, severity, reason), "{condition:?}");
            tells(&condition.message, says)?;
            ensure!(!self.condition("Ready").await?.is_true(), "ready all the same");
            Ok(condition)
        })
        .await
    }

    /// Waits until it controls exactly the bindings of these names, all is well with them and with it, and it counts them.
    pub async fn binds(&self, names: &[&str]) -> Result<()> {
        let wanted: BTreeSet<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let what = format!("bundle {} to bind {names:?}", self.name);
        eventually_ok(what, SOON, async || {
            let bindings = self.bindings().await?;
            let found: BTreeSet<_> = bindings.iter().map(APIServiceBinding::name_any).collect();
            let bundle = self.get().await?;
            ensure!(found == wanted, "it binds {found:?}: {:?}", bundle.status);
            for binding in &bindings {
                let of = binding.name_any();
                ensure!(binding.is_condition_true("Ready"), "{of}: {:?}", binding.conditions());
            }
            ensure!(bundle.is_condition_true("Ready"), "{:?}", bundle.conditions());
            let status = bundle.status.as_ref().context("no status")?;
            let count = i32::try_from(names.len()).ok();
            ensure!(
                status.discovered_services == count && status.bound_services == count,
                "it counts otherwise: {status:?}"
            );
            ensure!(status.observed_generation == bundle.metadata.generation, "{status:?}");
            Ok(())
        })
        .await
    }

    /// Waits until a condition of one of the bindings is as wanted.
    pub async fn binding_is(
        &self,
        binding: &str,
        type_: &str,
        is_so: impl Fn(&Condition) -> bool,
    ) -> Result<Condition> {
        eventually_ok(format!("{type_} of binding {binding}"), SOON, async || {
            let binding = self.all_bindings.get(binding).await?;
            let found = binding.condition(type_).cloned();
            let found = found.with_context(|| format!("no condition {type_}: {:?}", binding.conditions()))?;
            ensure!(is_so(&found), "{found:?}");
            Ok(found)
        })
        .await
    }

    /// Sets an annotation of a binding, or removes it.
    pub async fn annotate_binding(&self, binding: &str, annotation: &str, value: Value) -> Result<()> {
        let patch = Patch::Merge(json!({"metadata": {"annotations": {annotation: value}}}));
        self.all_bindings
            .patch(binding, &PatchParams::default(), &patch)
            .await?;
        Ok(())
    }

    /// Gets the claims that a binding records as accepted.
    pub async fn accepted(&self, binding: &str) -> Result<Value> {
        let binding = self.all_bindings.get(binding).await?;
        let record = binding.annotations().get(annotations::ACCEPTED_CLAIMS);
        Ok(serde_json::from_str(record.context("no record")?)?)
    }

    /// Waits until a binding is gone.
    pub async fn unbound(&self, binding: &str) -> Result<()> {
        eventually_ok(format!("binding {binding} to be gone"), COLLECTED, async || {
            let left = self.all_bindings.get_opt(binding).await?;
            ensure!(left.is_none(), "{:?}", left.and_then(|binding| binding.status));
            Ok(())
        })
        .await
    }
}

/// Builds the ClusterRole by which an operator gives the konnector rights on bound resources, each with its group.
pub fn rights(name: &str, resources: &[(&str, &str)]) -> Value {
    let rules: Vec<_> = resources
        .iter()
        .flat_map(|(group, plural)| {
            let verbs = json!(["get", "list", "watch", "create", "update", "patch", "delete"]);
            let status = format!("{plural}/status");
            [
                json!({"apiGroups": [group], "resources": [plural], "verbs": verbs}),
                json!({"apiGroups": [group], "resources": [status], "verbs": ["get", "patch", "update"]}),
            ]
        })
        .collect();
    let api = "rbac.authorization.k8s.io";
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": format!("{api}/v1"), "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules},
        {
            "apiVersion": format!("{api}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": api, "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "namespace": NAMESPACE, "name": "konnector"}],
        },
    ]})
}

/// Fails unless a text contains all of `says`.
pub fn tells(text: &str, says: &[&str]) -> Result<()> {
    let missing: Vec<_> = says.iter().filter(|part| !text.contains(**part)).collect();
    ensure!(missing.is_empty(), "does not say {missing:?}: {text}");
    Ok(())
}
