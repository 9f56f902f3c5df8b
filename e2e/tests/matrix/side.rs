//! One of the two consumers of a cell.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use bindery_api::{Conditions as _, annotations, names, v1alpha2::APIServiceBinding};
use bindery_e2e::{Consumer, Provider, eventually, wildwest::SOON};
use k8s_openapi::api::{
    core::v1::{Namespace, Secret},
    events::v1::Event,
};
use kube::{
    Api, Client, Config, ResourceExt as _,
    api::{DynamicObject, ListParams, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};

use crate::{
    aspects::stretched::longest,
    cells::{Cell, Place},
    kinds::Kind,
};

/// A consumer with its contract for one cell.
pub(crate) struct Side<'w> {
    /// `a` or `b`, and the first word of its objects.
    pub(crate) who: &'static str,
    pub(crate) cell: &'static Cell,
    pub(crate) provider: &'w Provider,
    pub(crate) consumer: &'w Consumer,
    pub(crate) contract: String,
    pub(crate) identity: String,
    /// File with its owner's token.
    pub(crate) token: PathBuf,
}

/// What is there of an object on both sides; a write changes it.
pub(crate) type Versions = [Option<(String, String)>; 2];

// === impl Side ===

impl<'w> Side<'w> {
    pub(crate) fn new(
        who: &'static str,
        cell: &'static Cell,
        provider: &'w Provider,
        consumer: &'w Consumer,
        token: PathBuf,
    ) -> Self {
        let identity = format!("{}-of-{who}", cell.name);
        Self {
            who,
            cell,
            provider,
            consumer,
            contract: Provider::contract(&identity),
            identity,
            token,
        }
    }

    /// The same under another identity of the cluster, and so in another contract.
    #[must_use]
    pub(crate) fn of_identity(self, identity: &str) -> Self {
        Self {
            contract: Provider::contract(identity),
            identity: identity.to_owned(),
            ..self
        }
    }

    // --- The binding.

    /// Makes the namespaces of the cell and binds.
    pub(crate) async fn bind(&self) -> Result<()> {
        self.bind_in(&[]).await
    }

    /// Makes these namespaces and those of the cell, and binds with claims in all of them.
    pub(crate) async fn bind_in(&self, more: &[&str]) -> Result<()> {
        // Objects of the provider come into namespaces without bound objects too, and those of cluster-scoped APIs have none.
        let name = self.cell.name;
        let mut args = vec![name, "--cluster-identity", &self.identity];
        let long = longest(names::NAMESPACE_LENGTH_MAX);
        for namespace in [&[name, &long[0], &long[1]], more].concat() {
            self.namespace(namespace).await?;
            args.extend(["--claim-namespace", namespace]);
        }
        self.consumer.bind(self.provider, &self.token, &args).await.map(drop)
    }

    /// Makes a namespace on the consumer, unless it is there.
    pub(crate) async fn namespace(&self, name: &str) -> Result<()> {
        let namespaces: Api<Namespace> = Api::all(self.consumer.plane.client());
        let apply = PatchParams::apply("matrix").force();
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        namespaces.patch(name, &apply, &Patch::Apply(namespace)).await?;
        Ok(())
    }

    pub(crate) fn bindings(&self) -> Api<APIServiceBinding> {
        Api::all(self.consumer.plane.client())
    }

    /// Waits until the binding is ready.
    pub(crate) async fn ready(&self) -> Result<()> {
        eventually(format!("the binding of {} to be ready", self.who), SOON, async || {
            let binding = self.bindings().get(self.cell.name).await?;
            ensure!(binding.is_condition_true("Ready"), "{:?}", binding.conditions());
            Ok(Some(()))
        })
        .await
    }

    /// Waits until a binding that was deleted is gone.
    pub(crate) async fn ended(&self) -> Result<()> {
        eventually(format!("the binding of {} to end", self.who), SOON, async || {
            let left = self.bindings().get_opt(self.cell.name).await?;
            ensure!(left.is_none(), "{:?}", left.and_then(|binding| binding.status));
            Ok(Some(()))
        })
        .await
    }

    /// A client with exactly the rights on the provider that this consumer was given.
    pub(crate) async fn binder(&self) -> Result<Client> {
        let secrets: Api<Secret> = Api::namespaced(self.consumer.plane.client(), names::KUBE_BIND_NAMESPACE);
        let secret = secrets.get(&names::provider_kubeconfig_secret(self.cell.name)).await?;
        let data = secret.data.context("a Secret without data")?;
        let document = data.get(names::KUBECONFIG_KEY).context("no kubeconfig")?;
        let document: Kubeconfig = serde_saphyr::from_str(std::str::from_utf8(&document.0)?)?;
        let config = Config::from_custom_kubeconfig(document, &KubeConfigOptions::default()).await?;
        Ok(Client::try_from(config)?)
    }

    // --- Objects.

    /// The consumer's objects, those of the cell's namespace.
    pub(crate) fn ours(&self, kind: Kind) -> Api<DynamicObject> {
        self.ours_in(kind, self.cell.name)
    }

    /// The consumer's objects of a namespace.
    pub(crate) fn ours_in(&self, kind: Kind, namespace: &str) -> Api<DynamicObject> {
        let scope = self.cell.consumer_scope();
        kind.api(self.cell, scope, self.consumer.plane.client(), namespace)
    }

    /// Their counterparts on the provider.
    pub(crate) fn copies(&self, kind: Kind) -> Api<DynamicObject> {
        self.copies_in(kind, self.cell.name)
    }

    /// Counterparts of what is in a namespace of the consumer.
    pub(crate) fn copies_in(&self, kind: Kind, namespace: &str) -> Api<DynamicObject> {
        self.copies_as(self.provider.plane.client(), kind, namespace)
    }

    /// The same as whoever the client belongs to sees them.
    pub(crate) fn copies_as(&self, client: Client, kind: Kind, namespace: &str) -> Api<DynamicObject> {
        let place = self.place(kind, namespace);
        kind.api(self.cell, self.cell.provider_scope(), client, &place)
    }

    /// The provider's namespace for objects of a namespace of the consumer.
    pub(crate) fn place(&self, kind: Kind, namespace: &str) -> String {
        match self.cell.place {
            Place::Contract if kind == Kind::Bound => self.contract.clone(),
            Place::Beside if kind == Kind::Bound => names::provider_namespace(&self.contract, self.cell.name),
            Place::None | Place::NoneLastWins => namespace.to_owned(),
            _ => names::provider_namespace(&self.contract, namespace),
        }
    }

    /// The name of an object's copy.
    pub(crate) fn copy_name(&self, kind: Kind, name: &str) -> String {
        if kind == Kind::Bound && self.cell.place == Place::Prefixed {
            names::prefixed_name(&self.contract, name)
        } else {
            name.to_owned()
        }
    }

    /// Makes an object of the consumer's.
    pub(crate) async fn create(&self, kind: Kind, object: &DynamicObject) -> Result<DynamicObject> {
        let what = format!("{} to create {}", self.who, object.name_any());
        let ours = self.ours(kind);
        eventually(what, SOON, async || {
            match ours.create(&PostParams::default(), object).await {
                // An API server that just got many APIs may not find one for a moment which it has served already.
                Err(kube::Error::Api(status)) if status.code == 404 => Err(kube::Error::Api(status).into()),
                made => Ok(Some(made)),
            }
        })
        .await?
        .with_context(|| format!("{} cannot create {}", self.who, object.name_any()))
    }

    /// Changes the consumer's object.
    pub(crate) async fn patch(&self, kind: Kind, name: &str, patch: Value) -> Result<DynamicObject> {
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        let patched = self.ours(kind).patch(name, &params, &patch).await;
        patched.with_context(|| format!("{} cannot change {name}", self.who))
    }

    /// Changes the copy as the provider would.
    pub(crate) async fn patch_copy(&self, kind: Kind, name: &str, patch: Value) -> Result<DynamicObject> {
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        let copy = self.copy_name(kind, name);
        let patched = self.copies(kind).patch(&copy, &params, &patch).await;
        patched.with_context(|| format!("the provider cannot change {}'s {name}", self.who))
    }

    /// Sets fields of the copy's status as the provider's operator would.
    pub(crate) async fn report(&self, name: &str, status: Value) -> Result<()> {
        let name = self.copy_name(Kind::Bound, name);
        self.write_status(&self.copies(Kind::Bound), &name, status).await
    }

    /// Sets fields of an object's status.
    pub(crate) async fn write_status(&self, api: &Api<DynamicObject>, name: &str, status: Value) -> Result<()> {
        let (params, patch) = (PatchParams::default(), Patch::Merge(json!({"status": status})));
        if self.cell.status_subresource {
            api.patch_status(name, &params, &patch).await?;
        } else {
            api.patch(name, &params, &patch).await?;
        }
        Ok(())
    }

    // --- What is waited for.

    /// Waits until the copy is of this contract and as wanted.
    pub(crate) async fn copy_is(
        &self,
        what: &str,
        kind: Kind,
        name: &str,
        is_so: impl Fn(&DynamicObject) -> bool,
    ) -> Result<DynamicObject> {
        let (copies, copy) = (self.copies(kind), self.copy_name(kind, name));
        eventually(format!("{}'s copy of {name} {what}", self.who), SOON, async || {
            let copy = copies.get_opt(&copy).await?.context("there is none")?;
            ensure!(self.owns(&copy), "it is of another contract: {:?}", copy.annotations());
            ensure!(is_so(&copy), "it is {}", shown(&copy));
            Ok(Some(copy))
        })
        .await
    }

    /// Waits until the copy says this word.
    pub(crate) async fn copied(&self, kind: Kind, name: &str, word: &str) -> Result<DynamicObject> {
        let what = format!("to say {word:?}");
        self.copy_is(&what, kind, name, |copy| kind.is(copy, word)).await
    }

    /// Waits until there is no copy of this contract.
    pub(crate) async fn withdrawn(&self, kind: Kind, name: &str) -> Result<()> {
        let (copies, copy) = (self.copies(kind), self.copy_name(kind, name));
        eventually(format!("{}'s copy of {name} to be gone", self.who), SOON, async || {
            let left = copies.get_opt(&copy).await?.filter(|copy| self.owns(copy));
            Ok(left.is_none().then_some(()))
        })
        .await
    }

    /// Waits until the consumer's object is as wanted.
    pub(crate) async fn ours_is(
        &self,
        what: &str,
        kind: Kind,
        name: &str,
        is_so: impl Fn(&DynamicObject) -> bool,
    ) -> Result<DynamicObject> {
        let ours = self.ours(kind);
        eventually(format!("{}'s {name} {what}", self.who), SOON, async || {
            let object = ours.get_opt(name).await?.context("there is none")?;
            ensure!(is_so(&object), "it is {}", shown(&object));
            Ok(Some(object))
        })
        .await
    }

    /// Waits until the object has this result.
    pub(crate) async fn reported(&self, name: &str, result: &str) -> Result<DynamicObject> {
        let what = format!("to have the result {result:?}");
        let is_so = |object: &DynamicObject| object.data["status"]["result"] == result;
        self.ours_is(&what, Kind::Bound, name, is_so).await
    }

    /// Waits until the consumer's object is gone.
    pub(crate) async fn gone(&self, kind: Kind, name: &str) -> Result<()> {
        let ours = self.ours(kind);
        eventually(format!("{}'s {name} to be gone", self.who), SOON, async || {
            Ok(ours.get_opt(name).await?.is_none().then_some(()))
        })
        .await
    }

    /// Waits until all writes over a creation are done.
    pub(crate) async fn settled(&self, kind: Kind, name: &str, word: &str) -> Result<DynamicObject> {
        let copy = self.copied(kind, name, word).await?;
        if kind == Kind::Bound {
            let noted =
                |object: &DynamicObject| object.annotations().get(annotations::PROVIDER_UID) == copy.uid().as_ref();
            self.ours_is("to know its copy", kind, name, noted).await?;
        }
        Ok(copy)
    }

    /// Waits until an event says of the consumer's object that another's is in its place.
    pub(crate) async fn conflict(&self, kind: Kind, name: &str) -> Result<Event> {
        let object = self.ours(kind).get(name).await?;
        let namespace = object.namespace().unwrap_or_else(|| "default".to_owned());
        let events: Api<Event> = Api::namespaced(self.consumer.plane.client(), &namespace);
        let about = ListParams::default().fields(&format!("regarding.name={name}"));
        let what = format!("an event Conflict of {}'s {name}", self.who);
        eventually(what, SOON, async || {
            let events = events.list(&about).await?.items;
            let is_it = |event: &&Event| {
                let of = event.regarding.as_ref().and_then(|regarding| regarding.uid.clone());
                event.reason.as_deref() == Some("Conflict") && of == object.uid()
            };
            Ok(events.iter().find(is_it).cloned())
        })
        .await
    }

    // --- What is seen.

    /// Whether an object on the provider is a copy of this contract.
    pub(crate) fn owns(&self, copy: &DynamicObject) -> bool {
        copy.annotations().get(annotations::CLUSTER_NAMESPACE) == Some(&self.contract)
    }

    /// What is there of an object of this consumer alone.
    pub(crate) async fn versions(&self, kind: Kind, name: &str) -> Result<Versions> {
        let version = |object: DynamicObject| {
            (
                object.uid().unwrap_or_default(),
                object.resource_version().unwrap_or_default(),
            )
        };
        let ours = self.ours(kind).get_opt(name).await?;
        let copy = if self.cell.shares_names() {
            None
        } else {
            self.copies(kind).get_opt(&self.copy_name(kind, name)).await?
        };
        Ok([ours.map(version), copy.map(version)])
    }
}

/// An object as errors show it.
pub(crate) fn shown(object: &DynamicObject) -> Value {
    let mut object = object.clone();
    object.metadata.managed_fields = None;
    serde_json::to_value(object).unwrap_or_default()
}
