//! How a user binds an API: by calls of the provider's server, whose answer says what to install on the consumer.

use std::collections::BTreeSet;

use bindery_api::names;
use bindery_sdk::{manifests::ManifestOptions, v1alpha2::UnbindContractRequest};
use bytes::Bytes;
use http::{Method, Request, header};
use serde_json::{Value, json};

use super::{
    Relation,
    action::namespace_name,
    hands::{BINDINGS, BUNDLES, Hands, NAMESPACES, Resource, core, rbac},
};
use crate::{
    topology::{BoundBy, Cluster, DeletionPolicy, offer_name},
    world::World,
};

/// The namespace and the ServiceAccount of a provider as which the users of a consumer call.
pub(super) const OWNERS: &str = "owners";

/// A bind that a user wants.
#[derive(Clone, Debug)]
pub(super) struct WantedBind {
    pub relation: Relation,
    pub by: BoundBy,
    pub policy: DeletionPolicy,
}

/// The ServiceAccount of the users of a consumer.
pub(super) fn owner(consumer: u8) -> String {
    format!("owner-{consumer}")
}

/// Binds an API and installs it on the consumer. Returns whether the provider's server answered as it has to.
pub(super) fn bind(world: &mut World, bind: &WantedBind) -> bool {
    let Relation { consumer, provider } = bind.relation;
    let (Some(identity), Some(token)) = (identity(world, consumer), token(world, bind.relation)) else {
        return false;
    };
    let bundle = (bind.by == BoundBy::Bundle).then(|| bundle_name(provider));
    let called = world.call(provider, &token, move |client| async move {
        let bound = client.bind_template(offer_name(provider), identity).await;
        let bound = bound.map_err(|error| error.to_string())?;
        let options = ManifestOptions {
            bundle,
            accept: None,
            reject: BTreeSet::new(),
            ..ManifestOptions::default()
        };
        let manifests = bound.manifests(&options).map_err(|refusal| refusal.to_string())?;
        manifests.documents().map_err(|error| error.to_string())
    });
    let documents = match called {
        Some(Ok(documents)) => documents,
        Some(Err(error)) => {
            world.note(&format!("  the bind of {} failed: {error}", bind.relation));
            return false;
        }
        None => {
            world.note(&format!("  the bind of {} got no answer", bind.relation));
            return false;
        }
    };
    let Some(mut hands) = Hands::on(world, Cluster::Consumer(consumer)) else {
        return false;
    };
    for mut document in documents {
        if document["kind"] == "APIServiceBinding" && bind.policy != DeletionPolicy::Unset {
            document["spec"]["deletionPolicy"] = json!(format!("{:?}", bind.policy));
        }
        if matches!(
            document["kind"].as_str(),
            Some("APIServiceBinding" | "APIServiceBindingBundle")
        ) {
            // Operators provide objects in namespaces without bound objects too.
            document["spec"]["claimNamespaces"] = json!([namespace_name(1), namespace_name(2)]);
        }
        let (namespace, name) = (&document["metadata"]["namespace"], &document["metadata"]["name"]);
        if let (Some(resource), Some(name)) = (resource_of(&document), name.as_str()) {
            // What the API server refuses, it refuses again: a user gives up.
            hands.apply(resource, namespace.as_str().unwrap_or_default(), name, &document);
        }
    }
    true
}

/// Unbinds the export of a relation by a call.
pub(super) fn unbind(world: &mut World, relation: Relation, force: bool) {
    let (Some(contract), Some(token)) = (contract(world, relation.consumer), token(world, relation)) else {
        return;
    };
    let exports = vec![offer_name(relation.provider)];
    let called = world.call(relation.provider, &token, move |client| async move {
        let request = UnbindContractRequest {
            contract,
            exports,
            force,
            ..UnbindContractRequest::default()
        };
        let unbound = client.unbind_contract(request).await;
        unbound.map(drop).map_err(|error| error.to_string())
    });
    match called {
        Some(Ok(())) => {}
        Some(Err(error)) => world.note(&format!("  the unbind of {relation} failed: {error}")),
        None => world.note(&format!("  the unbind of {relation} got no answer")),
    }
}

/// The name of the contract of a consumer.
pub(super) fn contract(world: &mut World, consumer: u8) -> Option<String> {
    let identity = identity(world, consumer)?;
    Some(names::contract_namespace(names::NAMESPACE_PREFIX, &identity))
}

/// The UID of the consumer's namespace `kube-system`.
fn identity(world: &mut World, consumer: u8) -> Option<String> {
    let object = Hands::on(world, Cluster::Consumer(consumer))?.get(NAMESPACES, "", "kube-system")?;
    Some(object["metadata"]["uid"].as_str()?.to_owned())
}

/// The name of the bundle of a provider.
pub(crate) fn bundle_name(provider: u8) -> String {
    format!("bundle-{provider}")
}

/// The name of the Secret with the kubeconfig of a provider.
pub(super) fn secret_name(provider: u8, by: BoundBy) -> String {
    let konnector = names::KUBE_BIND_NAMESPACE;
    match by {
        BoundBy::Binding => bindery_sdk::manifests::secret_ref(&offer_name(provider), konnector).name,
        BoundBy::Bundle => bindery_sdk::manifests::bundle_secret_ref(&bundle_name(provider), konnector).name,
    }
}

/// A token of the users of a consumer for the server of a provider.
fn token(world: &mut World, relation: Relation) -> Option<String> {
    let audience = format!("https://{}", crate::world::grpc_host(relation.provider));
    let body = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"audiences": [audience], "expirationSeconds": 3600},
    });
    let path = format!(
        "/api/v1/namespaces/{OWNERS}/serviceaccounts/{}/token",
        owner(relation.consumer)
    );
    let request = Request::builder()
        .method(Method::POST)
        .uri(path)
        .header(header::CONTENT_TYPE, "application/json")
        .body(Bytes::from(body.to_string()))
        .ok()?;
    let answer = world.request(Cluster::Provider(relation.provider), "admin", request);
    let answer: Value = serde_json::from_slice(answer.body()).ok()?;
    Some(answer["status"]["token"].as_str()?.to_owned())
}

fn resource_of(document: &Value) -> Option<Resource<'static>> {
    Some(match document["kind"].as_str()? {
        "ClusterRole" => rbac("clusterroles"),
        "ClusterRoleBinding" => rbac("clusterrolebindings"),
        "Secret" => core("secrets"),
        "APIServiceBinding" => BINDINGS,
        "APIServiceBindingBundle" => BUNDLES,
        _ => return None,
    })
}
