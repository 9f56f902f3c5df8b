//! Manifests of any kind, applied by the server, and what that changed.

use std::fmt;

use bindery_runtime::crds::{self, InstallError};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, ResourceExt as _,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams},
};
use serde::Serialize;
use serde_json::{Value, json};

use super::{Consumer, again};
use crate::errors::Failure;

/// What became of an object, in kubectl's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Outcome {
    Created,
    Configured,
    Unchanged,
    Deleted,
}

impl Consumer {
    /// Applies a manifest, whoever else has written the same fields.
    pub(crate) async fn apply_manifest(&self, manifest: &Value, manager: &str) -> Result<Outcome, Failure> {
        let object: DynamicObject =
            serde_json::from_value(manifest.clone()).map_err(|error| Failure::Format(error.to_string()))?;
        let name = object.name_any();
        let resource = resource(manifest);
        let api = self.objects(&resource, &object.namespace().unwrap_or_default());
        let doing = format!("apply {} {name}", resource.kind);
        let before = again(async || api.get_opt(&name).await).await;
        let before = before.map_err(Failure::cluster(format!("read {} {name}", resource.kind)))?;
        if before.is_some() && is_bare(manifest) {
            return Ok(Outcome::Unchanged);
        }
        let params = PatchParams::apply(manager).force();
        let after = again(async || api.patch(&name, &params, &Patch::Apply(manifest)).await).await;
        let after = after.map_err(Failure::cluster(doing))?;
        Ok(outcome(before.map(|before| json!(before)), json!(after)))
    }

    /// Installs definitions, unless a newer release has, and waits until they are served.
    pub(crate) async fn install_definitions(
        &self,
        wanted: Vec<CustomResourceDefinition>,
    ) -> Result<Vec<(CustomResourceDefinition, Outcome)>, Failure> {
        let api = Api::<CustomResourceDefinition>::all(self.client());
        let mut installed = Vec::with_capacity(wanted.len());
        for definition in wanted {
            let name = definition.name_any();
            let before = self.find(api.clone(), &name).await?;
            crds::install(&self.client(), vec![definition.clone()])
                .await
                .map_err(|error| match error {
                    InstallError::Write { name, source } => {
                        Failure::cluster(format!("install CustomResourceDefinition {name}"))(source)
                    }
                    error @ InstallError::NotEstablished { .. } => Failure::Definition(error),
                })?;
            let after = self.find(api.clone(), &name).await?;
            let outcome = outcome(before.map(|before| json!(before)), json!(after));
            installed.push((definition, outcome));
        }
        Ok(installed)
    }
}

/// The API that a manifest belongs to.
pub(crate) fn resource(manifest: &Value) -> ApiResource {
    let text = |key: &str| manifest[key].as_str().unwrap_or_default();
    let (group, version) = text("apiVersion")
        .split_once('/')
        .unwrap_or_else(|| ("", text("apiVersion")));
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, text("kind")))
}

/// Whether a manifest says nothing but that the object is there. Even so, a server may count an apply of it as a change.
fn is_bare(manifest: &Value) -> bool {
    let only = |value: &Value, keys: &[&str]| {
        value
            .as_object()
            .is_some_and(|fields| fields.keys().all(|key| keys.contains(&key.as_str())))
    };
    only(manifest, &["apiVersion", "kind", "metadata"]) && only(&manifest["metadata"], &["name", "namespace"])
}

/// What a server counts up by itself is no change, nor is what it reports.
fn outcome(before: Option<Value>, after: Value) -> Outcome {
    match before.map(said) {
        None => Outcome::Created,
        Some(before) if before == said(after) => Outcome::Unchanged,
        Some(_) => Outcome::Configured,
    }
}

fn said(mut object: Value) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    if let Some(meta) = object["metadata"].as_object_mut() {
        meta.retain(|key, _| !["resourceVersion", "managedFields", "generation"].contains(&key.as_str()));
        // Controllers note their progress there.
        if let Some(notes) = meta.get_mut("annotations").and_then(Value::as_object_mut) {
            notes.retain(|key, _| !key.starts_with("deployment.kubernetes.io/"));
            if notes.is_empty() {
                meta.remove("annotations");
            }
        }
    }
    object
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Created => "created",
            Self::Configured => "configured",
            Self::Unchanged => "unchanged",
            Self::Deleted => "deleted",
        })
    }
}

#[cfg(test)]
mod tests {
    use bindery_api::adoption::Adoption;

    use super::*;
    use crate::deploy::{Asked, choose, manifests};

    #[track_caller]
    fn check(change: impl FnOnce(&mut Value), expect: Outcome) {
        let before = json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": { "a": "b" }, "metadata": {
            "name": "a", "resourceVersion": "1", "generation": 1, "labels": { "l": "m" } } });
        let mut after = before.clone();
        change(&mut after);
        assert_eq!(outcome(None, after.clone()), Outcome::Created);
        assert_eq!(outcome(Some(before), after), expect);
    }

    #[test]
    fn what_only_the_server_writes_is_no_change() {
        check(|_| {}, Outcome::Unchanged);
        check(
            |after| after["metadata"]["resourceVersion"] = json!("2"),
            Outcome::Unchanged,
        );
        check(|after| after["status"] = json!({ "ready": 1 }), Outcome::Unchanged);
        check(
            |after| after["metadata"]["annotations"] = json!({ "deployment.kubernetes.io/revision": "1" }),
            Outcome::Unchanged,
        );
        check(
            |after| after["metadata"]["annotations"] = json!({ "a": "1" }),
            Outcome::Configured,
        );
        check(
            |after| after["metadata"]["labels"]["l"] = json!("n"),
            Outcome::Configured,
        );
        check(|after| after["data"]["a"] = json!("c"), Outcome::Configured);
    }

    #[test]
    fn a_bare_manifest_says_nothing_but_a_name() {
        let check = |metadata: Value, more: Option<&str>, bare: bool| {
            let mut manifest = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": metadata });
            if let Some(more) = more {
                manifest[more] = json!({});
            }
            assert_eq!(is_bare(&manifest), bare, "{manifest}");
        };
        check(json!({ "name": "a" }), None, true);
        check(json!({ "name": "a", "namespace": "b" }), None, true);
        check(json!({ "name": "a", "labels": {} }), None, false);
        check(json!({ "name": "a" }), Some("spec"), false);
    }

    #[test]
    fn every_kind_that_is_installed_has_the_path_of_its_api() {
        let asked = Asked {
            adoption: Some(Adoption::All),
            ..Asked::default()
        };
        let konnector = choose(&asked, None).unwrap().0;
        for manifest in manifests(&konnector, Some(&[])).unwrap() {
            let resource = resource(&manifest);
            let expect = match resource.kind.as_str() {
                "Namespace" => "v1 namespaces",
                "ServiceAccount" => "v1 serviceaccounts",
                "Role" => "rbac.authorization.k8s.io/v1 roles",
                "RoleBinding" => "rbac.authorization.k8s.io/v1 rolebindings",
                "ClusterRole" => "rbac.authorization.k8s.io/v1 clusterroles",
                "ClusterRoleBinding" => "rbac.authorization.k8s.io/v1 clusterrolebindings",
                "ValidatingAdmissionPolicy" => "admissionregistration.k8s.io/v1 validatingadmissionpolicies",
                "ValidatingAdmissionPolicyBinding" => {
                    "admissionregistration.k8s.io/v1 validatingadmissionpolicybindings"
                }
                "Deployment" => "apps/v1 deployments",
                other => panic!("{other} is not known here"),
            };
            assert_eq!(format!("{} {}", resource.api_version, resource.plural), expect);
        }
    }
}
