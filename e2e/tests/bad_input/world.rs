//! One provider and one consumer for all cases, and for each case an API, a principal and a contract of its own.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, anyhow, ensure};
use bindery_api::{Conditions as _, annotations, names, v1alpha2 as api};
pub(crate) use bindery_e2e::call::wish;
use bindery_e2e::{Consumer, Provider, bound::deletes_copies, eventually, lease, run, wildwest::SOON};
use bindery_sdk::{Bound, Client, Error};
use k8s_openapi::{
    ByteString,
    api::core::v1::{Namespace, Secret},
};
use kube::{
    Api, ResourceExt as _,
    api::{DynamicObject, ListParams, PostParams},
};
use tokio::sync::OnceCell;

use crate::{expect::is_false, offer::Offer};

/// How long a bind may take.
const PATIENCE: Duration = Duration::from_mins(2);
/// How long something that must not happen is waited for.
pub(crate) const A_WHILE: Duration = Duration::from_secs(2);

/// Why it could not be started is told by every case: it is not tried again.
static WORLD: OnceCell<Result<World, String>> = OnceCell::const_new();

/// What the cases share. It lives as long as the process, whose end ends it.
pub(crate) struct World {
    pub(crate) provider: Provider,
    pub(crate) consumer: Consumer,
}

/// A case: its name is that of its API, its principal, its template and its contract.
pub(crate) struct Case {
    pub(crate) world: &'static World,
    pub(crate) name: &'static str,
}

/// Runs a case; if it fails, with what server and konnector said last.
pub(crate) fn case(name: &'static str, body: impl AsyncFnOnce(&Case) -> Result<()>) -> Result<()> {
    run(async {
        let started = WORLD.get_or_init(async || World::start().await.map_err(|error| format!("{error:#}")));
        let world = started.await.as_ref().map_err(anyhow::Error::msg)?;
        body(&Case { world, name }).await.map_err(|error| {
            let logs = world.provider.servers.iter().chain(&world.consumer.konnectors);
            let tails: Vec<_> = logs
                .map(|process| format!("{}:\n{}", process.name(), process.tail()))
                .collect();
            anyhow!("case {name}: {error:#}\n\n{}", tails.join("\n"))
        })
    })
}

// === impl World ===

impl World {
    async fn start() -> Result<Self> {
        let (provider, consumer) = tokio::try_join!(
            Provider::start_with("bad-p", &lease::PATIENT),
            Consumer::start_with("bad-c", &lease::PATIENT)
        )?;
        Ok(Self { provider, consumer })
    }
}

// === impl Case ===

impl Case {
    pub(crate) fn provider(&self) -> &'static Provider {
        &self.world.provider
    }

    pub(crate) fn consumer(&self) -> &'static Consumer {
        &self.world.consumer
    }

    /// Identity of a consumer cluster of the case's own.
    pub(crate) fn identity(&self) -> String {
        format!("cluster-of-{}", self.name)
    }

    /// The contract namespace for that identity.
    pub(crate) fn contract(&self) -> String {
        Provider::contract(&self.identity())
    }

    /// A principal of that name who may bind these templates, and a client that calls as it.
    pub(crate) async fn principal(&self, name: &str, templates: &[&str]) -> Result<Principal> {
        let token = self.provider().principal(name, templates).await?;
        Ok(Principal {
            client: self.client(&std::fs::read_to_string(&token)?)?,
            username: format!("system:serviceaccount:{name}:binder"),
            token,
        })
    }

    /// A client that sends this token.
    pub(crate) fn client(&self, token: &str) -> Result<Client> {
        let builder = Client::builder(self.provider().address()).ca_pem(self.provider().plane.ca_pem());
        Ok(builder.token(token.to_owned()).build()?)
    }

    /// Offers an API of the case's own, ready to be bound.
    pub(crate) async fn offer(&self) -> Result<Offer> {
        let offer = Offer::new(self.name);
        offer.publish(self.provider()).await?;
        Ok(offer)
    }

    /// Offers an API and binds it to the consumer with kubectl-bind, under the case's identity.
    pub(crate) async fn bind(&self, principal: &Principal, more: &[&str]) -> Result<()> {
        let identity = self.identity();
        let args = [&[self.name, "--cluster-identity", &identity], more].concat();
        self.consumer()
            .bind(self.provider(), &principal.token, &args)
            .await
            .map(drop)
    }

    /// The consumer's objects of an API in a namespace.
    pub(crate) fn ours(&self, offer: Offer, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.consumer().plane.client(), namespace, &offer.resource())
    }

    /// Their copies on the provider.
    pub(crate) fn copies(&self, offer: Offer, namespace: &str) -> Api<DynamicObject> {
        let place = names::provider_namespace(&self.contract(), namespace);
        Api::namespaced_with(self.provider().plane.client(), &place, &offer.resource())
    }

    /// Makes a Secret with a kubeconfig, and a binding that names it.
    pub(crate) async fn plant_binding(&self, name: &str, kubeconfig: &str) -> Result<()> {
        self.plant_secret(name, "kubeconfig", kubeconfig).await?;
        self.plant_binding_to(name, "kube-bind", name).await
    }

    /// Makes a Secret with one key in the konnector's namespace.
    pub(crate) async fn plant_secret(&self, name: &str, key: &str, content: &str) -> Result<()> {
        let mut secret = Secret {
            data: Some([(key.to_owned(), ByteString(content.as_bytes().to_vec()))].into()),
            ..Secret::default()
        };
        secret.metadata.name = Some(name.to_owned());
        let secrets = Api::namespaced(self.consumer().plane.client(), "kube-bind");
        secrets.create(&PostParams::default(), &secret).await?;
        Ok(())
    }

    /// Makes a binding to key `kubeconfig` of a Secret.
    pub(crate) async fn plant_binding_to(&self, name: &str, namespace: &str, secret: &str) -> Result<()> {
        let spec = api::APIServiceBindingSpec {
            kubeconfig_secret_ref: api::ClusterSecretKeyRef {
                name: secret.to_owned(),
                key: "kubeconfig".to_owned(),
                namespace: namespace.to_owned(),
            },
            ..api::APIServiceBindingSpec::default()
        };
        let bindings = Api::all(self.consumer().plane.client());
        bindings
            .create(&PostParams::default(), &api::APIServiceBinding::new(name, spec))
            .await?;
        Ok(())
    }

    /// Waits until a binding's condition is `False` for this reason; its message must say all of `says`.
    pub(crate) async fn refused_binding(&self, name: &str, type_: &str, reason: &str, says: &[&str]) -> Result<()> {
        let bindings: Api<api::APIServiceBinding> = Api::all(self.consumer().plane.client());
        is_false(&bindings, name, type_, reason, says).await
    }

    /// Waits until a binding is ready.
    pub(crate) async fn ready_binding(&self, name: &str) -> Result<()> {
        let bindings: Api<api::APIServiceBinding> = Api::all(self.consumer().plane.client());
        eventually(format!("binding {name} to be ready"), SOON, || async {
            let binding = bindings.get(name).await?;
            ensure!(binding.is_condition_true("Ready"), "{:?}", binding.conditions());
            Ok(Some(()))
        })
        .await
    }

    /// Deletes a binding and waits until it is gone.
    pub(crate) async fn unbind(&self, name: &str) -> Result<()> {
        let bindings: Api<api::APIServiceBinding> = Api::all(self.consumer().plane.client());
        deletes_copies(&bindings, name).await?;
        bindings.delete(name, &kube::api::DeleteParams::default()).await?;
        eventually(format!("binding {name} to be gone"), SOON, || async {
            let left = bindings.get_opt(name).await?;
            ensure!(left.is_none(), "{:?}", left.and_then(|binding| binding.status));
            Ok(Some(()))
        })
        .await
    }

    /// Nothing was written for this principal or this cluster identity.
    pub(crate) async fn nothing_written(&self, principal: &Principal, identity: &str) -> Result<()> {
        let requests = self.requests(principal).await?;
        ensure!(requests.is_empty(), "requests of {}: {requests:?}", principal.username);
        let namespaces: Api<Namespace> = Api::all(self.provider().plane.client());
        let contract = namespaces.get_opt(&Provider::contract(identity)).await?;
        ensure!(contract.is_none(), "a contract for {identity} was made");
        Ok(())
    }

    /// Resource versions of a principal's requests.
    pub(crate) async fn requests(&self, principal: &Principal) -> Result<Vec<(String, Option<String>)>> {
        let api: Api<api::BindableResourcesRequest> = Api::namespaced(self.provider().plane.client(), "kube-bind");
        let is_of = |request: &api::BindableResourcesRequest| {
            let by = request.annotations().get(annotations::PRINCIPAL);
            by.is_some_and(|by| by.contains(&format!("{:?}", principal.username)))
        };
        let list = api.list(&ListParams::default()).await?;
        let versions = list.into_iter().filter(is_of);
        Ok(versions
            .map(|request| (request.name_any(), request.resource_version()))
            .collect())
    }
}

/// Somebody who calls the server.
pub(crate) struct Principal {
    pub(crate) client: Client,
    pub(crate) username: String,
    /// The file with its token.
    pub(crate) token: PathBuf,
}

impl Principal {
    /// Binds a template for a cluster, under the template's name.
    pub(crate) async fn bind(&self, template: &str, identity: &str) -> Result<Bound, Error> {
        self.client
            .bind_by_request(wish(template, template, identity), PATIENCE, |_| ())
            .await
    }

    /// Asks once to bind a template for a cluster, under the template's name.
    pub(crate) async fn ask(&self, template: &str, identity: &str) -> Result<(), Error> {
        let answer = self
            .client
            .create_bindable_resources_request(wish(template, template, identity))
            .await;
        answer.map(drop)
    }
}

/// A kubeconfig from a bind, as text.
pub(crate) fn kubeconfig(bound: &Bound) -> Result<String> {
    let kubeconfig = bound.kubeconfig.as_ref().context("a bind without a kubeconfig")?;
    Ok(String::from_utf8(kubeconfig.expose().to_vec())?)
}
