//! A consumer as the provider knows it: nothing but what a bind gave it.

use std::time::Duration;

use anyhow::{Context as _, Result};
use bindery_api::{annotations, backend::Backend, labels, names, v1alpha2 as api};
use bindery_e2e::{Provider, call, eventually, wildwest::SOON};
use bindery_proto::v1alpha2::CreateBindableResourcesRequestRequest;
use kube::{
    Api, Client, Config, ResourceExt as _,
    api::{ApiResource, DynamicObject, GroupVersionKind, PostParams, TypeMeta},
    config::{KubeConfigOptions, Kubeconfig},
};
use secrecy::ExposeSecret as _;
use serde_json::json;

use crate::offers::{HORSES, Offer, Place};

/// How long a bind may take.
const PATIENCE: Duration = Duration::from_mins(2);
/// The consumer's namespace in which its objects are.
pub(crate) const RANCH: &str = "ranch";

/// A consumer with everything it was given.
pub(crate) struct Tenant {
    /// Its name, which is in everything that is its own.
    pub(crate) name: &'static str,
    /// Who bound, with a token for the server.
    pub(crate) principal_token: String,
    pub(crate) identity: String,
    /// The contract namespace.
    pub(crate) contract: String,
    /// The provider namespace of [`RANCH`].
    pub(crate) space: String,
    /// What it has bound.
    pub(crate) offers: Vec<Offer>,
    /// A client that uses the kubeconfig.
    pub(crate) client: Client,
    /// The kubeconfig's token for the API server.
    pub(crate) api_token: String,
    /// The kubeconfig's token for the server.
    pub(crate) backend_token: String,
}

// === impl Tenant ===

impl Tenant {
    /// Binds all that is offered, takes a provider namespace and puts one object of each API where the konnector would.
    pub(crate) async fn settle(provider: &Provider, name: &'static str, offers: &[Offer]) -> Result<Self> {
        let templates: Vec<_> = offers.iter().map(|offer| offer.name).collect();
        let token = provider.principal(&format!("{name}-gang"), &templates).await?;
        let principal_token = std::fs::read_to_string(token)?;
        let identity = format!("{name}-cluster");
        let builder = bindery_sdk::Client::builder(provider.address()).ca_pem(provider.plane.ca_pem());
        let caller = builder.token(principal_token.clone()).build()?;
        let mut bound = None;
        for offer in offers {
            let wish = wish(&request_name(name, *offer), offer.name, &identity, name);
            let answer = caller.bind_by_request(wish, PATIENCE, |_| ()).await;
            bound = Some(answer.with_context(|| format!("{name} binds {}", offer.name))?);
        }
        let bound = bound.context("nothing is offered")?.to_response();
        let yaml = String::from_utf8(bound.kubeconfig.context("a kubeconfig")?.kubeconfig.to_vec())?;
        let document: Kubeconfig = serde_saphyr::from_str(&yaml)?;
        let (api_token, backend_token) = tokens(&document)?;
        let client = Client::try_from(Config::from_custom_kubeconfig(document, &KubeConfigOptions::default()).await?)?;
        let contract = bound.provider_namespace;
        let tenant = Self {
            name,
            principal_token,
            identity,
            space: space(&client, &contract).await?,
            contract,
            offers: offers.to_vec(),
            client,
            api_token,
            backend_token,
        };
        for offer in offers {
            tenant.put(*offer, &tenant.name_of(*offer, "first")).await?;
        }
        if offers.iter().any(|offer| offer.claims) {
            for namespace in [&*tenant.space, RANCH] {
                for kind in ["Secret", "ConfigMap"] {
                    tenant.put_claimed(namespace, &claimed(kind)).await?;
                }
            }
        }
        Ok(tenant)
    }

    /// ServiceAccount of the kubeconfig.
    pub(crate) fn account(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.contract, names::KUBE_BINDER)
    }

    /// What an object of this tenant is called on the provider.
    pub(crate) fn name_of(&self, offer: Offer, name: &str) -> String {
        match offer.place {
            Place::Prefixed => names::prefixed_name(&self.contract, name),
            _ => format!("{}-{name}", self.name),
        }
    }

    /// What its objects say.
    pub(crate) fn secret(&self) -> String {
        format!("{} hides the gold under the oak", self.name)
    }

    /// The objects of an API, where this tenant's are.
    pub(crate) fn objects(&self, offer: Offer) -> Api<DynamicObject> {
        let (client, resource) = (self.client.clone(), offer.resource());
        match offer.place {
            Place::Mapped | Place::Beside => Api::namespaced_with(client, &self.space, &resource),
            Place::Contract => Api::namespaced_with(client, &self.contract, &resource),
            _ => Api::all_with(client, &resource),
        }
    }

    /// A copy as the konnector of this tenant would make it.
    pub(crate) fn copy(&self, offer: Offer, name: &str) -> DynamicObject {
        let mut object = offer.object(name, &self.secret());
        object.metadata.annotations = Some(
            [
                (annotations::CLUSTER_NAMESPACE, self.contract.as_str()),
                (
                    annotations::CONSUMER_NAMESPACE,
                    if offer.place == Place::Mapped { RANCH } else { "" },
                ),
                (annotations::CONSUMER_UID, "0-1-2"),
                (annotations::BOUND, annotations::TRUE),
            ]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
        );
        if offer.place == Place::SharedLastWins {
            let note = (
                format!("{}/{}", annotations::PROJECTION_OF, self.contract),
                "0-1-2".to_owned(),
            );
            object.annotations_mut().extend([note]);
        }
        object
    }

    /// A copy of a claimed object.
    async fn put_claimed(&self, namespace: &str, resource: &ApiResource) -> Result<()> {
        let mut object = self.copy(HORSES, &self.loot());
        object.types = Some(TypeMeta {
            api_version: "v1".to_owned(),
            kind: resource.kind.clone(),
        });
        // What is not base64 would not do for a Secret.
        object.data = json!({"data": {"text": self.loot_text()}});
        let objects: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), namespace, resource);
        eventually(
            format!("{} to create {} in {namespace}", self.name, resource.plural),
            SOON,
            || async { Ok(Some(objects.create(&PostParams::default(), &object).await?)) },
        )
        .await?;
        Ok(())
    }

    /// Name of what it has claimed.
    pub(crate) fn loot(&self) -> String {
        format!("{}-loot", self.name)
    }

    /// What that says, the same as text and as base64.
    pub(crate) fn loot_text(&self) -> String {
        format!("{}Hides", self.name).chars().cycle().take(16).collect()
    }

    /// Creates such a copy with the tenant's kubeconfig. Rights may come a moment after the bind that gives them.
    pub(crate) async fn put(&self, offer: Offer, name: &str) -> Result<DynamicObject> {
        let (objects, copy) = (self.objects(offer), self.copy(offer, name));
        eventually(
            format!("{} to create {} {name}", self.name, offer.name),
            SOON,
            || async { Ok(Some(objects.create(&PostParams::default(), &copy).await?)) },
        )
        .await
    }
}

/// A core resource.
pub(crate) fn claimed(kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", kind))
}

/// What a tenant calls its request and its export.
pub(crate) fn request_name(tenant: &str, offer: Offer) -> String {
    format!("{tenant}-{}", offer.name)
}

/// A request to bind.
pub(crate) fn wish(name: &str, template: &str, identity: &str, pretty: &str) -> CreateBindableResourcesRequestRequest {
    let mut wish = call::wish(name, template, identity);
    let spec = wish
        .bindable_resources_request
        .as_mut()
        .and_then(|request| request.spec.as_mut());
    if let Some(cluster) = spec.and_then(|spec| spec.cluster_identity.as_mut()) {
        cluster.pretty_name = format!("Casa {pretty}");
    }
    wish
}

/// The kubeconfig's two tokens: for the API server, and for the server.
fn tokens(document: &Kubeconfig) -> Result<(String, String)> {
    let user = document.auth_infos.first().and_then(|named| named.auth_info.as_ref());
    let token = user.and_then(|user| user.token.as_ref()).context("a token")?;
    let cluster = document.clusters.first().and_then(|named| named.cluster.as_ref());
    let extensions = cluster.and_then(|cluster| cluster.extensions.as_deref());
    let backend = Backend::find(extensions.unwrap_or_default())?.context("no extension")?;
    Ok((token.expose_secret().to_owned(), backend.token))
}

/// Asks for a provider namespace, as the konnector would.
async fn space(client: &Client, contract: &str) -> Result<String> {
    let namespaces: Api<api::APIServiceNamespace> = Api::namespaced(client.clone(), contract);
    let mut wanted = api::APIServiceNamespace::new(RANCH, api::APIServiceNamespaceSpec {});
    wanted.metadata.labels = Some([(labels::OWNER.to_owned(), "consumer".to_owned())].into());
    namespaces.create(&PostParams::default(), &wanted).await?;
    eventually(format!("a provider namespace for {contract}"), SOON, || async {
        Ok(namespaces.get(RANCH).await?.status.and_then(|status| status.namespace))
    })
    .await
}
