//! The first edge case of the document: copies of an older konnector have no mark, and sources were deleted while none ran.

use anyhow::{Context as _, Result, ensure};
use bindery_api::{adoption::Adoption, annotations};
use bindery_e2e::{eventually_ok, run, wildwest::SOON};
use futures::future::try_join_all;
use kube::ResourceExt as _;
use serde_json::json;

use crate::{
    cells::{UPGRADED, UPGRADED_CLUSTER},
    side::{Pair, Side, shown},
    world::{self, Changing},
};

/// What is left as it is, and what is deleted meanwhile: of one the finalizer holds the rest, of the other nothing is left, so that its
/// copy is an orphan.
const KEPT: [&str; 2] = ["kept-a", "kept-b"];
const DELETED: [&str; 2] = ["deleted", "deleted-by-force"];

pub(crate) fn check() -> Result<()> {
    run(async {
        let world = world::get().await?;
        let mut changing = world.changing(Adoption::Off).await?;
        let sides = [
            changing.side(world, &UPGRADED)?,
            changing.side(world, &UPGRADED_CLUSTER)?,
        ];
        let outcome = async {
            try_join_all(sides.iter().map(|side| side.begin(&changing.consumer))).await?;
            // As the document says it: marks first.
            let rounds = try_join_all(sides.iter().map(|side| Round::begin(side, "off"))).await?;
            upgrade(&mut changing, &rounds, Adoption::Off).await?;
            changing.restart(Adoption::All).await?;
            try_join_all(rounds.iter().map(|round| round.is_over("after-off"))).await?;
            // And at once: other marks say enough.
            let rounds = try_join_all(sides.iter().map(|side| Round::begin(side, "all"))).await?;
            upgrade(&mut changing, &rounds, Adoption::All).await?;
            try_join_all(rounds.iter().map(|round| round.is_over("after-all"))).await?;
            anyhow::Ok(())
        };
        let outcome = outcome.await;
        outcome.map_err(|error| changing.tails(&error))
    })
}

/// Objects of one cell, in sync.
struct Round<'s> {
    side: &'s Side,
    prefix: &'static str,
    kept: Vec<Pair>,
}

async fn upgrade(changing: &mut Changing, rounds: &[Round<'_>], adoption: Adoption) -> Result<()> {
    changing.stop().await?;
    try_join_all(rounds.iter().map(Round::age)).await?;
    changing.start(adoption).await?;
    try_join_all(rounds.iter().map(async |round| round.is_upgraded().await)).await?;
    Ok(())
}

// === impl Round ===

impl<'s> Round<'s> {
    async fn begin(side: &'s Side, prefix: &'static str) -> Result<Self> {
        let mut round = Self {
            side,
            prefix,
            kept: Vec::new(),
        };
        for name in KEPT {
            round.kept.push(side.made(&round.name(name), "ride").await?);
        }
        for name in DELETED {
            side.made(&round.name(name), "ride").await?;
        }
        Ok(round)
    }

    fn name(&self, name: &str) -> String {
        format!("{}-{name}", self.prefix)
    }

    /// While no konnector runs: as an older one left it, and with sources deleted.
    async fn age(&self) -> Result<()> {
        for name in KEPT.into_iter().chain(DELETED) {
            let unmark = json!({"metadata": {"annotations": {annotations::BOUND: null}}});
            self.side.patch_copy(&self.name(name), unmark).await?;
        }
        let [held, forced] = DELETED.map(|name| self.name(name));
        self.side.delete(&held).await?;
        self.side
            .patch(&forced, json!({"metadata": {"finalizers": null}}))
            .await?;
        self.side.delete(&forced).await?;
        let ours = self.side.ours();
        ensure!(ours.get_opt(&held).await?.is_some(), "nothing holds it");
        ensure!(ours.get_opt(&forced).await?.is_none(), "something holds it");
        Ok(())
    }

    /// What has a counterpart is marked, and what was seen to be deleted is gone.
    async fn is_upgraded(&self) -> Result<()> {
        for (name, before) in KEPT.into_iter().zip(&self.kept) {
            let now = self.side.linked(&self.name(name)).await.context("no mark")?;
            ensure!(
                now.ours.uid() == before.ours.uid() && now.copy.uid() == before.copy.uid(),
                "made anew: {} and {}",
                shown(&now.ours),
                shown(&now.copy)
            );
        }
        let [held, forced] = DELETED.map(|name| self.name(name));
        self.side.gone(&held).await?;
        let copy = self.side.copies().get(&self.side.copy_name(&forced)).await;
        copy.map(drop).context("the copy of an object that nobody saw end")
    }

    /// Where all is adopted, nothing of it comes back.
    async fn is_over(&self, sentinel: &str) -> Result<()> {
        self.side.stay(sentinel, &std::collections::BTreeMap::new()).await?;
        self.is_upgraded().await?;
        eventually_ok("the deleted ones to stay so", SOON, async || {
            for name in DELETED {
                let back = self.side.ours().get_opt(&self.name(name)).await?;
                ensure!(back.is_none(), "{}", back.as_ref().map(shown).unwrap_or_default());
            }
            Ok(())
        })
        .await
    }
}
