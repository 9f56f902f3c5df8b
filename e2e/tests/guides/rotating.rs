use anyhow::Result;
use bindery_e2e::run;

use crate::world::World;

#[test]
fn rotating_and_revoking_credentials() -> Result<()> {
    run(async {
        let world = World::start("guide-rotate").await?;
        world.follow("rotate-and-revoke.md", world.given()).await
    })
}
