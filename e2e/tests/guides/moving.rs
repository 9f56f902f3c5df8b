use anyhow::Result;
use bindery_e2e::{ControlPlane, run};

use crate::world::World;

#[test]
fn moving_a_consumer_to_a_new_cluster() -> Result<()> {
    run(async {
        let start = World::start("guide-move");
        let (world, new) = tokio::try_join!(start, ControlPlane::start_for_pods("guide-move-n"))?;
        let given = world.given();
        world.follow_with("move-a-consumer.md", given, ("new", &new)).await
    })
}
