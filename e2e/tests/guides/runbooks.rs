use anyhow::Result;
use bindery_e2e::run;

use crate::world::World;

#[test]
fn runbooks() -> Result<()> {
    run(async {
        let world = World::start("guide-runbooks").await?;
        world.follow("../runbooks.md", world.given()).await
    })
}
