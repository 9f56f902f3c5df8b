//! The example API of the documents, `cowboys.wildwest.dev`, as the suites use it.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, ObjectMeta, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::{Consumer, Provider, eventually};

/// The longest wait for one step, generous enough for a busy machine.
pub const SOON: Duration = Duration::from_mins(2);

/// The cowboys in a namespace of one consumer, and their copies.
#[derive(Clone, Debug)]
pub struct Cowboys {
    /// The consumer's objects.
    pub ours: Api<DynamicObject>,
    /// The copies on the provider.
    pub copies: Api<DynamicObject>,
}

/// The resource `cowboys` of `wildwest.dev`.
pub fn resource() -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("wildwest.dev", "v1alpha1", "Cowboy"), "cowboys")
}

/// Builds a Cowboy with this spec.
pub fn cowboy(name: &str, spec: &Value) -> DynamicObject {
    DynamicObject::new(name, &resource()).data(json!({"spec": spec}))
}

/// Creates a namespace.
pub async fn namespace(client: Client, name: &str) -> Result<()> {
    let namespace = Namespace {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        ..Namespace::default()
    };
    Api::all(client).create(&PostParams::default(), &namespace).await?;
    Ok(())
}

impl Cowboys {
    /// The cowboys of a namespace of the consumer, which need not exist yet.
    pub async fn of(provider: &Provider, consumer: &Consumer, namespace: &str) -> Result<Self> {
        let contract = Provider::contract(&consumer.identity().await?);
        let copies = bindery_api::names::provider_namespace(&contract, namespace);
        Ok(Self {
            ours: Api::namespaced_with(consumer.plane.client(), namespace, &resource()),
            copies: Api::namespaced_with(provider.plane.client(), &copies, &resource()),
        })
    }

    /// Creates a Cowboy on the consumer.
    pub async fn create(&self, name: &str, intent: &str) -> Result<DynamicObject> {
        let object = cowboy(name, &json!({"intent": intent}));
        Ok(self.ours.create(&PostParams::default(), &object).await?)
    }

    /// Sets the intent on the consumer.
    pub async fn intend(&self, name: &str, intent: &str) -> Result<()> {
        let patch = Patch::Merge(json!({"spec": {"intent": intent}}));
        self.ours.patch(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Sets the status on the provider, as its operator would.
    pub async fn report(&self, name: &str, result: &str) -> Result<()> {
        let patch = Patch::Merge(json!({"status": {"result": result}}));
        self.copies.patch_status(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Waits until the copy has this intent.
    pub async fn copied(&self, name: &str, intent: &str) -> Result<DynamicObject> {
        let what = format!("the copy of {name} to intend {intent:?}");
        wait(&what, &self.copies, name, |copy| copy.data["spec"]["intent"] == intent).await
    }

    /// Waits until the consumer's object has this result.
    pub async fn reported(&self, name: &str, result: &str) -> Result<DynamicObject> {
        let what = format!("{name} to have the result {result:?}");
        wait(&what, &self.ours, name, |object| {
            object.data["status"]["result"] == result
        })
        .await
    }

    /// Waits until the object is gone on both sides.
    pub async fn gone(&self, name: &str) -> Result<()> {
        eventually(format!("{name} to be gone on both sides"), SOON, || async {
            let left = self.copies.get_opt(name).await?.is_some() || self.ours.get_opt(name).await?.is_some();
            Ok((!left).then_some(()))
        })
        .await
    }
}

/// Waits until an object exists for which `is_so` is true, and returns it.
pub async fn wait(
    what: &str,
    api: &Api<DynamicObject>,
    name: &str,
    is_so: impl Fn(&DynamicObject) -> bool,
) -> Result<DynamicObject> {
    eventually(what, SOON, || async { Ok(api.get_opt(name).await?.filter(&is_so)) }).await
}
