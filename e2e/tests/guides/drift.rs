use std::collections::BTreeMap;

use anyhow::Result;
use bindery_e2e::run;

use crate::world::World;

#[test]
fn health_and_drift() -> Result<()> {
    run(async {
        let world = World::start("guide-drift").await?;
        world.follow("argo-cd-and-flux.md", BTreeMap::new()).await
    })
}
