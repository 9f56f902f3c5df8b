//! A provider that would put its objects among those of Kubernetes, or beside the konnector's Secrets.

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::{NAMESPACE, holds_for, run};
use futures::future::try_join_all;
use kube::{
    Api, ResourceExt as _,
    api::{DynamicObject, ListParams},
};

use crate::{
    cells::PROTECTED,
    side::{A_WHILE, Side, shown},
    world,
};

const NAMESPACES: [&str; 4] = ["kube-system", "kube-public", "kube-node-lease", NAMESPACE];

pub(crate) fn check() -> Result<()> {
    run(async {
        let world = world::get().await?;
        let side = world.side(&PROTECTED)?;
        let outcome = async {
            side.begin(&world.open).await?;
            nothing_arrives(&side).await
        };
        let outcome: Result<()> = outcome.await;
        outcome.map_err(|error| world.tails(&error))
    })
}

async fn nothing_arrives(side: &Side) -> Result<()> {
    let planted = try_join_all(NAMESPACES.map(async |namespace| {
        side.namespaces().get(namespace).await.context("not on the consumer")?;
        side.mapped(namespace).await?;
        let object = side.put_into(namespace, &side.opted("planted", "ride")).await?;
        anyhow::Ok((namespace, object))
    }))
    .await?;
    // In any other namespace, what is mapped and made in the same way is adopted.
    side.mapped("prairie").await?;
    let last = side.put_into("prairie", &side.opted("planted", "ride")).await?;
    side.adopted_in("prairie", "planted", &last).await?;
    let all = Api::<DynamicObject>::all_with(side.client.clone(), &side.cell.resource());
    holds_for("nothing else to arrive", A_WHILE, async || {
        for ours in all.list(&ListParams::default()).await? {
            let namespace = ours.namespace().unwrap_or_default();
            ensure!(!NAMESPACES.contains(&&*namespace), "it is there: {}", shown(&ours));
        }
        for (namespace, before) in &planted {
            let now = side.copies_in(namespace).get("planted").await?;
            let same = now.resource_version() == before.resource_version();
            ensure!(same, "written: {}", shown(&now));
        }
        Ok(())
    })
    .await
}
