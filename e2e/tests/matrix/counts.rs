//! How often what is written, by the audit logs of both API servers.

use std::ops::RangeInclusive;

use anyhow::{Result, ensure};
use bindery_e2e::{Asked, Moment};
use kube::api::{DeleteParams, DynamicObject};
use serde_json::json;

use crate::{aspects::provider_owned, bench::Bench, kinds::Kind, side::Side};

/// Who writes on a consumer.
pub(crate) const KONNECTOR: &str = "system:serviceaccount:kube-bind:konnector";

/// A moment on both clusters.
#[derive(Clone, Copy)]
struct Mark {
    provider: Moment,
    consumer: Moment,
}

/// A step, with the writes that it may cost.
struct Step {
    what: &'static str,
    began: Mark,
    on_provider: RangeInclusive<usize>,
    on_consumer: RangeInclusive<usize>,
}

/// Steps are counted when all of them are done: a write that comes late counts for the next one, which allows fewer.
pub(crate) async fn each_change_is_written_once(bench: &Bench) -> Result<()> {
    let (side, other) = (&bench.a, &bench.b);
    let (kind, name) = (Kind::Bound, "counted");
    let step = |what, on_provider, on_consumer| step(side, what, on_provider, on_consumer);
    let mut steps = vec![step("a creation", 1..=1, 0..=2)?];
    side.create(kind, &kind.object(bench.cell, name, "ride")).await?;
    side.settled(kind, name, "ride").await?;
    steps.push(step("a change of spec", 1..=1, 0..=0)?);
    side.patch(kind, name, kind.patch("ride on")).await?;
    side.copied(kind, name, "ride on").await?;
    steps.push(step("a change of status", 0..=0, 1..=1)?);
    side.report(name, json!({"result": "tired"})).await?;
    side.reported(name, "tired").await?;
    steps.push(step("another change of spec", 1..=1, 0..=0)?);
    side.patch(kind, name, kind.patch("ride home")).await?;
    side.copied(kind, name, "ride home").await?;
    steps.push(step("the change of another object", 0..=0, 0..=0)?);
    side.create(kind, &kind.object(bench.cell, "counted-after", "ride"))
        .await?;
    side.settled(kind, "counted-after", "ride").await?;
    check(side, other, kind, name, &steps)
}

pub(crate) async fn each_change_of_a_claimed_one_too(bench: &Bench) -> Result<()> {
    let (side, other) = (&bench.b, &bench.a);
    let (kind, name) = (Kind::Secret, "counted");
    let step = |what, on_provider, on_consumer| step(side, what, on_provider, on_consumer);
    side.create(kind, &kind.labelled(bench.cell, "counted-before", "x"))
        .await?;
    side.copied(kind, "counted-before", "x").await?;
    let mut steps = vec![step("a claimed creation", 1..=1, 0..=0)?];
    side.create(kind, &kind.labelled(bench.cell, name, "one")).await?;
    side.copied(kind, name, "one").await?;
    steps.push(step("a change of a claimed object", 1..=1, 0..=0)?);
    side.patch(kind, name, kind.patch("two")).await?;
    side.copied(kind, name, "two").await?;
    steps.push(step("the change of another object", 0..=0, 0..=0)?);
    provider_owned::put(side, &kind.labelled(bench.cell, "counted-down", "one")).await?;
    let says = |word: &'static str| move |copy: &DynamicObject| kind.is(copy, word);
    side.ours_is("to come down", kind, "counted-down", says("one")).await?;
    check(side, other, kind, name, &steps)?;

    let steps = [step("a change of the provider's own object", 0..=0, 1..=1)?];
    side.patch_copy(kind, "counted-down", kind.patch("two")).await?;
    side.ours_is("to change", kind, "counted-down", says("two")).await?;
    side.patch(kind, name, kind.patch("three")).await?;
    side.copied(kind, name, "three").await?;
    check(side, other, kind, "counted-down", &steps)?;
    let copies = side.copies(kind);
    copies.delete("counted-down", &DeleteParams::default()).await?;
    side.gone(kind, "counted-down").await
}

fn step(
    side: &Side<'_>,
    what: &'static str,
    on_provider: RangeInclusive<usize>,
    on_consumer: RangeInclusive<usize>,
) -> Result<Step> {
    Ok(Step {
        what,
        began: Mark {
            provider: side.provider.plane.audit()?.now()?,
            consumer: side.consumer.plane.audit()?.now()?,
        },
        on_provider,
        on_consumer,
    })
}

fn check(side: &Side<'_>, other: &Side<'_>, kind: Kind, name: &str, steps: &[Step]) -> Result<()> {
    let resource = kind.resource(side.cell);
    let copy = side.copy_name(kind, name);
    let is_one = |asked: &Asked, name: &str| {
        asked.is_write() && asked.group == resource.group && asked.resource == resource.plural && asked.name == name
    };
    let own = |asked: &Asked| asked.namespace.is_empty() || asked.namespace == side.cell.name;
    let there = side.place(kind, side.cell.name);
    let place = |asked: &Asked| asked.namespace.is_empty() || asked.namespace == there;
    for (step, next) in steps.iter().zip(steps[1..].iter().map(Some).chain([None])) {
        let to = next.map(|next| next.began.provider);
        let asked = side.provider.plane.audit()?.between(step.began.provider, to)?;
        let written = |side: &Side<'_>| {
            let by = format!("system:serviceaccount:{}:kube-binder", side.contract);
            let of = asked
                .iter()
                .filter(|asked| asked.by == by && is_one(asked, &copy) && place(asked));
            of.cloned().collect::<Vec<_>>()
        };
        let wrote = written(side);
        ensure!(
            step.on_provider.contains(&wrote.len()),
            "{} came to {} writes on the provider: {wrote:?}",
            step.what,
            wrote.len()
        );
        let meddled = written(other);
        ensure!(meddled.is_empty(), "the other consumer wrote: {meddled:?}");
        let to = next.map(|next| next.began.consumer);
        let asked = side.consumer.plane.audit()?.between(step.began.consumer, to)?;
        let wrote: Vec<_> = asked
            .iter()
            .filter(|asked| asked.by == KONNECTOR && is_one(asked, name) && own(asked))
            .collect();
        ensure!(
            step.on_consumer.contains(&wrote.len()),
            "{} came to {} writes on the consumer: {wrote:?}",
            step.what,
            wrote.len()
        );
    }
    Ok(())
}
