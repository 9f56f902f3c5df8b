//! What both clusters have, and what they record of the holder of their contract.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, ensure};
use bindery_api::{
    Conditions as _, annotations,
    conditions::{OBJECTS_IN_SYNC, ORPHANED_OBJECTS},
    holder::{HELD, HolderChain, HolderDigest, RecordedHolder},
    names::CLUSTER_BINDING,
    orphans::OrphanSet,
    v1alpha2::{APIServiceBinding, ClusterBinding},
};
use bindery_e2e::{Consumer, NAMESPACE, bound::Bound, eventually_ok, wildwest::SOON};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, ResourceExt as _,
    api::{DynamicObject, ListParams},
};

/// Intents of cowboys, by name.
pub(super) type Intents = BTreeMap<String, String>;

/// Cowboys of one cluster, by name.
pub(super) type Herd = BTreeMap<String, Cowboy>;

/// One cowboy, as a cluster has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cowboy {
    uid: Option<String>,
    version: Option<String>,
    intent: String,
}

/// What both clusters record of the holder of the contract.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Holder {
    /// What the konnector's Lease records.
    pub(super) chain: HolderChain,
    /// What the provider records.
    pub(super) recorded: RecordedHolder,
}

impl Holder {
    pub(super) async fn read(bound: &Bound) -> Result<Self> {
        Ok(Self {
            chain: chain(bound).await?,
            recorded: recorded(bound).await?,
        })
    }

    /// Waits until the Lease records the provider's step and no other.
    pub(super) async fn settled(bound: &Bound) -> Result<Self> {
        eventually_ok("both clusters to record one step", SOON, async || {
            let holder = Self::read(bound).await?;
            let HolderChain { current, attempts, .. } = &holder.chain;
            ensure!(
                attempts.is_empty() && *current == holder.recorded.record,
                "they record {holder:?}"
            );
            Ok(holder)
        })
        .await
    }
}

/// What the konnector's Lease records of the contract.
pub(super) async fn chain(bound: &Bound) -> Result<HolderChain> {
    let leases: Api<Lease> = Api::namespaced(bound.consumer.plane.client(), NAMESPACE);
    let lease = leases.get("kube-bind").await?;
    let prefix = format!("{}/", annotations::HOLDER);
    let mut notes = lease.annotations().iter().filter(|(key, _)| key.starts_with(&prefix));
    let (_, note) = notes.next().context("the Lease records no contract")?;
    Ok(serde_json::from_str(note)?)
}

/// What the provider records of the holder.
pub(super) async fn recorded(bound: &Bound) -> Result<RecordedHolder> {
    let records: Api<ClusterBinding> = Api::namespaced(bound.provider.plane.client(), &bound.contract);
    Ok(RecordedHolder::of(&records.get(CLUSTER_BINDING).await?))
}

/// Waits until the binding of a cluster says that it waits for the user, for one of these reasons, and returns the reason.
pub(super) async fn waits(consumer: &Consumer, reasons: &[&str]) -> Result<String> {
    eventually_ok(format!("Held to be one of {reasons:?}"), SOON, async || {
        let binding = binding(consumer).await?;
        let held = binding.condition(HELD).cloned().context("no condition Held")?;
        ensure!(reasons.contains(&held.reason.as_str()), "{held:?}");
        ensure!(HolderDigest::of_message(&held.message).is_some(), "{held:?}");
        Ok(held.reason)
    })
    .await
}

/// How many orphans the binding tells.
pub(super) async fn orphans(bound: &Bound) -> Result<usize> {
    let message = message(bound, ORPHANED_OBJECTS).await?;
    Ok(OrphanSet::of_message(&message).map_or(0, |orphans| orphans.count))
}

/// Waits until the binding tells of this many orphans that a new object has the name of their source.
pub(super) async fn are_replaced(bound: &Bound, count: usize) -> Result<()> {
    eventually_ok("the new objects to be seen", SOON, async || {
        let message = message(bound, ORPHANED_OBJECTS).await?;
        ensure!(message.contains(&format!("of which {count} with a new")), "{message}");
        Ok(())
    })
    .await
}

/// Whether the binding tells that sources are in an older state than their copies.
pub(super) async fn has_older_sources(bound: &Bound) -> Result<bool> {
    Ok(message(bound, OBJECTS_IN_SYNC).await?.contains("kubectl bind accept"))
}

/// The message of a condition of the binding; empty if it has none.
async fn message(bound: &Bound, kind: &str) -> Result<String> {
    let binding = binding(&bound.consumer).await?;
    let condition = binding.condition(kind);
    Ok(condition.map(|condition| condition.message.clone()).unwrap_or_default())
}

async fn binding(consumer: &Consumer) -> Result<APIServiceBinding> {
    let bindings: Api<APIServiceBinding> = Api::all(consumer.plane.client());
    Ok(bindings.get("cowboys").await?)
}

pub(super) async fn copies(bound: &Bound) -> Result<Herd> {
    herd(&bound.cowboys.copies).await
}

pub(super) async fn sources(bound: &Bound) -> Result<Herd> {
    herd(&bound.cowboys.ours).await
}

async fn herd(cowboys: &Api<DynamicObject>) -> Result<Herd> {
    let cowboys = cowboys.list(&ListParams::default()).await?.items;
    let seen = |cowboy: DynamicObject| {
        let intent = cowboy.data["spec"]["intent"].as_str().unwrap_or_default().to_owned();
        let (uid, version) = (cowboy.uid(), cowboy.resource_version());
        (cowboy.name_any(), Cowboy { uid, version, intent })
    };
    Ok(cowboys.into_iter().map(seen).collect())
}

/// The cowboys of these names.
pub(super) fn only(herd: &Herd, names: &BTreeSet<String>) -> Herd {
    let mut herd = herd.clone();
    herd.retain(|name, _| names.contains(name));
    herd
}

/// Fails unless all of these cowboys are there, are the same objects, and intend the same.
pub(super) fn are_kept(before: &Herd, now: &Herd) -> Result<()> {
    for (name, cowboy) in before {
        let kept = now.get(name).with_context(|| format!("{name} is lost"))?;
        ensure!(kept.uid == cowboy.uid, "{name} is another object");
        ensure!(
            kept.intent == cowboy.intent,
            "{name} intends {:?}, not {:?}",
            kept.intent,
            cowboy.intent
        );
    }
    Ok(())
}

/// Fails unless all of these intents have a cowboy.
pub(super) fn are_intended(intents: &Intents, now: &Herd) -> Result<()> {
    for (name, intent) in intents {
        let cowboy = now.get(name).with_context(|| format!("{name} is missing"))?;
        ensure!(
            cowboy.intent == *intent,
            "{name} intends {:?}, not {intent:?}",
            cowboy.intent
        );
    }
    Ok(())
}
