//! A provider and a consumer with a binding of `cowboys`, and the checks that hold after every failure.

use std::{collections::BTreeMap, path::PathBuf};

use anyhow::{Context as _, Result, ensure};
use bindery_api::{Condition, Conditions as _, annotations, finalizers, labels, names, v1alpha2::APIServiceBinding};
use futures::{TryStreamExt as _, stream};
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Secret};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams},
};
use serde_json::json;

use crate::{
    Consumer, NAMESPACE, Provider, eventually_ok, remains,
    wildwest::{self, Cowboys, SOON},
};

/// How many requests of one test are in flight at most.
const CONCURRENCY: usize = 8;

/// A provider, a consumer, and a binding of `cowboys` between them.
#[derive(Debug)]
pub struct Bound {
    /// The provider.
    pub provider: Provider,
    /// The consumer of that provider.
    pub consumer: Consumer,
    /// The contract namespace.
    pub contract: String,
    /// The file with the token of the owner of the contract.
    pub token: PathBuf,
    /// The cowboys of namespace `wild-west`.
    pub cowboys: Cowboys,
    /// The names and intents of the cowboys that [`Bound::converged`] expects.
    pub expected: BTreeMap<String, String>,
}

impl Bound {
    /// Starts two clusters without a binding. Server and konnector get the flags `lease`.
    pub async fn prepare(name: &str, lease: &[&str]) -> Result<Self> {
        let (provider, consumer) = (format!("{name}-p"), format!("{name}-c"));
        let provider = Provider::start_with(&provider, lease);
        let (provider, consumer) = tokio::try_join!(provider, Consumer::start_with(&consumer, lease))?;
        Self::between(provider, consumer).await
    }

    /// As [`Bound::prepare`], with clusters that run already.
    pub async fn between(provider: Provider, consumer: Consumer) -> Result<Self> {
        let token = provider.principal("team", &["cowboys"]).await?;
        wildwest::namespace(consumer.plane.client(), "wild-west").await?;
        let cowboys = Cowboys::of(&provider, &consumer, "wild-west").await?;
        Ok(Self {
            contract: Provider::contract(&consumer.identity().await?),
            provider,
            consumer,
            token,
            cowboys,
            expected: BTreeMap::new(),
        })
    }

    /// Starts two clusters and binds `cowboys`.
    pub async fn start(name: &str, lease: &[&str]) -> Result<Self> {
        let bound = Self::prepare(name, lease).await?;
        bound.bind(&["cowboys"]).await?;
        Ok(bound)
    }

    /// Runs `kubectl bind ARGS` as the owner.
    pub async fn bind(&self, args: &[&str]) -> Result<String> {
        self.consumer.bind(&self.provider, &self.token, args).await
    }

    /// Creates cowboys with these names, several at a time.
    pub async fn create(&mut self, names: impl IntoIterator<Item = String>) -> Result<()> {
        let names: Vec<_> = names.into_iter().collect();
        create(&self.cowboys, names.clone()).await?;
        self.expected
            .extend(names.into_iter().map(|name| (name, "ride".to_owned())));
        Ok(())
    }

    /// Changes the intent of a cowboy on the consumer.
    pub async fn intend(&mut self, name: &str, intent: &str) -> Result<()> {
        self.cowboys.intend(name, intent).await?;
        self.expected.insert(name.to_owned(), intent.to_owned());
        Ok(())
    }

    /// Deletes a cowboy on the consumer.
    pub async fn delete(&mut self, name: &str) -> Result<()> {
        self.cowboys.ours.delete(name, &DeleteParams::default()).await?;
        self.expected.remove(name);
        Ok(())
    }

    /// Waits until each expected cowboy has exactly one copy with its intent, and the contract has no other copy.
    pub async fn converged(&self) -> Result<()> {
        eventually_ok("each cowboy to have one copy", SOON, async || {
            let ours = by_name(self.cowboys.ours.list(&ListParams::default()).await?.items);
            ensure!(
                ours.keys().eq(self.expected.keys()),
                "on the consumer: {:?}",
                ours.keys()
            );
            // In all namespaces of the contract: a second copy would not stand beside the first.
            let everywhere = Api::<DynamicObject>::all_with(self.provider.plane.client(), &wildwest::resource());
            let mut copies = everywhere.list(&ListParams::default()).await?.items;
            copies.retain(|copy| {
                copy.namespace()
                    .is_some_and(|namespace| namespace.starts_with(&self.contract))
            });
            ensure!(
                copies.len() == ours.len(),
                "{} copies of {} objects",
                copies.len(),
                ours.len()
            );
            let copies = by_name(copies);
            for (name, object) in &ours {
                let copy = copies.get(name).with_context(|| format!("{name} has no copy"))?;
                is_copy_of(copy, object)?;
                let (intent, expected) = (&copy.data["spec"]["intent"], &self.expected[name]);
                ensure!(intent == expected, "{name} intends {intent} and not {expected}");
            }
            Ok(())
        })
        .await
    }

    /// Sets the status of every copy as the provider's operator does, and waits until the consumer's objects have it.
    pub async fn status_flows(&self, result: &str) -> Result<()> {
        let cowboys = &self.cowboys;
        stream::iter(self.expected.keys().map(Ok))
            .try_for_each_concurrent(CONCURRENCY, async |name| cowboys.report(name, result).await)
            .await?;
        eventually_ok(format!("every cowboy to be {result}"), SOON, async || {
            for object in cowboys.ours.list(&ListParams::default()).await? {
                let seen = &object.data["status"]["result"];
                ensure!(seen == result, "{} is {seen}", object.name_any());
            }
            Ok(())
        })
        .await
    }

    /// Waits until there is one binding, which is ready, one Secret with its kubeconfig, and at most one with a renewed one.
    pub async fn bound_once(&self) -> Result<()> {
        eventually_ok("one binding with one credential", SOON, async || {
            let bindings: Api<APIServiceBinding> = Api::all(self.consumer.plane.client());
            let bindings = bindings.list(&ListParams::default()).await?.items;
            ensure!(bindings.len() == 1, "{} bindings", bindings.len());
            ensure!(bindings[0].is_condition_true("Ready"), "{:?}", bindings[0].conditions());
            let (renewed, given): (Vec<_>, Vec<_>) = self
                .kubeconfigs()
                .await?
                .into_iter()
                .partition(|secret| secret.labels().contains_key(labels::CONTRACT_UID));
            ensure!(
                given.len() == 1 && renewed.len() <= 1,
                "{} given, {} renewed",
                given.len(),
                renewed.len()
            );
            Ok(())
        })
        .await
    }

    /// Returns the Secrets of the consumer that hold a kubeconfig.
    pub async fn kubeconfigs(&self) -> Result<Vec<Secret>> {
        let secrets: Api<Secret> = Api::namespaced(self.consumer.plane.client(), NAMESPACE);
        let mut secrets = secrets.list(&ListParams::default()).await?.items;
        let holds = |secret: &Secret| {
            secret
                .data
                .as_ref()
                .is_some_and(|data| data.contains_key(names::KUBECONFIG_KEY))
        };
        secrets.retain(holds);
        Ok(secrets)
    }

    /// Returns a condition of the binding.
    pub async fn condition(&self, type_: &str) -> Result<Condition> {
        let bindings: Api<APIServiceBinding> = Api::all(self.consumer.plane.client());
        let binding = bindings.get("cowboys").await?;
        binding
            .condition(type_)
            .cloned()
            .with_context(|| format!("no condition {type_}"))
    }

    /// Unbinds with the provider's objects, and waits until nothing of the binding is left.
    pub async fn unbind(&self) -> Result<()> {
        self.bind(&["unbind", "cowboys", "--delete-objects"]).await?;
        self.is_gone().await
    }

    /// Waits until nothing of the binding is left.
    pub async fn is_gone(&self) -> Result<()> {
        remains::none(&self.provider, &self.consumer, "cowboys", "wildwest.dev").await?;
        eventually_ok("all kubeconfigs to be gone", SOON, async || {
            let left = self.kubeconfigs().await?;
            ensure!(left.is_empty(), "{} are left", left.len());
            Ok(())
        })
        .await
    }
}

/// Says in a binding that the provider's objects are deleted with it.
pub async fn deletes_copies(bindings: &Api<APIServiceBinding>, name: &str) -> Result<()> {
    let patch = Patch::Merge(json!({"spec": {"deletionPolicy": "Delete"}}));
    bindings.patch(name, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Returns names such as `early-007`.
pub fn names(prefix: &str, numbers: std::ops::Range<usize>) -> impl Iterator<Item = String> {
    numbers.map(move |number| format!("{prefix}-{number:03}"))
}

/// Creates cowboys, several at a time.
pub async fn create(cowboys: &Cowboys, names: Vec<String>) -> Result<()> {
    stream::iter(names.into_iter().map(Ok))
        .try_for_each_concurrent(CONCURRENCY, async |name| cowboys.create(&name, "ride").await.map(drop))
        .await
}

/// Waits until there are this many copies.
pub async fn copies(cowboys: &Cowboys, at_least: usize) -> Result<()> {
    eventually_ok(format!("{at_least} copies"), SOON, async || {
        let copies = count_copies(cowboys).await?;
        ensure!(copies >= at_least, "{copies}");
        Ok(())
    })
    .await
}

/// Returns the number of copies in the provider namespace.
pub async fn count_copies(cowboys: &Cowboys) -> Result<usize> {
    Ok(cowboys.copies.list_metadata(&ListParams::default()).await?.items.len())
}

/// Frees the Lease of a process that was killed, so that its successor need not wait until the Lease expires.
pub async fn free_lease(client: Client, name: &str) -> Result<()> {
    let leases: Api<Lease> = Api::namespaced(client, NAMESPACE);
    // Not deleted: the konnector's Lease records which contracts it holds.
    let released = Patch::Merge(json!({"spec": {"holderIdentity": null}}));
    match leases.patch(name, &PatchParams::default(), &released).await {
        // It was killed before it had one.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        patched => Ok(patched.map(drop)?),
    }
}

fn is_copy_of(copy: &DynamicObject, object: &DynamicObject) -> Result<()> {
    let name = object.name_any();
    let mark = |object: &DynamicObject, key: &str| object.annotations().get(key).cloned();
    ensure!(
        mark(copy, annotations::CONSUMER_UID) == object.uid(),
        "the copy of {name} is another object's"
    );
    ensure!(
        mark(object, annotations::PROVIDER_UID) == copy.uid(),
        "{name} has noted another copy"
    );
    let held = object.finalizers().iter().filter(|held| *held == finalizers::SYNCER);
    ensure!(held.count() == 1, "{name} is not held");
    Ok(())
}

fn by_name(objects: Vec<DynamicObject>) -> BTreeMap<String, DynamicObject> {
    objects.into_iter().map(|object| (object.name_any(), object)).collect()
}
