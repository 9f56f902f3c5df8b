//! A binding that rests, and one that ends, adopts nothing.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Result, ensure};
use bindery_api::{
    annotations,
    v1alpha2::{APIServiceExport, APIServiceNamespace},
};
use bindery_e2e::{bound::deletes_copies, eventually_ok, holds_for, wildwest::SOON};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams},
};
use serde_json::json;

use crate::side::Side;

const HELD: &str = "wildwest.dev/not-yet";
/// Long enough for a server that means to take a namespace away.
const PATIENCE: Duration = Duration::from_secs(3);

pub(crate) async fn nothing_is_adopted_while_paused(side: &Side) -> Result<()> {
    let name = "meanwhile";
    side.annotate_binding(annotations::PAUSED, Some("true")).await?;
    side.condition("Active", |active| !active.is_true()).await?;
    let source = side.put(&side.opted(name, "ride")).await?;
    let left = BTreeMap::from([(name.to_owned(), source.clone())]);
    side.untouched(&left).await?;
    side.annotate_binding(annotations::PAUSED, None).await?;
    side.adopted(name, &source).await.map(drop)
}

/// What is the consumer's goes with the binding; what never became that stays with the provider.
pub(crate) async fn nothing_is_adopted_while_it_drains(side: &Side) -> Result<()> {
    let kept = side.put(&side.fresh("kept-a-while", "ride")).await?;
    side.adopted("kept-a-while", &kept).await?;
    side.patch(
        "kept-a-while",
        json!({"metadata": {"finalizers": [HELD, bindery_api::finalizers::SYNCER]}}),
    )
    .await?;
    deletes_copies(&side.bindings(), side.cell.name).await?;
    side.bindings().delete(side.cell.name, &DeleteParams::default()).await?;
    side.ours_is("kept-a-while", |ours| ours.metadata.deletion_timestamp.is_some())
        .await?;
    let late = side.put(&side.opted("too-late", "stay")).await?;
    let left = BTreeMap::from([("too-late".to_owned(), late)]);
    // And one where nothing else is.
    let alone = side.cell.is_namespaced().then(|| side.cell.desert());
    if let Some(alone) = &alone {
        side.put_into(alone, &side.opted("too-late", "stay")).await?;
    }
    side.untouched(&left).await?;
    let_go(side, "kept-a-while").await?;
    eventually_ok("the binding to end", SOON, async || {
        let binding = side.bindings().get_opt(side.cell.name).await?;
        ensure!(binding.is_none(), "{:?}", binding.and_then(|binding| binding.status));
        Ok(())
    })
    .await?;
    let copies = side.copies();
    for adopted in ["early", "as-it-is", "kept-a-while", "meanwhile"] {
        let copy = copies.get_opt(&side.copy_name(adopted)).await?;
        ensure!(copy.is_none(), "{adopted} is left on the provider");
    }
    nothing_is_exported(side).await?;
    if let Some(alone) = &alone {
        is_released(side, &side.place(alone)).await?;
    }
    holds_for(
        "what was never the consumer's to stay with the provider",
        PATIENCE,
        async || {
            for namespace in [Some(side.cell.name), alone.as_deref()].into_iter().flatten() {
                let late = side.copies_in(namespace).get_opt(&side.copy_name("too-late")).await?;
                let is_deleting = late.as_ref().map(|late| late.metadata.deletion_timestamp.is_some());
                ensure!(
                    is_deleting == Some(false),
                    "that of {namespace} went with the binding: {late:?}"
                );
            }
            Ok(())
        },
    )
    .await
}

/// Waits until a namespace of the provider is marked as one that nobody uses any more.
async fn is_released(side: &Side, namespace: &str) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(side.provider.plane.client());
    eventually_ok(format!("namespace {namespace} to be let go"), SOON, async || {
        let namespace = namespaces.get(namespace).await?;
        ensure!(
            namespace.annotations().contains_key(annotations::RELEASED),
            "{:?}",
            namespace.metadata
        );
        Ok(())
    })
    .await
}

/// Waits until the provider has taken away the export and what it mapped for it.
async fn nothing_is_exported(side: &Side) -> Result<()> {
    let client = side.provider.plane.client();
    let exports = Api::<APIServiceExport>::namespaced(client.clone(), &side.contract);
    let places = Api::<APIServiceNamespace>::namespaced(client, &side.contract);
    eventually_ok("the export to end", SOON, async || {
        let (exports, places) = (
            exports.list(&ListParams::default()).await?,
            places.list(&ListParams::default()).await?,
        );
        ensure!(
            exports.items.is_empty() && places.items.is_empty(),
            "{exports:?}, {places:?}"
        );
        Ok(())
    })
    .await
}

/// Takes what holds it beside us off an object.
async fn let_go(side: &Side, name: &str) -> Result<()> {
    eventually_ok(format!("{name} to be let go"), SOON, async || {
        let ours = side.ours().get(name).await?;
        let mut left = ours.finalizers().to_vec();
        left.retain(|finalizer| finalizer != HELD);
        let version = ours.resource_version();
        side.patch(
            name,
            json!({"metadata": {"resourceVersion": version, "finalizers": left}}),
        )
        .await
    })
    .await
    .map(drop)
}
