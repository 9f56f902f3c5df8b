//! What a consumer can do to another's copies with all the rights that it was given.

use anyhow::{Context as _, Result, bail, ensure};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::{
    bench::Bench,
    cells::Place,
    kinds::Kind,
    side::{Side, shown},
};

/// Two ways of refusing: no right at all, and the admission policy's.
const REFUSALS: [u16; 2] = [403, 422];

pub(crate) async fn out_of_reach(bench: &Bench, kind: Kind) -> Result<()> {
    let hidden = match kind {
        Kind::Bound => !bench.cell.is_watched_wide(),
        _ => bench.cell.hides_secrets(),
    };
    for (actor, other) in [(&bench.a, &bench.b), (&bench.b, &bench.a)] {
        let name = format!("out-of-reach-{}", actor.who);
        actor.create(kind, &kind.labelled(bench.cell, &name, actor.who)).await?;
        actor.settled(kind, &name, actor.who).await?;
        try_all(actor, other, kind, &name, hidden)
            .await
            .with_context(|| format!("{} on what is {}'s", other.who, actor.who))?;
    }
    Ok(())
}

async fn try_all(actor: &Side<'_>, other: &Side<'_>, kind: Kind, name: &str, hidden: bool) -> Result<()> {
    let copy_name = actor.copy_name(kind, name);
    let before = actor.copies(kind).get(&copy_name).await?;
    let binder = other.binder().await?;
    // Its own are in reach, so that what follows is no matter of a wrong credential.
    let own = other.copies_as(binder.clone(), kind, other.cell.name);
    own.list_metadata(&ListParams::default()).await?;
    let reach = actor.copies_as(binder, kind, actor.cell.name);
    if hidden {
        refused("get", reach.get(&copy_name).await)?;
        refused("list", reach.list_metadata(&ListParams::default()).await)?;
        let watch = reach.watch(&kube::api::WatchParams::default(), "0").await;
        refused("watch", watch.map(drop))?;
    }
    let patch = Patch::Merge(kind.patch("stolen"));
    refused("patch", reach.patch(&copy_name, &PatchParams::default(), &patch).await)?;
    let marks = json!({"metadata": {"annotations": {"kube-bind.io/cluster-namespace": other.contract}}});
    let marks = Patch::Merge(marks);
    refused(
        "take over",
        reach.patch(&copy_name, &PatchParams::default(), &marks).await,
    )?;
    let mut stolen = before.clone();
    stolen.annotations_mut().clear();
    refused(
        "update",
        reach.replace(&copy_name, &PostParams::default(), &stolen).await,
    )?;
    refused("delete", reach.delete(&copy_name, &DeleteParams::default()).await)?;
    plant(actor, &reach, kind).await?;
    let now = actor.copies(kind).get(&copy_name).await?;
    ensure!(
        now.resource_version() == before.resource_version(),
        "it changed: {}",
        shown(&now)
    );
    Ok(())
}

/// Nothing new can be put among them either, where they have a place of their own.
async fn plant(actor: &Side<'_>, reach: &Api<DynamicObject>, kind: Kind) -> Result<()> {
    let shared = matches!(actor.cell.place, Place::None | Place::NoneLastWins);
    if !shared {
        let name = actor.copy_name(kind, "planted");
        let object = kind.object(actor.cell, &name, "planted");
        refused("create", reach.create(&PostParams::default(), &object).await)?;
    }
    Ok(())
}

fn refused<T>(what: &str, outcome: Result<T, kube::Error>) -> Result<()> {
    match outcome {
        Err(kube::Error::Api(status)) if REFUSALS.contains(&status.code) => Ok(()),
        Err(error) => Err(error).with_context(|| format!("{what} failed otherwise than by a refusal")),
        Ok(_) => bail!("{what} was allowed"),
    }
}
