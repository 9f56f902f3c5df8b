//! Others write to the same objects at the same time, on both clusters.

use std::time::Duration;

use anyhow::{Result, ensure};
use bindery_e2e::{
    bound::{Bound, names},
    eventually_ok, holds_for,
    lease::PATIENT,
    run,
    wildwest::{Cowboys, SOON},
};
use kube::{
    Api, ResourceExt as _,
    api::{DynamicObject, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::time::{Instant, interval};

use super::foreign::Foreign;

const FIGHT: Duration = Duration::from_secs(5);
/// Between two writes of one fighter.
const BLOW: Duration = Duration::from_millis(15);
const QUIET: Duration = Duration::from_secs(3);

#[test]
fn conflicting_writers_end_with_the_consumers_word_and_the_providers_status() -> Result<()> {
    run(async {
        let mut bound = Bound::start("fights", &PATIENT).await?;
        let contract = bound.contract.clone();
        let foreign = Foreign::plant(&bound.provider, &contract).await?;
        bound.create(names("herd", 0..6)).await?;
        bound.converged().await?;
        let cowboys = &bound.cowboys;
        let all: Vec<_> = bound.expected.keys().cloned().collect();
        tokio::try_join!(
            fight(&cowboys.ours, &all, |turn| json!({
                "metadata": {"labels": {"turn": turn.to_string()}},
                "spec": {"intent": format!("ride {turn}")},
            })),
            // A controller of the consumer's that would rather write the status itself.
            forge(cowboys, &all),
            fight(
                &cowboys.copies,
                &all,
                |turn| json!({"spec": {"intent": format!("overridden {turn}")}})
            ),
            fight(&cowboys.copies, &all, |turn| json!({
                "metadata": {"annotations": {"operator.example.com/turn": turn.to_string()}},
                "spec": {"secretRefs": [{"name": format!("added-{turn}")}]},
            })),
        )?;
        for name in &all {
            bound.intend(name, "the last word").await?;
            bound.cowboys.report(name, "the last result").await?;
        }
        bound.converged().await?;
        for name in &all {
            bound.cowboys.reported(name, "the last result").await?;
            let copy = bound.cowboys.copied(name, "the last word").await?;
            ensure!(copy.labels().contains_key("turn"), "{name} lost its label");
            ensure!(
                copy.data["spec"]["secretRefs"].is_array(),
                "{name} lost what the provider added"
            );
        }
        is_quiet(&bound).await?;
        foreign.is_untouched().await?;
        bound.unbind().await
    })
}

async fn fight(api: &Api<DynamicObject>, names: &[String], patch: impl Fn(usize) -> Value) -> Result<()> {
    let end = Instant::now() + FIGHT;
    let mut pause = interval(BLOW);
    for turn in 0.. {
        pause.tick().await;
        if Instant::now() >= end {
            break;
        }
        let name = &names[turn % names.len()];
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch(turn)))
            .await?;
    }
    Ok(())
}

async fn forge(cowboys: &Cowboys, names: &[String]) -> Result<()> {
    let end = Instant::now() + FIGHT;
    let mut pause = interval(BLOW);
    for turn in 0.. {
        pause.tick().await;
        if Instant::now() >= end {
            break;
        }
        let name = &names[turn % names.len()];
        let patch = Patch::Merge(json!({"status": {"result": format!("forged {turn}")}}));
        cowboys.ours.patch_status(name, &PatchParams::default(), &patch).await?;
        cowboys.report(name, &format!("result {turn}")).await?;
    }
    Ok(())
}

/// Nobody writes any more.
async fn is_quiet(bound: &Bound) -> Result<()> {
    let mut last = versions(bound).await?;
    eventually_ok("all writes to end", SOON, async || {
        let now = versions(bound).await?;
        let before = std::mem::replace(&mut last, now);
        ensure!(before == last, "still writing");
        Ok(())
    })
    .await?;
    holds_for("no more writes", QUIET, async || {
        let now = versions(bound).await?;
        ensure!(now == last, "from {last:?} to {now:?}");
        Ok(())
    })
    .await
}

async fn versions(bound: &Bound) -> Result<Vec<(String, Option<String>)>> {
    let mut versions = Vec::new();
    for api in [&bound.cowboys.ours, &bound.cowboys.copies] {
        let objects = api.list(&ListParams::default()).await?.items;
        versions.extend(
            objects
                .into_iter()
                .map(|object| (object.name_any(), object.resource_version())),
        );
    }
    Ok(versions)
}
