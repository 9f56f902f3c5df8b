//! A provider that attacks its consumers: it is admin of its own cluster, and writes there whatever it likes. On a consumer
//! nothing comes of it beyond what was accepted.

mod claims;
mod copies;
mod neighbours;
mod planted;
mod pushed;
mod schemas;

use std::time::Duration;

use anyhow::{Result, anyhow};
use bindery_api::v1alpha2 as api;
use bindery_e2e::{Consumer, Provider, lease, run, wildwest};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api,
    api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::offers::{self, Offer, Place};

const SPURS: Offer = bound("spurs", "Spur", false);
const BOOTS: Offer = bound("boots", "Boot", false);
const HATS: Offer = bound("hats", "Hat", true);
const LASSOS: Offer = bound("lassos", "Lasso", false);
const REINS: Offer = bound("reins", "Rein", false);
const STIRRUPS: Offer = bound("stirrups", "Stirrup", false);

/// How long something that must not happen is waited for.
const A_WHILE: Duration = Duration::from_secs(2);

/// A provider and a consumer. They live as long as the process, whose end ends them.
struct Ranch {
    provider: Provider,
    consumer: Consumer,
}

const fn bound(name: &'static str, kind: &'static str, claims: bool) -> Offer {
    Offer {
        name,
        kind,
        place: Place::Mapped,
        claims,
    }
}

/// Runs a test; if it fails, with what server and konnector said last.
fn betray(body: impl AsyncFnOnce(&'static Ranch) -> Result<()>) -> Result<()> {
    static RANCH: OnceCell<Result<Ranch, String>> = OnceCell::const_new();
    run(async {
        let started = async || Box::pin(Ranch::start()).await.map_err(|error| format!("{error:#}"));
        let ranch = RANCH.get_or_init(started).await.as_ref().map_err(anyhow::Error::msg)?;
        body(ranch).await.map_err(|error| {
            let processes = ranch.provider.servers.iter().chain(&ranch.consumer.konnectors);
            let tails: Vec<_> = processes
                .map(|process| format!("{}:\n{}", process.name(), process.tail()))
                .collect();
            anyhow!("{error:#}\n\n{}", tails.join("\n"))
        })
    })
}

// === impl Ranch ===

impl Ranch {
    async fn start() -> Result<Self> {
        Self::start_as("betrayer", "betrayed", &[SPURS, BOOTS, HATS, LASSOS, REINS, STIRRUPS]).await
    }

    /// Starts a provider of these names and APIs, and a consumer.
    async fn start_as(provider: &str, consumer: &str, all: &[Offer]) -> Result<Self> {
        // Whose consumers see the most of each other.
        let flags = [&lease::PATIENT[..], &["--consumer-scope", "cluster"]].concat();
        let (provider, consumer) = tokio::try_join!(
            Provider::start_with(provider, &flags),
            Consumer::start_with(consumer, &lease::PATIENT)
        )?;
        offers::publish(&provider, all).await?;
        Ok(Self { provider, consumer })
    }

    /// The contract namespace of an API: each test has its own.
    fn contract(offer: Offer) -> String {
        Provider::contract(&format!("cluster-of-{}", offer.name))
    }

    /// Binds an API with `kubectl bind`, all its claims accepted, and makes a namespace of its name.
    async fn bind(&self, offer: Offer, more: &[&str]) -> Result<()> {
        let token = self
            .provider
            .principal(&format!("binder-of-{}", offer.name), &[offer.name])
            .await?;
        let identity = format!("cluster-of-{}", offer.name);
        let args = [&[offer.name, "--cluster-identity", &identity], more].concat();
        self.consumer.bind(&self.provider, &token, &args).await?;
        wildwest::namespace(self.consumer.plane.client(), offer.name).await
    }

    /// The consumer's objects of an API in a namespace.
    fn ours(&self, offer: Offer, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.consumer.plane.client(), namespace, &offer.resource())
    }

    /// Their copies, in the hands of the provider.
    fn copies(&self, offer: Offer, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(
            self.provider.plane.client(),
            &Self::space(offer, namespace),
            &offer.resource(),
        )
    }

    /// The provider namespace of one of the consumer's.
    fn space(offer: Offer, namespace: &str) -> String {
        bindery_api::names::provider_namespace(&Self::contract(offer), namespace)
    }

    /// Creates an object on the consumer and waits for its copy.
    async fn create(&self, offer: Offer, namespace: &str, name: &str) -> Result<DynamicObject> {
        let object = offer.object(name, "ride");
        let created = self
            .ours(offer, namespace)
            .create(&PostParams::default(), &object)
            .await?;
        let what = format!("the copy of {namespace}/{name}");
        let copied = wildwest::wait(&what, &self.copies(offer, namespace), name, |_| true).await;
        if let Err(error) = copied {
            let status = self.binding(offer.name).await?.status;
            return Err(error.context(format!("binding {}: {status:?}", offer.name)));
        }
        Ok(created)
    }

    /// A new object goes up and its status comes down: what was there before has been seen by then.
    async fn round_trip(&self, offer: Offer, namespace: &str, name: &str) -> Result<()> {
        self.create(offer, namespace, name).await?;
        report(&self.copies(offer, namespace), name, "seen").await?;
        let what = format!("the status of {namespace}/{name}");
        let ours = self.ours(offer, namespace);
        wildwest::wait(&what, &ours, name, |object| object.data["status"]["text"] == "seen")
            .await
            .map(drop)
    }

    /// The binding of an API.
    async fn binding(&self, name: &str) -> Result<api::APIServiceBinding> {
        Ok(Api::all(self.consumer.plane.client()).get(name).await?)
    }
}

/// Sets the status of a copy.
async fn report(copies: &Api<DynamicObject>, name: &str, text: &str) -> Result<()> {
    let status = Patch::Merge(json!({"status": {"text": text}}));
    copies.patch_status(name, &PatchParams::default(), &status).await?;
    Ok(())
}

/// A Secret with the label that claims select by.
fn secret(name: &str, type_: &str, text: &str) -> Secret {
    let mut secret = Secret {
        data: Some([("text".to_owned(), ByteString(text.as_bytes().to_vec()))].into()),
        type_: Some(type_.to_owned()),
        ..Secret::default()
    };
    secret.metadata.name = Some(name.to_owned());
    secret.metadata.labels = Some([("ranch".to_owned(), "open".to_owned())].into());
    secret
}

/// A resource by group, version, kind and plural name.
fn resource(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&kube::api::GroupVersionKind::gvk(group, version, kind), plural)
}

/// The same as what an admin would send with kubectl.
fn list(items: &[Value]) -> String {
    json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()
}
