//! The manifests of both clusters.

use bindery_api::{
    crds,
    names::{KUBE_BIND_NAMESPACE, KUBECONFIG_KEY},
    v1alpha2::API_VERSION,
};
use bindery_synk::wire;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};

use super::{EXAMPLE, LABEL, LABELLED, PRETTY_NAME, RESPONSE, addresses::ServerAddress};
use crate::{errors::Failure, konnector, server};

macro_rules! example {
    ($name:literal) => {
        ($name, include_str!(concat!("../../../deploy/examples/cowboys/", $name)))
    };
}

/// The files of the provider's example, without its definition and without the account of a program that binds.
const OFFER: [(&str, &str); 2] = [
    example!("provider/server-rights.yaml"),
    example!("provider/template.yaml"),
];
const DEFINITION: (&str, &str) = example!("provider/crd.yaml");
const OBJECTS: (&str, &str) = example!("consumer/cowboy.yaml");

/// How the server will run.
#[derive(Clone, Debug)]
pub(crate) struct DevServer {
    pub(crate) image: String,
    pub(crate) address: ServerAddress,
    /// URL of the Kubernetes API for consumers.
    pub(crate) kubernetes: String,
}

/// The objects of the provider's set: the server and what offers the example. Its definitions are not among them, since a set
/// deletes none.
pub(crate) fn provider(dev: &DevServer) -> Result<Vec<Value>, Failure> {
    let mut all = server::shipped()?;
    for file in OFFER {
        all.extend(documents(file)?);
    }
    all.extend(
        server::workload()?
            .into_iter()
            .map(|manifest| configured(manifest, dev)),
    );
    Ok(all.into_iter().map(labelled).collect())
}

/// The objects of the consumer's set: the konnector with this image.
pub(crate) fn consumer(image: &str) -> Result<Vec<Value>, Failure> {
    let mut all = konnector::shipped()?;
    let mut workload = konnector::workload()?;
    container(&mut workload)["image"] = json!(image);
    all.push(workload);
    Ok(all.into_iter().map(labelled).collect())
}

/// The definitions of the provider: those of the server, of sets, and of the example.
pub(crate) fn provider_definitions() -> Result<Vec<CustomResourceDefinition>, Failure> {
    let mut all = crds::for_provider();
    all.push(wire::crd());
    for document in documents(DEFINITION)? {
        all.push(serde_json::from_value(document).map_err(|error| Failure::Format(error.to_string()))?);
    }
    Ok(all)
}

/// The definitions of the consumer: those of the konnector and of sets. The binding brings that of the example.
pub(crate) fn consumer_definitions() -> Vec<CustomResourceDefinition> {
    let mut all = crds::for_consumer();
    all.push(wire::crd());
    all
}

/// The definition with the label that says who made it.
pub(crate) fn labelled_definition(mut definition: CustomResourceDefinition) -> CustomResourceDefinition {
    let labels = definition.metadata.labels.get_or_insert_default();
    labels.insert(LABEL.to_owned(), LABELLED.to_owned());
    definition
}

/// The objects of the consumer that use the example: a namespace, and a Cowboy in it.
pub(crate) fn objects() -> Result<Vec<Value>, Failure> {
    Ok(documents(OBJECTS)?.into_iter().map(labelled).collect())
}

/// The request to bind the example for the cluster of this identity, in the name of this user.
pub(crate) fn request(identity: &str, author: &str) -> Value {
    labelled(json!({
        "apiVersion": API_VERSION, "kind": "BindableResourcesRequest",
        "metadata": {"name": EXAMPLE, "namespace": KUBE_BIND_NAMESPACE},
        "spec": {
            "templateRef": {"name": EXAMPLE},
            "clusterIdentity": {"identity": identity, "prettyName": PRETTY_NAME},
            "author": author,
            "kubeconfigSecretRef": {"name": RESPONSE, "key": KUBECONFIG_KEY},
        },
    }))
}

/// Adds the label that says who made an object.
pub(crate) fn labelled(mut manifest: Value) -> Value {
    manifest["metadata"]["labels"][LABEL] = json!(LABELLED);
    manifest
}

/// Service and Deployment of the server, as the flags ask for them.
fn configured(mut manifest: Value, dev: &DevServer) -> Value {
    match manifest["kind"].as_str() {
        Some("Service") => {
            if let Some(port) = dev.address.node_port {
                manifest["spec"]["type"] = json!("NodePort");
                manifest["spec"]["ports"][0]["nodePort"] = json!(port);
            }
        }
        Some("Deployment") => {
            let container = container(&mut manifest);
            container["image"] = json!(dev.image);
            if let Some(args) = container["args"].as_array_mut() {
                args.retain(|arg| !arg.as_str().is_some_and(|arg| arg.starts_with(GRPC_FLAG)));
                args.push(json!(format!("{GRPC_FLAG}={}", dev.address.url)));
                args.push(json!(format!("{KUBERNETES_FLAG}={}", dev.kubernetes)));
            }
        }
        _ => {}
    }
    manifest
}

/// The server's flag with its own URL.
pub(crate) const GRPC_FLAG: &str = "--external-grpc-address";
/// The server's flag with the URL of the Kubernetes API.
pub(crate) const KUBERNETES_FLAG: &str = "--external-address";

fn container(deployment: &mut Value) -> &mut Value {
    &mut deployment["spec"]["template"]["spec"]["containers"][0]
}

fn documents((name, text): (&str, &str)) -> Result<Vec<Value>, Failure> {
    serde_saphyr::from_multiple(text).map_err(|error| Failure::Format(format!("{name}: {error}")))
}

#[cfg(test)]
#[path = "manifests/tests.rs"]
mod tests;
