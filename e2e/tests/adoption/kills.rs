//! Rounds of adoption in which the konnector is killed at random moments. The seed is printed and can be given, so that a
//! round that failed can be had again.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, Result, ensure};
use bindery_api::{adoption::Adoption, annotations};
use bindery_e2e::{eventually_ok, run, wildwest::SOON};
use futures::future::try_join_all;
use kube::{
    ResourceExt as _,
    api::{DynamicObject, ListParams},
};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use tokio::time::sleep;

use crate::{
    cells::KILLED,
    side::Side,
    world::{self, Changing},
};

/// As in the suite `faults`.
const ROUNDS: &str = "BINDERY_SOAK_ROUNDS";
const SEED: &str = "BINDERY_SOAK_SEED";
const ROUNDS_IN_TESTS: u64 = 3;

const HERD: usize = 20;
/// A round's work is done in less.
const LATEST_MS: u64 = 500;

#[expect(clippy::print_stdout, reason = "what it takes to have a round again")]
pub(crate) fn check() -> Result<()> {
    run(async {
        let rounds = number(ROUNDS)?.unwrap_or(ROUNDS_IN_TESTS);
        let seed = number(SEED)?.unwrap_or_else(rand::random);
        println!("{SEED}={seed} {ROUNDS}={rounds}");
        let world = world::get().await?;
        let mut changing = world.changing(Adoption::All).await?;
        let side = changing.side(world, &KILLED)?;
        let outcome = async {
            side.begin(&changing.consumer).await?;
            for number in 0..rounds {
                let mut random = StdRng::seed_from_u64(seed.wrapping_add(number));
                let after = Duration::from_millis(random.random_range(0..LATEST_MS));
                println!("round {number}: killed after {after:?}");
                let outcome = round(&mut changing, &side, number, after).await;
                outcome.with_context(|| format!("round {number} of seed {seed}, killed after {after:?}"))?;
            }
            anyhow::Ok(())
        };
        let outcome = outcome.await;
        outcome.map_err(|error| changing.tails(&error))
    })
}

async fn round(changing: &mut Changing, side: &Side, number: u64, after: Duration) -> Result<()> {
    let names: Vec<_> = (0..HERD).map(|of| format!("round-{number}-{of:02}")).collect();
    let putting = try_join_all(names.iter().map(async |name| side.put(&side.fresh(name, "ride")).await));
    let killing = async {
        sleep(after).await;
        changing.kill().await?;
        changing.start(Adoption::All).await
    };
    let (sources, ()) = tokio::try_join!(putting, killing)?;
    let pairs = names
        .iter()
        .zip(&sources)
        .map(|(name, source)| side.adopted(name, source));
    try_join_all(pairs).await?;

    // While it is killed again, the consumer's user goes on.
    let (changed, deleted) = names.split_at(HERD / 2);
    for name in changed {
        side.patch(name, serde_json::json!({"spec": {"intent": "hide"}}))
            .await?;
    }
    for name in deleted {
        side.delete(name).await?;
    }
    sleep(after / 4).await;
    changing.kill().await?;
    changing.start(Adoption::All).await?;
    let is_changed = |copy: &DynamicObject| copy.data["spec"]["intent"] == "hide";
    try_join_all(changed.iter().map(|name| side.copy_is(name, is_changed))).await?;
    try_join_all(deleted.iter().map(|name| side.gone(name))).await?;
    one_to_one(side).await
}

/// Each object has one copy, and there is no other, in no namespace of either.
async fn one_to_one(side: &Side) -> Result<()> {
    let all = |client| kube::Api::<DynamicObject>::all_with(client, &side.cell.resource());
    let (ours, copies) = (all(side.client.clone()), all(side.provider.plane.client()));
    eventually_ok("each to have one counterpart", SOON, async || {
        let by_uid = |objects: Vec<DynamicObject>, key: &str| -> BTreeMap<Option<String>, Option<String>> {
            let of = |object: DynamicObject| (object.uid(), object.annotations().get(key).cloned());
            objects.into_iter().map(of).collect()
        };
        let ours = by_uid(
            ours.list(&ListParams::default()).await?.items,
            annotations::PROVIDER_UID,
        );
        let copies = by_uid(
            copies.list(&ListParams::default()).await?.items,
            annotations::CONSUMER_UID,
        );
        let back: BTreeMap<_, _> = copies.iter().map(|(copy, of)| (of.clone(), copy.clone())).collect();
        ensure!(ours == back && copies.len() == ours.len(), "{ours:?} and {copies:?}");
        Ok(())
    })
    .await
}

fn number(variable: &str) -> Result<Option<u64>> {
    let Ok(text) = std::env::var(variable) else {
        return Ok(None);
    };
    let number = text.parse();
    Ok(Some(number.with_context(|| format!("{variable}={text} is no number"))?))
}
