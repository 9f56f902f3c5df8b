//! The admission policy of `deploy/server/requests-policy.yaml`, sentence by sentence. RBAC lets everybody here write requests
//! and their status in the namespace of the case, so that what is refused is refused by the policy.

mod what;
mod who;

use anyhow::{Context as _, Result};
use bindery_api::v1alpha2::{BindableResourcesRequest, BindableResourcesRequestSpec, ClusterIdentity, NameRef};
use bindery_e2e::{eventually_ok, wildwest, wildwest::SOON};
use kube::{Api, Client, api::Patch};
use serde_json::{Value, json};

use crate::{
    case::role,
    world::{World, dry_run, refused, with_world},
};

/// A namespace in which everybody who is logged in may write requests and status.
struct Place {
    world: &'static World,
    name: &'static str,
}

fn place(name: &'static str, body: impl AsyncFnOnce(&Place) -> Result<()>) -> Result<()> {
    with_world(async |world| {
        wildwest::namespace(world.provider.plane.client(), name).await?;
        let place = Place { world, name };
        place.allow(name, &json!([group("system:authenticated")])).await?;
        body(&place).await.with_context(|| format!("in {name}"))
    })
}

// === impl Place ===

impl Place {
    /// Lets somebody write requests and their status in a namespace.
    async fn allow(&self, namespace: &str, subjects: &Value) -> Result<()> {
        let rules = json!([{
            "apiGroups": ["kube-bind.io"], "resources": ["bindableresourcesrequests", "bindableresourcesrequests/status"],
            "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"],
        }]);
        self.apply(&role(namespace, "write-requests", &rules, subjects)).await
    }

    async fn apply(&self, manifest: &Value) -> Result<()> {
        self.world.provider.plane.apply(&manifest.to_string()).await
    }

    /// Gives somebody a verb on things by name, everywhere. The name is that of the role.
    async fn grant(&self, name: &str, rule: Value, subject: Value) -> Result<()> {
        self.apply(&json!({"apiVersion": "v1", "kind": "List", "items": [
            {
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name},
                "rules": [rule],
            },
            {
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
                "subjects": [subject],
            },
        ]}))
        .await
    }

    async fn may_bind(&self, name: &str, subject: Value) -> Result<()> {
        self.grant(name, bind("cowboys"), subject).await
    }

    fn api(&self, client: &Client) -> Api<BindableResourcesRequest> {
        Api::namespaced(client.clone(), self.name)
    }

    fn admin(&self) -> Client {
        self.world.provider.plane.client()
    }

    /// A request for `cowboys`.
    fn request(&self, author: &str) -> BindableResourcesRequest {
        let spec = BindableResourcesRequestSpec {
            template_ref: Some(NameRef::new("cowboys")),
            cluster_identity: ClusterIdentity {
                identity: format!("cluster-of-{}", self.name),
                pretty_name: None,
            },
            author: author.to_owned(),
            ..BindableResourcesRequestSpec::default()
        };
        BindableResourcesRequest::new("cowboys", spec)
    }

    /// Tries to create a request, which is not kept. Rights take effect with a delay, so that it is tried until it passes.
    async fn passes(&self, client: &Client, request: &BindableResourcesRequest) -> Result<()> {
        let api = self.api(client);
        eventually_ok(
            format!("the request of {} to pass", request.spec.author),
            SOON,
            async || Ok(api.create(&dry_run(), request).await.map(drop)?),
        )
        .await
    }

    async fn is_refused(&self, client: &Client, request: &BindableResourcesRequest, says: &[&str]) -> Result<()> {
        let outcome = self.api(client).create(&dry_run(), request).await;
        refused(outcome, says).map(drop).with_context(|| format!("{request:?}"))
    }
}

fn bind(template: &str) -> Value {
    json!({
        "apiGroups": ["kube-bind.io"], "resources": ["apiserviceexporttemplates"], "resourceNames": [template],
        "verbs": ["bind"],
    })
}

fn user(name: &str) -> Value {
    json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name})
}

fn group(name: &str) -> Value {
    json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": name})
}

fn merge(value: Value) -> Patch<Value> {
    Patch::Merge(value)
}
