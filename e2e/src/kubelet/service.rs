//! Services, at addresses of this machine.

use std::{net::TcpListener, sync::Arc};

use anyhow::{Context as _, Result};
use k8s_openapi::{
    api::core::v1::{Pod, Service, ServicePort},
    apimachinery::pkg::util::intstr::IntOrString,
};
use kube::{Api, Client, ResourceExt as _, api::ListParams};
use tokio::net::TcpStream;

use super::sandbox::Sandboxes;
use crate::{forward::Forward, network};

/// Stands in front of the first port of a Service. There is no cache: each connection goes to a Pod that is ready now.
#[derive(Clone)]
pub(super) struct LoadBalancer {
    client: Client,
    namespace: String,
    service: String,
    /// Where it listens on this machine.
    listener: Arc<TcpListener>,
    sandboxes: Sandboxes,
}

impl LoadBalancer {
    pub(super) fn new(
        client: Client,
        namespace: &str,
        service: &str,
        listener: TcpListener,
        sandboxes: Sandboxes,
    ) -> Self {
        Self {
            client,
            namespace: namespace.to_owned(),
            service: service.to_owned(),
            listener: Arc::new(listener),
            sandboxes,
        }
    }

    pub(super) fn start(&self) -> Result<Forward> {
        let balancer = self.clone();
        Forward::start(self.listener.try_clone()?, move || balancer.clone().connect())
    }

    /// Connects to a Pod that is ready, chosen at random.
    async fn connect(self) -> Result<TcpStream> {
        let services = Api::<Service>::namespaced(self.client.clone(), &self.namespace);
        let spec = services
            .get(&self.service)
            .await?
            .spec
            .context("a Service without a spec")?;
        let labels = spec
            .selector
            .iter()
            .flatten()
            .map(|(key, value)| format!("{key}={value}"));
        let selected = ListParams::default().labels(&labels.collect::<Vec<_>>().join(","));
        let pods = Api::<Pod>::namespaced(self.client.clone(), &self.namespace)
            .list(&selected)
            .await?;
        let port = spec.ports.iter().flatten().next().context("a Service without a port")?;
        let endpoints = pods.iter().filter(|pod| is_ready(pod));
        let mut endpoints: Vec<_> = endpoints
            .filter_map(|pod| Some((self.sandboxes.network(&pod.uid()?)?, target(pod, port)?)))
            .collect();
        let name = &self.service;
        anyhow::ensure!(!endpoints.is_empty(), "no Pod of Service {name} is ready");
        let (sandbox, port) = endpoints.swap_remove(rand::random_range(0..endpoints.len()));
        sandbox.connect((network::ADDRESS, port).into()).await
    }
}

impl std::fmt::Debug for LoadBalancer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "LoadBalancer({}/{} at {:?})",
            self.namespace, self.service, self.listener
        )
    }
}

/// Whether connections go to the Pod: it says that it is ready, and is not being deleted.
fn is_ready(pod: &Pod) -> bool {
    let mut conditions = pod.status.iter().flat_map(|it| it.conditions.iter().flatten());
    pod.metadata.deletion_timestamp.is_none() && conditions.any(|it| it.type_ == "Ready" && it.status == "True")
}

/// The port of the Pod to which a port of a Service leads, which may be named by its container.
fn target(pod: &Pod, port: &ServicePort) -> Option<u16> {
    let number = match &port.target_port {
        None => port.port,
        Some(IntOrString::Int(number)) => *number,
        Some(IntOrString::String(name)) => {
            let containers = pod.spec.iter().flat_map(|it| &it.containers);
            let mut ports = containers.flat_map(|it| it.ports.iter().flatten());
            ports.find(|it| it.name.as_ref() == Some(name))?.container_port
        }
    };
    number.try_into().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(ready: &str, is_ending: bool) -> Pod {
        let ending = is_ending.then_some("2026-01-01T00:00:00Z");
        serde_json::from_value(json!({
            "metadata": {"name": "it", "deletionTimestamp": ending},
            "spec": {"containers": [{"name": "it", "ports": [{"name": "grpc", "containerPort": 8443}]}]},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        }))
        .unwrap()
    }

    #[test]
    fn connections_go_to_pods_that_are_ready_and_stay() {
        for (ready, is_ending, expect) in [("True", false, true), ("False", false, false), ("True", true, false)] {
            assert_eq!(is_ready(&pod(ready, is_ending)), expect, "{ready} {is_ending}");
        }
    }

    #[test]
    fn a_port_leads_to_one_of_the_pod() {
        for (target_port, expect) in [
            (json!("grpc"), Some(8443)),
            (json!("other"), None),
            (json!(9000), Some(9000)),
            (json!(null), Some(443)),
        ] {
            let port = serde_json::from_value(json!({"port": 443, "targetPort": target_port})).unwrap();
            assert_eq!(target(&pod("True", false), &port), expect, "{target_port}");
        }
    }
}
