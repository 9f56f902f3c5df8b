//! A consumer with its contract for one cell.

mod contract;

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, ensure};
use bindery_api::{annotations, finalizers, names, v1alpha2::Scope};
use bindery_e2e::{Audit, Consumer, Provider, eventually, eventually_ok, holds_for, wildwest::SOON};
use k8s_openapi::api::events::v1::Event;
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    cells::{Cell, Place},
    world::World,
};

/// How long nothing may happen.
pub(crate) const A_WHILE: Duration = Duration::from_secs(1);

/// A consumer and a cell.
#[derive(Clone)]
pub(crate) struct Side {
    pub(crate) cell: &'static Cell,
    pub(crate) provider: &'static Provider,
    pub(crate) contract: String,
    pub(crate) identity: String,
    /// File with its owner's token.
    pub(crate) token: PathBuf,
    /// Of the consumer's admin.
    pub(crate) client: Client,
    /// What was asked of the consumer.
    pub(crate) audit: Audit,
}

/// An object on both sides, in sync.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) ours: DynamicObject,
    pub(crate) copy: DynamicObject,
}

// === impl Side ===

impl Side {
    pub(crate) fn new(world: &'static World, consumer: &Consumer, cell: &'static Cell, identity: &str) -> Result<Self> {
        Ok(Self {
            cell,
            provider: world.provider(cell),
            contract: Provider::contract(identity),
            identity: identity.to_owned(),
            token: world.token(cell),
            client: consumer.plane.client(),
            audit: consumer.plane.audit()?.clone(),
        })
    }

    // --- Objects.

    /// The consumer's objects, those of the cell's namespace.
    pub(crate) fn ours(&self) -> Api<DynamicObject> {
        self.ours_in(self.cell.name)
    }

    /// The consumer's objects of a namespace.
    pub(crate) fn ours_in(&self, namespace: &str) -> Api<DynamicObject> {
        api(self.cell, self.cell.consumer_scope(), self.client.clone(), namespace)
    }

    /// Their counterparts on the provider.
    pub(crate) fn copies(&self) -> Api<DynamicObject> {
        self.copies_in(self.cell.name)
    }

    /// Counterparts of what is in a namespace of the consumer.
    pub(crate) fn copies_in(&self, namespace: &str) -> Api<DynamicObject> {
        self.provider_api(&self.place(namespace))
    }

    /// Objects in a namespace of the provider.
    pub(crate) fn provider_api(&self, namespace: &str) -> Api<DynamicObject> {
        let client = self.provider.plane.client();
        api(self.cell, self.cell.provider_scope(), client, namespace)
    }

    /// The provider's namespace for objects of a namespace of the consumer; of no meaning for cluster-scoped ones.
    pub(crate) fn place(&self, namespace: &str) -> String {
        match self.cell.place {
            Place::Contract => self.contract.clone(),
            _ => names::provider_namespace(&self.contract, namespace),
        }
    }

    /// That of the cell's namespace; none for cluster-scoped ones.
    pub(crate) fn copies_namespace(&self) -> Option<String> {
        (self.cell.provider_scope() == Scope::Namespaced).then(|| self.place(self.cell.name))
    }

    /// The name of an object's copy.
    pub(crate) fn copy_name(&self, name: &str) -> String {
        match self.cell.place {
            Place::Prefixed => names::prefixed_name(&self.contract, name),
            _ => name.to_owned(),
        }
    }

    /// What is to become the consumer's object of this name, as the provider writes it.
    pub(crate) fn fresh(&self, name: &str, word: &str) -> DynamicObject {
        let mut object = self.cell.object(&self.copy_name(name), word);
        if self.cell.shares_names() {
            let mark = (annotations::CLUSTER_NAMESPACE.to_owned(), self.contract.clone());
            object.annotations_mut().extend([mark]);
        }
        object
    }

    /// The same as one that asks to be adopted.
    pub(crate) fn opted(&self, name: &str, word: &str) -> DynamicObject {
        let mut object = self.fresh(name, word);
        let wish = (annotations::AUTOADOPT.to_owned(), annotations::TRUE.to_owned());
        object.annotations_mut().extend([wish]);
        object
    }

    /// The provider makes an object where the consumer's namespace of the cell is mapped to.
    pub(crate) async fn put(&self, object: &DynamicObject) -> Result<DynamicObject> {
        self.put_into(self.cell.name, object).await
    }

    /// The provider makes an object where this namespace of the consumer is mapped to, as soon as it is.
    pub(crate) async fn put_into(&self, namespace: &str, object: &DynamicObject) -> Result<DynamicObject> {
        let copies = self.copies_in(namespace);
        let what = format!("the provider to make {}", object.name_any());
        eventually(what, SOON, async || {
            let created = copies.create(&PostParams::default(), object).await;
            created.map(Some).context("not yet")
        })
        .await
    }

    /// The consumer makes an object; answers both sides in sync.
    pub(crate) async fn made(&self, name: &str, word: &str) -> Result<Pair> {
        self.create(&self.cell.object(name, word)).await?;
        self.linked(name).await
    }

    /// The consumer makes an object.
    pub(crate) async fn create(&self, object: &DynamicObject) -> Result<DynamicObject> {
        let ours = self.ours();
        eventually(
            format!("the consumer to make {}", object.name_any()),
            SOON,
            async || {
                // An API server that just got an API may not find it for a moment.
                let created = ours.create(&PostParams::default(), object).await;
                created.map(Some).context("not yet")
            },
        )
        .await
    }

    /// Changes the consumer's object.
    pub(crate) async fn patch(&self, name: &str, patch: Value) -> Result<DynamicObject> {
        let patched = self
            .ours()
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await;
        patched.with_context(|| format!("the consumer cannot change {name}"))
    }

    /// Changes the copy as the provider would.
    pub(crate) async fn patch_copy(&self, name: &str, patch: Value) -> Result<DynamicObject> {
        let (params, copy) = (PatchParams::default(), self.copy_name(name));
        let patched = self.copies().patch(&copy, &params, &Patch::Merge(patch)).await;
        patched.with_context(|| format!("the provider cannot change {copy}"))
    }

    /// Sets the status of the copy as the provider's operator would.
    pub(crate) async fn report(&self, name: &str, result: &str) -> Result<()> {
        let copy = self.copy_name(name);
        let patch = Patch::Merge(json!({"status": {"result": result}}));
        let (copies, params) = (self.copies(), PatchParams::default());
        let patched = if self.cell.status_subresource {
            copies.patch_status(&copy, &params, &patch).await
        } else {
            copies.patch(&copy, &params, &patch).await
        };
        patched.map(drop).with_context(|| format!("no status of {copy}"))
    }

    /// Deletes the consumer's object.
    pub(crate) async fn delete(&self, name: &str) -> Result<()> {
        let deleted = self.ours().delete(name, &DeleteParams::default()).await;
        deleted.map(drop).with_context(|| format!("cannot delete {name}"))
    }

    /// Deletes the provider's object.
    pub(crate) async fn delete_copy(&self, name: &str) -> Result<()> {
        let copy = self.copy_name(name);
        let deleted = self.copies().delete(&copy, &DeleteParams::default()).await;
        deleted.map(drop).with_context(|| format!("cannot delete {copy}"))
    }

    // --- What is waited for.

    /// Waits until an object was adopted as it is, in the cell's namespace.
    pub(crate) async fn adopted(&self, name: &str, source: &DynamicObject) -> Result<Pair> {
        self.adopted_in(self.cell.name, name, source).await
    }

    /// Waits until an object was adopted as it is: it is on the consumer, marked on both sides, and never was made anew.
    pub(crate) async fn adopted_in(&self, namespace: &str, name: &str, source: &DynamicObject) -> Result<Pair> {
        let what = format!("{name} of cell {} to be adopted", self.cell.name);
        let pair = eventually_ok(what, SOON, async || self.look(namespace, name).await).await?;
        let noted = pair.ours.annotations().get(annotations::ADOPTED);
        ensure!(
            noted == source.metadata.uid.as_ref(),
            "not adopted, but {}",
            shown(&pair.ours)
        );
        ensure!(
            pair.copy.uid() == source.uid(),
            "the provider's object is another one: {}",
            shown(&pair.copy)
        );
        Ok(pair)
    }

    /// Waits until both sides of an object of the cell's namespace know each other.
    pub(crate) async fn linked(&self, name: &str) -> Result<Pair> {
        let what = format!("{name} of cell {} to be in sync", self.cell.name);
        eventually_ok(what, SOON, async || self.look(self.cell.name, name).await).await
    }

    /// Both sides, if they know each other and say the same.
    async fn look(&self, namespace: &str, name: &str) -> Result<Pair> {
        let ours = self.ours_in(namespace).get_opt(name).await?;
        let ours = ours.context("it is not on the consumer")?;
        let copy = self.copies_in(namespace).get_opt(&self.copy_name(name)).await?;
        let copy = copy.context("it is not on the provider")?;
        let says = |object: &DynamicObject, key: &str| object.annotations().get(key).cloned().unwrap_or_default();
        let from = if self.cell.is_namespaced() { namespace } else { "" };
        let place = match self.cell.provider_scope() {
            Scope::Namespaced => self.place(namespace),
            Scope::Cluster => String::new(),
        };
        for (object, key, expected) in [
            (&copy, annotations::CLUSTER_NAMESPACE, &*self.contract),
            (&copy, annotations::CONSUMER_NAMESPACE, from),
            (
                &copy,
                annotations::CONSUMER_UID,
                ours.metadata.uid.as_deref().unwrap_or_default(),
            ),
            (&copy, annotations::BOUND, annotations::TRUE),
            (&copy, annotations::AUTOADOPT, ""),
            (
                &ours,
                annotations::PROVIDER_UID,
                copy.metadata.uid.as_deref().unwrap_or_default(),
            ),
            (&ours, annotations::PROVIDER_NAMESPACE, &place),
        ] {
            ensure!(
                says(object, key) == expected,
                "{key} is not {expected:?}: {}",
                shown(object)
            );
        }
        ensure!(
            !copy.annotations().contains_key(annotations::AUTOADOPT),
            "{}",
            shown(&copy)
        );
        let held = ours.finalizers().iter().filter(|held| *held == finalizers::SYNCER);
        ensure!(held.count() == 1, "not held: {}", shown(&ours));
        ensure!(
            ours.data["status"] == copy.data["status"],
            "another status: {} and {}",
            shown(&ours),
            shown(&copy)
        );
        Ok(Pair { ours, copy })
    }

    /// Waits until the copy is as wanted.
    pub(crate) async fn copy_is(&self, name: &str, is_so: impl Fn(&DynamicObject) -> bool) -> Result<DynamicObject> {
        is(&self.copies(), &self.copy_name(name), is_so).await
    }

    /// Waits until the consumer's object is as wanted.
    pub(crate) async fn ours_is(&self, name: &str, is_so: impl Fn(&DynamicObject) -> bool) -> Result<DynamicObject> {
        is(&self.ours(), name, is_so).await
    }

    /// Waits until the consumer's object has this result.
    pub(crate) async fn reported(&self, name: &str, result: &str) -> Result<DynamicObject> {
        self.ours_is(name, |object| object.data["status"]["result"] == result)
            .await
    }

    /// Waits until an object is on neither side.
    pub(crate) async fn gone(&self, name: &str) -> Result<()> {
        eventually_ok(format!("{name} to be gone on both sides"), SOON, async || {
            let ours = self.ours().get_opt(name).await?;
            ensure!(
                ours.is_none(),
                "on the consumer: {}",
                ours.as_ref().map(shown).unwrap_or_default()
            );
            let copy = self.copies().get_opt(&self.copy_name(name)).await?;
            ensure!(
                copy.is_none(),
                "on the provider: {}",
                copy.as_ref().map(shown).unwrap_or_default()
            );
            Ok(())
        })
        .await
    }

    /// Waits until an event says of the consumer's object that it is in conflict with the provider's.
    pub(crate) async fn conflict(&self, name: &str) -> Result<Event> {
        let object = self.ours().get(name).await?;
        let namespace = object.namespace().unwrap_or_else(|| "default".to_owned());
        let events: Api<Event> = Api::namespaced(self.client.clone(), &namespace);
        let about = ListParams::default().fields(&format!("regarding.name={name}"));
        eventually(format!("an event Conflict of {name}"), SOON, async || {
            let events = events.list(&about).await?.items;
            let is_it = |event: &&Event| {
                let of = event.regarding.as_ref().and_then(|regarding| regarding.uid.clone());
                event.reason.as_deref() == Some("Conflict") && of == object.uid()
            };
            Ok(events.iter().find(is_it).cloned())
        })
        .await
    }

    // --- What must not happen.

    /// Adopts an object that comes after all others, so that those were looked at, and then checks for a while that none of
    /// the named ones is on the consumer, and that the provider's were not written.
    pub(crate) async fn stay(&self, sentinel: &str, left: &BTreeMap<String, DynamicObject>) -> Result<()> {
        let last = self.put(&self.opted(sentinel, "last")).await?;
        self.adopted(sentinel, &last).await?;
        self.untouched(left).await
    }

    /// None of the named ones is on the consumer for a while, and the provider's are not written.
    pub(crate) async fn untouched(&self, left: &BTreeMap<String, DynamicObject>) -> Result<()> {
        holds_for("nothing to be adopted", A_WHILE, async || {
            for (name, before) in left {
                let ours = self.ours().get_opt(name).await?;
                ensure!(
                    ours.is_none(),
                    "adopted: {}",
                    ours.as_ref().map(shown).unwrap_or_default()
                );
                let now = self.copies().get(&before.name_any()).await?;
                let version = now.resource_version() == before.resource_version();
                ensure!(version, "written on the provider: {}", shown(&now));
            }
            Ok(())
        })
        .await
        .with_context(|| format!("cell {}", self.cell.name))
    }

    /// Who writes for this contract on the provider.
    pub(crate) fn binder(&self) -> String {
        format!("system:serviceaccount:{}:kube-binder", self.contract)
    }
}

/// Objects of a cell as seen in this scope.
fn api(cell: &Cell, scope: Scope, client: Client, namespace: &str) -> Api<DynamicObject> {
    match scope {
        Scope::Cluster => Api::all_with(client, &cell.resource()),
        Scope::Namespaced => Api::namespaced_with(client, namespace, &cell.resource()),
    }
}

/// Waits until an object is as wanted.
async fn is(api: &Api<DynamicObject>, name: &str, is_so: impl Fn(&DynamicObject) -> bool) -> Result<DynamicObject> {
    eventually_ok(format!("{name} to be as wanted"), SOON, async || {
        let object = api.get_opt(name).await?.context("there is none")?;
        ensure!(is_so(&object), "it is {}", shown(&object));
        Ok(object)
    })
    .await
}

/// An object as errors show it.
pub(crate) fn shown(object: &DynamicObject) -> Value {
    let mut object = object.clone();
    object.metadata.managed_fields = None;
    serde_json::to_value(object).unwrap_or_default()
}
