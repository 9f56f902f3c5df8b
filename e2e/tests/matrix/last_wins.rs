//! Isolation None with `LastWins`: consumers share objects by choice.

use anyhow::{Result, ensure};
use bindery_api::annotations;
use bindery_e2e::{bound::deletes_copies, remains, run};
use kube::{
    ResourceExt as _,
    api::{DeleteParams, DynamicObject},
};
use serde_json::json;

use crate::{
    aspects::{self, aspect},
    bench::Bench,
    cells::{Cell, LAST_WINS},
    kinds::Kind,
    side::{Side, shown},
    world,
};

const BOUND: Kind = Kind::Bound;

pub(crate) fn check() -> Result<()> {
    let cell: &'static Cell = &LAST_WINS;
    run(async {
        let world = world::get().await?;
        let outcome = async {
            let bench = Bench::start(world, cell).await?;
            let together = vec![
                aspect("the last write wins", the_last_write_wins(&bench)),
                aspect("status down to all", status_comes_down_to_all(&bench)),
                aspect("deletion by one of them", only_the_owner_deletes(&bench)),
            ];
            aspects::all(cell, together).await?;
            let unbind = aspect("unbind", unbinding_one_leaves_the_other(&bench));
            aspects::all(cell, vec![unbind]).await
        };
        let outcome: Result<()> = outcome.await;
        outcome.map_err(|error| world.tails(&error.context("cell lastwins")))
    })
}

/// Both have it, and the second one wrote last.
async fn shared(bench: &Bench, name: &str) -> Result<()> {
    let (a, b) = (&bench.a, &bench.b);
    a.create(BOUND, &BOUND.object(bench.cell, name, "a")).await?;
    a.settled(BOUND, name, "a").await?;
    b.create(BOUND, &BOUND.object(bench.cell, name, "b")).await?;
    b.settled(BOUND, name, "b").await.map(drop)
}

async fn the_last_write_wins(bench: &Bench) -> Result<()> {
    let (a, b) = (&bench.a, &bench.b);
    let name = "changed-by-all";
    shared(bench, name).await?;
    a.patch(BOUND, name, BOUND.patch("a again")).await?;
    let copy = a.copied(BOUND, name, "a again").await?;
    for side in [a, b] {
        let key = format!("{}/{}", annotations::PROJECTION_OF, side.contract);
        ensure!(copy.annotations().contains_key(&key), "{:?}", copy.annotations());
    }
    // Each object still says what its own user wrote.
    ensure!(
        BOUND.is(&b.ours(BOUND).get(name).await?, "b"),
        "the other's spec was written"
    );
    b.patch(BOUND, name, json!({"spec": {"badge": "b's"}})).await?;
    let copy = b.copied(BOUND, name, "b").await?;
    ensure!(copy.data["spec"]["badge"] == "b's", "{}", copy.data);
    // Nobody writes again who has changed nothing: others come and go, and it stays.
    let after = BOUND.object(bench.cell, "after-all", "a");
    a.create(BOUND, &after).await?;
    a.settled(BOUND, "after-all", "a").await?;
    let now = b.copied(BOUND, name, "b").await?;
    ensure!(
        now.resource_version() == copy.resource_version(),
        "written again: {}",
        shown(&now)
    );
    Ok(())
}

async fn status_comes_down_to_all(bench: &Bench) -> Result<()> {
    let name = "status-for-all";
    shared(bench, name).await?;
    bench.b.report(name, json!({"result": "seen"})).await?;
    bench.a.reported(name, "seen").await?;
    bench.b.reported(name, "seen").await.map(drop)
}

async fn only_the_owner_deletes(bench: &Bench) -> Result<()> {
    let (a, b) = (&bench.a, &bench.b);
    let name = "deleted-by-one";
    shared(bench, name).await?;
    let copy = b.copied(BOUND, name, "b").await?;
    let delete = async |side: &Side<'_>| {
        side.ours(BOUND).delete(name, &DeleteParams::default()).await?;
        side.gone(BOUND, name).await
    };
    delete(a).await?;
    let now = b.copied(BOUND, name, "b").await?;
    ensure!(
        now.uid() == copy.uid() && now.metadata.deletion_timestamp.is_none(),
        "{}",
        shown(&now)
    );
    b.patch(BOUND, name, BOUND.patch("b alone")).await?;
    b.copied(BOUND, name, "b alone").await?;
    delete(b).await?;
    b.withdrawn(BOUND, name).await
}

async fn unbinding_one_leaves_the_other(bench: &Bench) -> Result<()> {
    let (a, b) = (&bench.a, &bench.b);
    let name = "at-the-end";
    shared(bench, name).await?;
    deletes_copies(&a.bindings(), bench.cell.name).await?;
    a.bindings().delete(bench.cell.name, &DeleteParams::default()).await?;
    a.ended().await?;
    remains::on_consumer(a.consumer, bench.cell.name, &bench.cell.group()).await?;
    b.patch(BOUND, name, BOUND.patch("alone")).await?;
    let copy: DynamicObject = b.copied(BOUND, name, "alone").await?;
    ensure!(copy.metadata.deletion_timestamp.is_none(), "{}", shown(&copy));
    b.report(name, json!({"result": "still here"})).await?;
    b.reported(name, "still here").await.map(drop)
}
