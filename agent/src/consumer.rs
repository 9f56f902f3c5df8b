//! The consumer's side, as all parts of the konnector see it.

use std::sync::Arc;

use bindery_api::v1alpha2::{APIServiceBinding, APIServiceBindingBundle};
use bindery_runtime::{cache::Cache, client::Clients, watch::Source};
use k8s_openapi::{
    api::core::v1::{Namespace, Secret},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};

/// The namespace whose UID identifies a cluster.
const CLUSTER_NAMESPACE: &str = "kube-system";

/// Clients of the consumer and what is watched there.
#[derive(Clone, Debug)]
pub struct Consumer {
    /// Clients.
    pub clients: Clients,
    /// The konnector's own namespace, the only one whose Secrets it reads.
    pub home: Arc<str>,
    /// All bindings.
    pub bindings: Cache<APIServiceBinding>,
    /// All bundles.
    pub bundles: Cache<APIServiceBindingBundle>,
    /// The Secrets of the konnector's own namespace.
    pub secrets: Cache<Secret>,
    /// All CRDs.
    pub crds: Cache<CustomResourceDefinition>,
    /// All namespaces.
    pub namespaces: Cache<Namespace>,
}

impl Consumer {
    /// Starts to watch.
    pub fn watch(clients: Clients, home: impl Into<Arc<str>>) -> Self {
        let home = home.into();
        let watch = &clients.watch;
        Self {
            bindings: Cache::start(watch.clone(), Source::of::<APIServiceBinding>(None)),
            bundles: Cache::start(watch.clone(), Source::of::<APIServiceBindingBundle>(None)),
            secrets: Cache::start(watch.clone(), Source::of::<Secret>(Some(&home))),
            crds: Cache::start(watch.clone(), Source::of::<CustomResourceDefinition>(None)),
            namespaces: Cache::start(watch.clone(), Source::of::<Namespace>(None)),
            home,
            clients,
        }
    }

    /// Waits until all is known.
    pub async fn synced(&self) {
        self.bindings.synced().await;
        self.bundles.synced().await;
        self.secrets.synced().await;
        self.crds.synced().await;
        self.namespaces.synced().await;
    }

    /// What is not known yet, and why.
    pub fn check(&self) -> Result<(), String> {
        let caches = [
            ("APIServiceBindings", self.bindings.health()),
            ("APIServiceBindingBundles", self.bundles.health()),
            ("Secrets", self.secrets.health()),
            ("CustomResourceDefinitions", self.crds.health()),
            ("Namespaces", self.namespaces.health()),
        ];
        for (kind, health) in caches {
            let health = health.borrow();
            if !health.synced {
                let why = health.failure.as_deref().unwrap_or("the first list is on its way");
                return Err(format!("{kind} not known yet: {why}"));
            }
        }
        Ok(())
    }

    /// What identifies this cluster, once it is known.
    pub fn cluster_uid(&self) -> Option<String> {
        self.namespaces.get("", CLUSTER_NAMESPACE)?.metadata.uid.clone()
    }
}
