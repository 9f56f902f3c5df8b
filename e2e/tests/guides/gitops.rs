use std::collections::BTreeMap;

use anyhow::Result;
use bindery_e2e::run;

use crate::world::World;

#[test]
fn gitops_without_fear() -> Result<()> {
    run(async {
        let world = World::start("guide-gitops").await?;
        world.follow("gitops.md", BTreeMap::new()).await
    })
}
