use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use bindery_e2e::{Provider, eventually_ok, remains::COLLECTED, run};

use crate::world::World;

/// The consumer's identity in the page.
const WEST: &str = "west";

#[test]
fn getting_started_with_backend_only_bindings() -> Result<()> {
    run(async {
        let world = World::start("guide-start").await?;
        world.follow("getting-started-backend-only.md", BTreeMap::new()).await?;
        nothing_is_left(&world.provider).await
    })
}

/// The page ends with the end of the contract.
async fn nothing_is_left(provider: &Provider) -> Result<()> {
    let contract = Provider::contract(WEST);
    eventually_ok("nothing to be left of the contract", COLLECTED, async || {
        let kinds = "namespaces,clusterroles,clusterrolebindings";
        let all = provider.plane.kubectl(&["get", kinds, "-o", "name"]).await?;
        let left: Vec<_> = all.lines().filter(|name| name.contains(&contract)).collect();
        ensure!(left.is_empty(), "left: {left:?}");
        Ok(())
    })
    .await
}
