//! The consumer cluster: what a command reads there and writes.

mod again;
mod credential;
mod definitions;
pub(crate) mod kinds;
mod objects;
mod owners;
pub(crate) mod wait;
mod writes;

use bindery_runtime::{
    client::{self, Clients},
    errors,
    preconditions::same_uid,
};
use bindery_synk::Synk;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, Config, Resource, ResourceExt as _, api::DeleteParams};
use serde::de::DeserializeOwned;

use again::again;
pub(crate) use credential::CredentialProblem;

use crate::{args::settings::Settings, errors::Failure};

/// Idle connections that are kept open. A command sends few requests at a time.
const IDLE_MAX: usize = 4;

/// Clients of the consumer cluster; in `dev`, of either cluster.
pub(crate) struct Consumer {
    clients: Clients,
    /// The namespace of the kubeconfig's context.
    pub(crate) namespace: String,
}

impl Consumer {
    pub(crate) async fn connect(settings: &Settings) -> Result<Self, Failure> {
        let cluster = &settings.cluster;
        let config = client::config(cluster.kubeconfig.as_deref(), cluster.context.as_deref()).await?;
        Self::of(&config)
    }

    /// Clients of the cluster of a kubeconfig.
    pub(crate) fn of(config: &Config) -> Result<Self, Failure> {
        Ok(Self {
            clients: Clients::new(config, IDLE_MAX)?,
            namespace: config.default_namespace.clone(),
        })
    }

    /// Makes a consumer whose API server answers every request with this object, for tests.
    #[cfg(test)]
    pub(crate) fn answering(answer: &serde_json::Value) -> Self {
        let answer = answer.to_string();
        let service = tower::service_fn(move |_: http::Request<kube::client::Body>| {
            let body = kube::client::Body::from(answer.clone().into_bytes());
            std::future::ready(Ok::<_, std::convert::Infallible>(http::Response::new(body)))
        });
        let client = Client::new(service, "default");
        let clients = Clients::of(client);
        Self {
            clients,
            namespace: "default".to_owned(),
        }
    }

    /// A client that applies sets of manifests to this cluster.
    pub(crate) fn synk(&self) -> Synk {
        Synk::new(self.clients.clone())
    }

    /// The client for watches.
    pub(crate) fn watch(&self) -> Client {
        self.clients.watch.clone()
    }

    /// The identity by which a provider knows this cluster: the UID of its namespace kube-system.
    pub(crate) async fn identity(&self) -> Result<String, Failure> {
        let namespaces = Api::<Namespace>::all(self.client());
        let namespace = again(async || namespaces.get("kube-system").await).await;
        let namespace = namespace.map_err(Failure::cluster(
            "read Namespace kube-system, whose UID is the identity of this cluster (or give --cluster-identity)",
        ))?;
        Ok(namespace.uid().unwrap_or_default())
    }

    /// Deletes the object, unless it is gone already or another object has its name.
    pub(crate) async fn delete<K>(&self, api: Api<K>, object: &K) -> Result<(), Failure>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
    {
        let params = DeleteParams {
            preconditions: object.uid().map(same_uid),
            ..DeleteParams::background()
        };
        let name = object.name_any();
        match again(async || api.delete(&name, &params).await).await {
            Ok(_) => Ok(()),
            Err(error) if errors::is_not_found(&error) || errors::is_conflict(&error) => Ok(()),
            Err(error) => Err(Failure::cluster(format!("delete {} {name}", K::kind(&())))(error)),
        }
    }

    /// Reads an object; none if it does not exist.
    pub(crate) async fn find<K>(&self, api: Api<K>, name: &str) -> Result<Option<K>, Failure>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
    {
        let found = again(async || api.get_opt(name).await).await;
        found.map_err(Failure::cluster(format!("read {} {name}", K::kind(&()))))
    }

    /// The client for reads and writes.
    pub(crate) fn client(&self) -> Client {
        self.clients.write.clone()
    }
}
