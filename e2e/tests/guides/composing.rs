//! The pages about Crossplane and kro, with a stand-in for either.

use anyhow::Result;
use bindery_e2e::run;

use crate::{
    stand_in::{Composer, StandIn},
    world::World,
};

#[test]
fn offering_what_crossplane_composes() -> Result<()> {
    follow("guide-crossplane", Composer::Crossplane, "crossplane.md")
}

#[test]
fn offering_what_kro_composes() -> Result<()> {
    follow("guide-kro", Composer::Kro, "kro.md")
}

fn follow(name: &str, composer: Composer, page: &str) -> Result<()> {
    run(async {
        let world = World::start(name).await?;
        let stand_in = StandIn::install(composer, &world.provider.plane).await?;
        tokio::select! {
            followed = Box::pin(world.follow(page, world.given())) => followed,
            failed = stand_in.work() => failed,
        }
    })
}
