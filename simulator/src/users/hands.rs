//! Requests of people to clusters, as kubectl sends them.

use bindery_simulator_apiserver::ObjectKey;
use bytes::Bytes;
use http::{Method, Request, header};
use serde_json::{Value, json};

use super::Propagation;
use crate::{topology::Cluster, world::World};

/// The user of every person of a history: an administrator of their own cluster.
const USER: &str = "admin";

/// A resource as the path of a request names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Resource<'a> {
    /// API group; empty for core.
    pub group: &'a str,
    /// Version.
    pub version: &'a str,
    /// Plural name.
    pub plural: &'a str,
}

/// Resources that people use.
pub(super) const NAMESPACES: Resource<'_> = core("namespaces");
pub(super) const BINDINGS: Resource<'_> = kube_bind("apiservicebindings");
pub(super) const BUNDLES: Resource<'_> = kube_bind("apiservicebindingbundles");
pub(super) const REQUESTS: Resource<'_> = kube_bind("bindableresourcesrequests");
pub(super) const TEMPLATES: Resource<'_> = kube_bind("apiserviceexporttemplates");
pub(super) const DEFINITIONS: Resource<'_> = Resource {
    group: "apiextensions.k8s.io",
    version: "v1",
    plural: "customresourcedefinitions",
};

/// A resource of the core group.
pub(super) const fn core(plural: &str) -> Resource<'_> {
    Resource {
        group: "",
        version: "v1",
        plural,
    }
}

/// A resource of RBAC.
pub(super) const fn rbac(plural: &str) -> Resource<'_> {
    Resource {
        group: "rbac.authorization.k8s.io",
        version: "v1",
        plural,
    }
}

const fn kube_bind(plural: &str) -> Resource<'_> {
    Resource {
        group: "kube-bind.io",
        version: "v1alpha2",
        plural,
    }
}

/// A person's way to one cluster.
pub(super) struct Hands<'a> {
    world: &'a mut World,
    on: Cluster,
}

impl<'a> Hands<'a> {
    /// A person's way to a cluster; `None` if the cluster does not exist.
    pub(super) fn on(world: &'a mut World, on: Cluster) -> Option<Self> {
        world.api(on)?;
        Some(Self { world, on })
    }

    /// Reads an object.
    pub(super) fn get(&self, resource: Resource<'_>, namespace: &str, name: &str) -> Option<Value> {
        let key = ObjectKey::new(resource.group, resource.plural, namespace, name);
        Some((**self.world.api(self.on)?.get(&key)?).clone())
    }

    /// Creates an object. Returns whether it did not exist before.
    pub(super) fn create(&mut self, resource: Resource<'_>, namespace: &str, object: &Value) -> bool {
        let path = path(resource, namespace, None);
        self.send(&Method::POST, &path, "application/json", object)
    }

    /// Applies an object on the server's side, whatever is there.
    pub(super) fn apply(&mut self, resource: Resource<'_>, namespace: &str, name: &str, object: &Value) -> bool {
        let path = format!(
            "{}?fieldManager=kubectl&force=true",
            path(resource, namespace, Some(name))
        );
        self.send(&Method::PATCH, &path, "application/apply-patch+yaml", object)
    }

    /// Merges fields into an object.
    pub(super) fn merge(&mut self, resource: Resource<'_>, namespace: &str, name: &str, patch: &Value) -> bool {
        let object = path(resource, namespace, Some(name));
        self.send(&Method::PATCH, &object, "application/merge-patch+json", patch)
    }

    /// Merges fields into a subresource of an object.
    pub(super) fn merge_sub(&mut self, resource: Resource<'_>, at: (&str, &str), sub: &str, patch: &Value) -> bool {
        let subresource = format!("{}/{sub}", path(resource, at.0, Some(at.1)));
        self.send(&Method::PATCH, &subresource, "application/merge-patch+json", patch)
    }

    /// Removes all finalizers of a namespace.
    pub(super) fn finalize(&mut self, namespace: &str) -> bool {
        let Some(mut object) = self.get(NAMESPACES, "", namespace) else {
            return false;
        };
        object["spec"]["finalizers"] = json!([]);
        let path = format!("{}/finalize", path(NAMESPACES, "", Some(namespace)));
        self.send(&Method::PUT, &path, "application/json", &object)
    }

    /// Deletes an object.
    pub(super) fn delete(&mut self, resource: Resource<'_>, at: (&str, &str), how: Propagation) -> bool {
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": format!("{how:?}")});
        let path = path(resource, at.0, Some(at.1));
        self.send(&Method::DELETE, &path, "application/json", &options)
    }

    fn send(&mut self, method: &Method, path: &str, content: &str, body: &Value) -> bool {
        let request = Request::builder()
            .method(method.clone())
            .uri(path)
            .header(header::CONTENT_TYPE, content)
            .header(header::ACCEPT, "application/json")
            .body(Bytes::from(body.to_string()));
        let Ok(request) = request else {
            return false;
        };
        let answer = self.world.request(self.on, USER, request);
        let status = answer.status();
        if !status.is_success() {
            let body: Value = serde_json::from_slice(answer.body()).unwrap_or_default();
            let line = format!("  {method} {path} on {}: {status}: {}", self.on, body["message"]);
            self.world.note(&line);
        }
        status.is_success()
    }
}

fn path(resource: Resource<'_>, namespace: &str, name: Option<&str>) -> String {
    let Resource { group, version, plural } = resource;
    let root = if group.is_empty() {
        format!("/api/{version}")
    } else {
        format!("/apis/{group}/{version}")
    };
    let namespace = match namespace {
        "" => String::new(),
        namespace => format!("/namespaces/{namespace}"),
    };
    let name = name.map(|name| format!("/{name}")).unwrap_or_default();
    format!("{root}{namespace}/{plural}{name}")
}
