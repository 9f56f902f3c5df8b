//! A namespace that does not exist on the consumer, where nobody gave the konnector the right to make it.

use anyhow::{Result, ensure};
use bindery_api::{Condition, adoption::Adoption};
use bindery_e2e::run;

use crate::{
    cells::WITHOUT_RIGHT,
    side::Side,
    world::{self, Changing},
};

pub(crate) fn check() -> Result<()> {
    run(async {
        let world = world::get().await?;
        let changing = world.changing(Adoption::All).await?;
        let side = changing.side(world, &WITHOUT_RIGHT)?;
        let outcome = waits_for_the_right(&changing, &side).await;
        outcome.map_err(|error| changing.tails(&error))
    })
}

async fn waits_for_the_right(changing: &Changing, side: &Side) -> Result<()> {
    side.begin(&changing.consumer).await?;
    let frontier = side.cell.frontier();
    let waiting = side.put_into(&frontier, &side.fresh("settler", "ride")).await?;
    let says = [
        &*frontier,
        "apiGroups: [\"\"]",
        "resources: [namespaces]",
        "verbs: [create]",
    ];
    side.condition("ObjectsInSync", |condition| {
        !condition.is_true() && says.iter().all(|words| condition.message.contains(words))
    })
    .await?;
    // Others do not wait for it.
    let other = side.put(&side.fresh("at-home", "ride")).await?;
    side.adopted("at-home", &other).await?;
    ensure!(
        side.namespaces().get_opt(&frontier).await?.is_none(),
        "{frontier} is there"
    );

    changing.consumer.plane.apply(&world::namespaces_right()?).await?;
    side.adopted_in(&frontier, "settler", &waiting).await?;
    side.condition("ObjectsInSync", Condition::is_true).await?;
    side.condition("Ready", Condition::is_true).await.map(drop)
}
