//! An export that the provider removed, and made again.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use bindery_api::v1alpha2::APIServiceExport;
use bindery_e2e::{eventually_ok, run, wildwest::SOON};
use kube::{Api, ResourceExt as _, api::DeleteParams};

use crate::{cells::REMOVED, side::shown, world};

pub(crate) fn check() -> Result<()> {
    run(async {
        let world = world::get().await?;
        let side = world.side(&REMOVED)?;
        let outcome = async {
            side.begin(&world.open).await?;
            let exports: Api<APIServiceExport> = Api::namespaced(side.provider.plane.client(), &side.contract);
            exports.delete(side.cell.name, &DeleteParams::default()).await?;
            side.condition("Connected", |connected| connected.reason == "ExportRemoved")
                .await?;
            let late = side.put(&side.opted("late", "ride")).await?;
            side.untouched(&BTreeMap::from([("late".to_owned(), late.clone())]))
                .await?;

            // What was in sync was let go on the provider, which keeps it; its name is free here.
            side.delete("warm").await?;
            eventually_ok("warm to go", SOON, async || {
                ensure!(side.ours().get_opt("warm").await?.is_none(), "it is there");
                Ok(())
            })
            .await?;
            let released = side.copies().get("warm").await?;
            side.bind(&world.open).await?;
            let pair = side.adopted("late", &late).await?;
            ensure!(pair.copy.uid() == late.uid(), "{}", shown(&pair.copy));
            side.untouched(&BTreeMap::from([("warm".to_owned(), released)])).await
        };
        let outcome: Result<()> = outcome.await;
        outcome.map_err(|error| world.tails(&error))
    })
}
