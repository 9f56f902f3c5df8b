//! A contract made without a human, over gRPC, and the credential that comes of it.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use bindery_api::{backend::EXTENSION, names, v1alpha2::APIServiceExport};
use bindery_e2e::{Provider, call::wish, eventually_ok, offer::Offer, wildwest::SOON};
use bindery_sdk::Client;
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, DynamicObject, Patch, PatchParams},
};
use serde_json::{Value, json};

/// A contract of the consumer with a provider.
pub(crate) struct Contract {
    /// Its namespace on the provider.
    pub(crate) namespace: String,
    /// Whoever binds, over gRPC.
    pub(crate) client: Client,
    identity: String,
    admin: kube::Client,
}

/// A kubeconfig of a contract.
#[derive(Clone)]
pub(crate) struct Credential(Value);

// === impl Contract ===

impl Contract {
    /// None yet: it is made by the first export. The cluster has an identity of that name for the provider.
    pub(crate) async fn new(provider: &Provider, name: &str, templates: &[&str]) -> Result<Self> {
        let identity = format!("cluster-of-{name}");
        let token = provider.principal(name, templates).await?;
        let builder = Client::builder(provider.address()).ca_pem(provider.plane.ca_pem());
        Ok(Self {
            namespace: Provider::contract(&identity),
            client: builder.token_file(token).build()?,
            identity,
            admin: provider.plane.client(),
        })
    }

    /// Exports an API under its own name, or makes the export anew if the template has changed.
    pub(crate) async fn export(&self, offer: Offer) -> Result<Credential> {
        self.export_as(offer.name, offer).await
    }

    /// Exports an API under another name.
    pub(crate) async fn export_as(&self, name: &str, offer: Offer) -> Result<Credential> {
        let wish = wish(name, offer.name, &self.identity);
        let bound = self.client.bind_by_request(wish, SOON, |_| ()).await?;
        let kubeconfig = bound.kubeconfig.context("a bind without a kubeconfig")?;
        let kubeconfig = std::str::from_utf8(kubeconfig.expose())?;
        Ok(Credential(serde_saphyr::from_str(kubeconfig)?))
    }

    pub(crate) fn exports(&self) -> Api<APIServiceExport> {
        Api::namespaced(self.admin.clone(), &self.namespace)
    }

    /// Removes an export as the provider's admin, and waits until it is gone.
    pub(crate) async fn remove(&self, name: &str) -> Result<()> {
        self.exports().delete(name, &DeleteParams::default()).await?;
        eventually_ok(format!("export {name} to be gone"), SOON, async || {
            let left = self.exports().get_opt(name).await?;
            anyhow::ensure!(left.is_none(), "{left:?}");
            Ok(())
        })
        .await
    }

    /// Puts a label on an export as the provider's admin, or takes it off.
    pub(crate) async fn label(&self, export: &str, label: &str, value: Value) -> Result<()> {
        let patch = Patch::Merge(json!({"metadata": {"labels": {label: value}}}));
        self.exports().patch(export, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// UID of its namespace, by which a consumer tells it from others.
    pub(crate) async fn uid(&self) -> Result<String> {
        let namespaces: Api<Namespace> = Api::all(self.admin.clone());
        namespaces.get(&self.namespace).await?.uid().context("no UID")
    }

    /// Copies of the consumer's objects of a namespace.
    pub(crate) fn copies(&self, offer: Offer, namespace: &str) -> Api<DynamicObject> {
        let place = names::provider_namespace(&self.namespace, namespace);
        Api::namespaced_with(self.admin.clone(), &place, &offer.resource())
    }

    /// Who the konnector is on the provider.
    pub(crate) fn binder(&self) -> String {
        format!("system:serviceaccount:{}:kube-binder", self.namespace)
    }
}

// === impl Credential ===

impl Credential {
    /// As it is put into a Secret.
    pub(crate) fn yaml(&self) -> Result<String> {
        Ok(serde_saphyr::to_string(&self.0)?)
    }

    /// The same, changed.
    pub(crate) fn with(&self, change: impl FnOnce(&mut Value)) -> Self {
        let mut changed = self.clone();
        change(&mut changed.0);
        changed
    }

    /// The same over another way to the API server.
    pub(crate) fn through(&self, address: SocketAddr) -> Self {
        self.with(|config| cluster(config)["server"] = json!(format!("https://{address}")))
    }

    /// The same over another way to the backend.
    pub(crate) fn backend_through(&self, address: SocketAddr) -> Self {
        self.with(|config| {
            for extension in cluster(config)["extensions"].as_array_mut().into_iter().flatten() {
                if extension["name"] == EXTENSION {
                    extension["extension"]["address"] = json!(format!("https://{address}"));
                }
            }
        })
    }

    /// The same of a provider that has Kubernetes alone.
    pub(crate) fn without_backend(&self) -> Self {
        self.with(|config| {
            if let Some(cluster) = cluster(config).as_object_mut() {
                cluster.remove("extensions");
            }
        })
    }
}

/// The cluster of a kubeconfig.
pub(crate) fn cluster(kubeconfig: &mut Value) -> &mut Value {
    &mut kubeconfig["clusters"][0]["cluster"]
}

/// The user of a kubeconfig.
pub(crate) fn user(kubeconfig: &mut Value) -> &mut Value {
    &mut kubeconfig["users"][0]["user"]
}
