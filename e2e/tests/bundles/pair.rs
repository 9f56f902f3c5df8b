//! An object of the consumer's and its copy: what no failure may take away.

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::{
    eventually_ok,
    offer::Offer,
    wildwest::{self, SOON},
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::{contract::Contract, world::World};

/// An object of the consumer's, and its copy on the provider.
pub(crate) struct Pair {
    pub(crate) name: String,
    pub(crate) ours: Api<DynamicObject>,
    pub(crate) copies: Api<DynamicObject>,
    uid: Option<String>,
}

// === impl Pair ===

impl Pair {
    /// Makes the object in a namespace that is there, and waits for its copy.
    pub(crate) async fn create(
        world: &World,
        contract: &Contract,
        offer: Offer,
        namespace: &str,
        name: &str,
    ) -> Result<Self> {
        let ours = world.ours(offer, namespace);
        let widget = offer.widget(name, "red");
        let object = eventually_ok(format!("{name} to be created"), SOON, async || {
            Ok(ours.create(&PostParams::default(), &widget).await?)
        })
        .await?;
        let pair = Self {
            name: name.to_owned(),
            ours,
            copies: contract.copies(offer, namespace),
            uid: object.uid(),
        };
        pair.says("red").await?;
        Ok(pair)
    }

    /// Changes the object.
    pub(crate) async fn paint(&self, color: &str) -> Result<()> {
        let patch = Patch::Merge(json!({"spec": {"color": color}}));
        self.ours.patch(&self.name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Waits until the copy says so.
    pub(crate) async fn says(&self, color: &str) -> Result<DynamicObject> {
        eventually_ok(format!("the copy of {} to be {color}", self.name), SOON, async || {
            let copy = self.copies.get(&self.name).await?;
            let ours = self.ours.get(&self.name).await?;
            let (copied, source) = (shown(&copy), shown(&ours));
            ensure!(
                copy.data["spec"]["color"] == color,
                "it is {copied}, and its source {source}"
            );
            Ok(copy)
        })
        .await
    }

    /// A change goes up and a status comes down: the binding is at work.
    pub(crate) async fn works(&self, word: &str) -> Result<()> {
        self.paint(word).await?;
        self.says(word).await?;
        let patch = Patch::Merge(json!({"status": {"color": word}}));
        self.copies
            .patch_status(&self.name, &PatchParams::default(), &patch)
            .await?;
        let what = format!("the status of {} to be {word}", self.name);
        let has = |object: &DynamicObject| object.data["status"]["color"] == word;
        wildwest::wait(&what, &self.ours, &self.name, has).await?;
        self.is_here().await
    }

    /// The consumer's object is the one that was made, and nobody deletes it.
    pub(crate) async fn is_here(&self) -> Result<()> {
        let object = self.ours.get(&self.name).await.context("the consumer's object")?;
        ensure!(object.uid() == self.uid, "it is another {}", self.name);
        let deleting = object.metadata.deletion_timestamp;
        ensure!(deleting.is_none(), "{} is being deleted", self.name);
        Ok(())
    }

    /// UID of its copy.
    pub(crate) async fn copy(&self) -> Result<Option<String>> {
        Ok(self.copies.get(&self.name).await.context("the copy")?.uid())
    }

    /// Deletes the object and waits until it is gone.
    pub(crate) async fn delete(&self) -> Result<()> {
        self.ours.delete(&self.name, &DeleteParams::default()).await?;
        self.gone().await
    }

    /// Waits until the consumer's object is gone.
    pub(crate) async fn gone(&self) -> Result<()> {
        eventually_ok(format!("{} to be gone", self.name), SOON, async || {
            let left = match self.ours.get_opt(&self.name).await {
                // Its API went with it.
                Err(kube::Error::Api(status)) if status.code == 404 => None,
                left => left?,
            };
            ensure!(left.is_none(), "{left:?}");
            Ok(())
        })
        .await
    }
}

/// An object as errors show it.
fn shown(object: &DynamicObject) -> String {
    let uid = object.uid().unwrap_or_default();
    format!(
        "{uid} {:?} {:?} {}",
        object.finalizers(),
        object.annotations(),
        object.data
    )
}
