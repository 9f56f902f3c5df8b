use std::collections::BTreeMap;

use anyhow::Result;
use bindery_e2e::run;

use crate::world::World;

#[test]
fn operating() -> Result<()> {
    run(async {
        let world = World::start("guide-operate").await?;
        world.follow("../operate.md", BTreeMap::new()).await
    })
}
