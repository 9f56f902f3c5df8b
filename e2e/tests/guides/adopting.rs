use std::collections::BTreeMap;

use anyhow::Result;
use bindery_e2e::run;

use crate::world::World;

#[test]
fn adopting_what_exists() -> Result<()> {
    run(async {
        let world = World::start("guide-adopt").await?;
        world.follow("adopting-what-exists.md", BTreeMap::new()).await
    })
}
