use std::collections::BTreeMap;

use anyhow::Result;
use bindery_e2e::run;

use crate::world::World;

#[test]
fn undelete() -> Result<()> {
    run(async {
        let world = World::start("guide-undelete").await?;
        let given = BTreeMap::from([
            ("KUBECTL_BIND_SERVER", world.provider.address()),
            ("CA_FILE", world.provider.ca_path().display().to_string()),
        ]);
        world.follow("undelete.md", given).await
    })
}
