//! A cell of which the provider made objects before there was a binding, bound to the consumer that adopts all.

use anyhow::{Context as _, Result, ensure};
use kube::ResourceExt as _;
use serde_json::json;

use crate::{
    cells::Cell,
    side::{Side, shown},
    world::World,
};

/// A cell that is bound.
pub(crate) struct Bench {
    pub(crate) cell: &'static Cell,
    pub(crate) side: Side,
}

impl Bench {
    /// The provider makes the contract for a cluster that it never heard of, and fills it; then the consumer binds.
    pub(crate) async fn start(world: &'static World, cell: &'static Cell) -> Result<Self> {
        let side = world.side(cell)?;
        side.prepare().await.context("the provider cannot make the contract")?;
        let mut early = side.fresh("early", "ride");
        early.data["spec"]["skills"] = json!(["roping", "riding"]);
        early.labels_mut().insert("gang".to_owned(), "dalton".to_owned());
        let early = side.put(&early).await?;
        side.report("early", "ready").await?;
        ensure!(side.bindings().get_opt(cell.name).await?.is_none(), "bound already");

        side.bind(&world.open).await?;
        let pair = side.adopted("early", &early).await.context("made before the binding")?;
        let ours = &pair.ours;
        ensure!(ours.data["spec"] == early.data["spec"], "{}", shown(ours));
        ensure!(ours.data["status"]["result"] == "ready", "{}", shown(ours));
        ensure!(ours.labels() == early.labels(), "{}", shown(ours));
        Ok(Self { cell, side })
    }
}
