//! The kinds whose objects the sequences write.

use serde_json::{Value, json};

use super::random::Random;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    /// Group and version, or `v1`.
    pub(crate) api: &'static str,
    pub(crate) name: &'static str,
    pub(crate) resource: &'static str,
    pub(crate) is_namespaced: bool,
}

pub(crate) const CONFIG_MAP: Kind = core("ConfigMap", "configmaps");
pub(crate) const SECRET: Kind = core("Secret", "secrets");
pub(crate) const SERVICE_ACCOUNT: Kind = core("ServiceAccount", "serviceaccounts");
pub(crate) const NAMESPACE: Kind = Kind {
    is_namespaced: false,
    ..core("Namespace", "namespaces")
};
pub(crate) const LEASE: Kind = kind("coordination.k8s.io/v1", "Lease", "leases");
pub(crate) const ROLE: Kind = kind("rbac.authorization.k8s.io/v1", "Role", "roles");
pub(crate) const ROLE_BINDING: Kind = kind("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings");
pub(crate) const CLUSTER_ROLE: Kind = cluster("rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles");
pub(crate) const CLUSTER_ROLE_BINDING: Kind = cluster(
    "rbac.authorization.k8s.io/v1",
    "ClusterRoleBinding",
    "clusterrolebindings",
);
pub(crate) const DEFINITION: Kind = cluster(
    "apiextensions.k8s.io/v1",
    "CustomResourceDefinition",
    "customresourcedefinitions",
);
pub(crate) const COWBOY: Kind = kind("wildwest.dev/v1alpha1", "Cowboy", "cowboys");
pub(crate) const SHERIFF: Kind = cluster("wildwest.dev/v1alpha1", "Sheriff", "sheriffs");
/// Defined in `setup/gadgets.yaml`, with defaults and rules of all sorts.
pub(crate) const GADGET: Kind = kind("simulated.bindery.test/v1", "Gadget", "gadgets");

const fn core(name: &'static str, resource: &'static str) -> Kind {
    kind("v1", name, resource)
}

const fn kind(api: &'static str, name: &'static str, resource: &'static str) -> Kind {
    Kind {
        api,
        name,
        resource,
        is_namespaced: true,
    }
}

const fn cluster(api: &'static str, name: &'static str, resource: &'static str) -> Kind {
    Kind {
        is_namespaced: false,
        ..kind(api, name, resource)
    }
}

impl Kind {
    fn root(self) -> String {
        let prefix = if self.api.contains('/') { "apis" } else { "api" };
        format!("/{prefix}/{}", self.api)
    }

    /// The path of the collection; of all namespaces if `namespace` is empty.
    pub(crate) fn list(self, namespace: &str) -> String {
        if self.is_namespaced && !namespace.is_empty() {
            format!("{}/namespaces/{namespace}/{}", self.root(), self.resource)
        } else {
            format!("{}/{}", self.root(), self.resource)
        }
    }

    pub(crate) fn path(self, namespace: &str, name: &str) -> String {
        format!("{}/{name}", self.list(namespace))
    }

    /// A valid object without metadata but its name.
    pub(crate) fn object(self, name: &str, random: &mut Random) -> Value {
        let mut object = self.content(random);
        object["apiVersion"] = self.api.into();
        object["kind"] = self.name.into();
        object["metadata"] = json!({"name": name});
        object
    }

    fn content(self, random: &mut Random) -> Value {
        let word = word(random);
        match self.name {
            "ConfigMap" => json!({"data": {"first": word, "second": "fixed"}}),
            "Secret" => json!({"type": "Opaque", "data": {"password": "c2VjcmV0"}}),
            "Lease" => json!({"spec": {
                "holderIdentity": word, "leaseDurationSeconds": 15, "leaseTransitions": 1,
                "acquireTime": "2026-01-01T00:00:00.000000Z", "renewTime": "2026-01-01T00:00:10.250000Z",
            }}),
            "Cowboy" => json!({"spec": {"intent": word, "secretRefs": [{"name": "alpha"}]}}),
            "Sheriff" => json!({"spec": {"intent": word}}),
            "Gadget" => {
                json!({"spec": {"color": "red", "size": 3, "parts": [{"name": "a"}, {"name": "b", "count": 2}]}})
            }
            "Role" | "ClusterRole" => {
                json!({"rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}]})
            }
            _ => json!({}),
        }
    }

    /// A merge patch that changes something besides metadata.
    pub(crate) fn change(self, random: &mut Random) -> Value {
        let word = word(random);
        match self.name {
            "ConfigMap" => json!({"data": {"first": word}}),
            "Secret" => json!({"stringData": {"user": word}}),
            "Lease" => json!({"spec": {"holderIdentity": word, "renewTime": "2026-01-01T00:00:12.500001Z"}}),
            "Cowboy" | "Sheriff" => json!({"spec": {"intent": word}}),
            "Gadget" => json!({"spec": {"note": word}}),
            _ => json!({"metadata": {"annotations": {"note": word}}}),
        }
    }
}

fn word(random: &mut Random) -> &'static str {
    random.pick(&["ride", "rest", "shoot", "sing", "draw"])
}
