//! Clients and caches of the consumer cluster, which all parts of the konnector share.

use std::sync::Arc;

use bindery_api::v1alpha2::{APIServiceBinding, APIServiceBindingBundle};
use bindery_runtime::{cache::Cache, client::Clients, watch::Source};
use k8s_openapi::{
    api::core::v1::{Namespace, Secret},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};

/// The namespace whose UID identifies a cluster.
const CLUSTER_NAMESPACE: &str = "kube-system";

/// Clients and caches of the consumer cluster. Clones share the same caches.
#[derive(Clone, Debug)]
pub struct Consumer {
    /// Clients of the consumer.
    pub clients: Clients,
    /// The konnector namespace, the only one whose Secrets the konnector reads.
    pub namespace: Arc<str>,
    /// All bindings.
    pub bindings: Cache<APIServiceBinding>,
    /// All bundles.
    pub bundles: Cache<APIServiceBindingBundle>,
    /// The Secrets of the konnector namespace.
    pub secrets: Cache<Secret>,
    /// All CRDs.
    pub crds: Cache<CustomResourceDefinition>,
    /// All namespaces.
    pub namespaces: Cache<Namespace>,
}

impl Consumer {
    /// Starts to watch. `namespace` is the konnector namespace.
    pub fn watch(clients: Clients, namespace: impl Into<Arc<str>>) -> Self {
        let namespace = namespace.into();
        let watch = &clients.watch;
        Self {
            bindings: Cache::start(watch.clone(), Source::of::<APIServiceBinding>(None)),
            bundles: Cache::start(watch.clone(), Source::of::<APIServiceBindingBundle>(None)),
            secrets: Cache::start(watch.clone(), Source::of::<Secret>(Some(&namespace))),
            crds: Cache::start(watch.clone(), Source::of::<CustomResourceDefinition>(None)),
            namespaces: Cache::start(watch.clone(), Source::of::<Namespace>(None)),
            namespace,
            clients,
        }
    }

    /// Waits until all caches are complete.
    pub async fn synced(&self) {
        self.bindings.synced().await;
        self.bundles.synced().await;
        self.secrets.synced().await;
        self.crds.synced().await;
        self.namespaces.synced().await;
    }

    /// Fails while a cache is incomplete, and says why.
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
            if !health.is_synced() {
                let why = health.failure.as_deref().unwrap_or("waiting for the first list");
                return Err(format!("{kind} are not known yet: {why}"));
            }
        }
        Ok(())
    }

    /// UID of the kube-system namespace, which identifies this cluster, once it is known.
    pub fn cluster_uid(&self) -> Option<String> {
        self.namespaces.get("", CLUSTER_NAMESPACE)?.metadata.uid.clone()
    }
}
