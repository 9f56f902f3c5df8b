//! The probe API and what offers it. All of it bears one new name.

use bindery_api::labels;
use kube::{
    api::{ApiResource, GroupVersionKind},
    core::TypeMeta,
};
use serde_json::{Value, json};

/// Name of the ServiceAccount that binds.
pub(super) const BINDER: &str = "binder";
/// Name of the object that is synced.
pub(super) const OBJECT: &str = "probe";

const RBAC: &str = "rbac.authorization.k8s.io";
const VERSION: &str = "v1";

/// A probe API, by the name that all of its objects have.
pub(super) struct Probe {
    pub(super) id: String,
}

impl Probe {
    pub(super) fn new(suffix: &str) -> Self {
        Self {
            id: format!("check-{suffix}"),
        }
    }

    /// The API group. Nobody can register a domain under `.test`.
    pub(super) fn group(&self) -> String {
        format!("{}.test", self.id)
    }

    /// Name of the CustomResourceDefinition.
    pub(super) fn definition(&self) -> String {
        format!("probes.{}", self.group())
    }

    pub(super) fn resource(&self) -> ApiResource {
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(&self.group(), VERSION, "Probe"), "probes")
    }

    /// Name of the role that lets the server hand out rights on the API.
    pub(super) fn server_role(&self) -> String {
        format!("bindery-server-export-{}", self.id)
    }

    /// What the provider needs: the API, its template, and an account that may bind it.
    pub(super) fn offer(&self) -> Vec<Value> {
        let (id, group) = (&self.id, self.group());
        let text = json!({ "type": "object", "properties": { "answer": { "type": "string" } } });
        let schema = json!({ "type": "object", "properties": { "spec": text, "status": text } });
        vec![
            json!({
                "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole",
                "metadata": { "name": self.server_role(), "labels": { labels::AGGREGATE_TO_SERVER: "true" } },
                "rules": [{
                    "apiGroups": [group], "resources": ["probes", "probes/status"],
                    "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"],
                }],
            }),
            json!({
                "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "metadata": { "name": self.definition(), "labels": { labels::EXPORTED: "true" } },
                "spec": {
                    "group": group, "scope": "Namespaced",
                    "names": { "plural": "probes", "singular": "probe", "kind": "Probe", "listKind": "ProbeList" },
                    "versions": [{
                        "name": VERSION, "served": true, "storage": true, "subresources": { "status": {} },
                        "schema": { "openAPIV3Schema": schema },
                    }],
                },
            }),
            json!({
                "apiVersion": "kube-bind.io/v1alpha2", "kind": "APIServiceExportTemplate", "metadata": { "name": id },
                "spec": {
                    "scope": "Namespaced",
                    "resources": [{ "group": group, "resource": "probes", "versions": [VERSION] }],
                },
            }),
            self.namespace(),
            json!({
                "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": BINDER, "namespace": id },
            }),
            json!({
                "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole", "metadata": { "name": id },
                "rules": [{
                    "apiGroups": ["kube-bind.io"], "resources": ["apiserviceexporttemplates"], "resourceNames": [id],
                    "verbs": ["bind"],
                }],
            }),
            json!({
                "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRoleBinding", "metadata": { "name": id },
                "roleRef": { "apiGroup": RBAC, "kind": "ClusterRole", "name": id },
                "subjects": [{ "kind": "ServiceAccount", "name": BINDER, "namespace": id }],
            }),
        ]
    }

    /// The namespace of the object here, and of the account on the provider.
    pub(super) fn namespace(&self) -> Value {
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": self.id } })
    }

    pub(super) fn object(&self) -> Value {
        json!({
            "apiVersion": format!("{}/{VERSION}", self.group()), "kind": "Probe",
            "metadata": { "name": OBJECT, "namespace": self.id },
            "spec": { "answer": "" },
        })
    }
}

/// The resource of one of these manifests: its plural ends with an s.
pub(super) fn resource_of(types: &TypeMeta) -> ApiResource {
    let kind = GroupVersionKind::try_from(types).unwrap_or_else(|_| GroupVersionKind::gvk("", VERSION, &types.kind));
    ApiResource::from_gvk_with_plural(&kind, &format!("{}s", types.kind.to_ascii_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_names_are_of_this_run() {
        let probe = Probe::new("1a2b3c4d");
        for manifest in probe.offer() {
            let name = &manifest["metadata"]["name"];
            let namespace = &manifest["metadata"]["namespace"];
            let is_own = name.as_str().is_some_and(|name| name.contains("check-1a2b3c4d"));
            assert!(is_own || namespace == "check-1a2b3c4d", "{manifest}");
            let types: TypeMeta = serde_json::from_value(manifest.clone()).unwrap();
            let plural = resource_of(&types).plural;
            assert_eq!(plural, format!("{}s", types.kind.to_lowercase()));
        }
        assert_eq!(probe.definition(), "probes.check-1a2b3c4d.test");
    }
}
