//! What is paused: one object, or a whole binding.

use anyhow::{Result, ensure};
use bindery_api::{Conditions as _, annotations};
use bindery_e2e::{eventually, wildwest::SOON};
use kube::{
    ResourceExt as _,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{
    bench::Bench,
    kinds::Kind,
    side::{Side, shown},
};

const BOUND: Kind = Kind::Bound;
const SECRET: Kind = Kind::Secret;

pub(crate) async fn object(bench: &Bench) -> Result<()> {
    let (a, b) = (&bench.a, &bench.b);
    let twin = bench.twin(a, b, BOUND, "paused").await?;
    let mut patch = pause(&json!("true"));
    patch["spec"] = json!({"intent": "wait"});
    let ours = a.patch(BOUND, "paused", patch).await?;
    // What comes after it passes both ways, so that it was seen.
    a.create(BOUND, &BOUND.object(bench.cell, "after-paused", "ride"))
        .await?;
    a.settled(BOUND, "after-paused", "ride").await?;
    a.report("paused", json!({"result": "unheard"})).await?;
    a.report("after-paused", json!({"result": "heard"})).await?;
    a.reported("after-paused", "heard").await?;
    a.copied(BOUND, "paused", "a").await?;
    let now = a.ours(BOUND).get("paused").await?;
    ensure!(
        now.resource_version() == ours.resource_version(),
        "written while paused: {}",
        shown(&now)
    );
    a.patch(BOUND, "paused", pause(&Value::Null)).await?;
    a.copied(BOUND, "paused", "wait").await?;
    a.reported("paused", "unheard").await?;
    twin.left_the_other_alone().await
}

/// While one consumer's binding is paused, the other's goes on.
pub(crate) async fn binding(bench: &Bench) -> Result<()> {
    let (a, b) = (&bench.a, &bench.b);
    let names = [a, b].map(|side| format!("at-rest-{}", side.who));
    for (side, name) in [a, b].into_iter().zip(&names) {
        for kind in [BOUND, SECRET] {
            side.create(kind, &kind.labelled(bench.cell, name, "before")).await?;
            side.settled(kind, name, "before").await?;
        }
    }
    annotate(a, &json!("true")).await?;
    active(a, false).await?;
    for (side, name) in [a, b].into_iter().zip(&names) {
        for kind in [BOUND, SECRET] {
            side.patch(kind, name, kind.patch("after")).await?;
        }
        side.report(name, json!({"result": "done"})).await?;
    }
    for kind in [BOUND, SECRET] {
        b.copied(kind, &names[1], "after").await?;
        a.copied(kind, &names[0], "before").await?;
    }
    b.reported(&names[1], "done").await?;
    let heard = a.ours(BOUND).get(&names[0]).await?;
    ensure!(
        heard.data["status"].is_null(),
        "written while paused: {}",
        shown(&heard)
    );
    annotate(a, &Value::Null).await?;
    active(a, true).await?;
    for kind in [BOUND, SECRET] {
        a.copied(kind, &names[0], "after").await?;
    }
    a.reported(&names[0], "done").await.map(drop)
}

fn pause(value: &Value) -> Value {
    json!({"metadata": {"annotations": {annotations::PAUSED: value}}})
}

async fn annotate(side: &Side<'_>, value: &Value) -> Result<()> {
    let patch = Patch::Merge(pause(value));
    let bindings = side.bindings();
    bindings.patch(side.cell.name, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Waits until the binding says whether it is at work.
async fn active(side: &Side<'_>, wanted: bool) -> Result<()> {
    let what = format!(
        "the binding of {} to say that it is {}",
        side.who,
        ["paused", "at work"][usize::from(wanted)]
    );
    eventually(what, SOON, async || {
        let binding = side.bindings().get(side.cell.name).await?;
        ensure!(
            binding.is_condition_true("Active") == wanted,
            "{:?}",
            binding.conditions()
        );
        Ok(Some(()))
    })
    .await
}
