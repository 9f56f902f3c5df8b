use std::collections::BTreeMap;

use anyhow::Result;
use bindery_e2e::run;

use crate::world::World;

#[test]
fn rotating_and_revoking_credentials() -> Result<()> {
    run(async {
        let world = World::start("guide-rotate").await?;
        let given = BTreeMap::from([
            ("KUBECTL_BIND_SERVER", world.provider.address()),
            ("CA_FILE", world.provider.ca_path().display().to_string()),
        ]);
        world.follow("rotate-and-revoke.md", given).await
    })
}
