//! The konnector is killed again and again while objects come, change and go, and in the middle of an unbind.

use anyhow::{Result, ensure};
use bindery_e2e::{
    bound::{self, Bound, copies, count_copies, free_lease, names},
    eventually,
    lease::PATIENT,
    run,
    wildwest::SOON,
};

const BURST: usize = 200;

/// Kills when so many copies were made.
const KILL_AT: [usize; 3] = [10, 50, 100];

#[test]
fn konnector_killed_during_a_burst() -> Result<()> {
    run(async {
        let mut bound = Bound::start("burst", &PATIENT).await?;
        bound.create(names("early", 0..20)).await?;
        bound.converged().await?;

        let burst: Vec<_> = names("burst", 0..BURST).collect();
        let creating = tokio::spawn({
            let (cowboys, burst) = (bound.cowboys.clone(), burst.clone());
            async move { bound::create(&cowboys, burst).await }
        });
        bound
            .expected
            .extend(burst.into_iter().map(|name| (name, "ride".to_owned())));
        let mut in_the_middle = 0;
        for (round, count) in KILL_AT.into_iter().enumerate() {
            copies(&bound.cowboys, 20 + count).await?;
            bound.consumer.konnectors[round].kill9()?;
            in_the_middle += usize::from(count_copies(&bound.cowboys).await? < BURST);
            // What happens while nobody looks.
            for name in names("early", 5 * round..5 * round + 5) {
                bound.intend(&name, &format!("ride {round}")).await?;
            }
            bound.delete(&format!("early-{:03}", 15 + round)).await?;
            start(&mut bound).await?;
        }
        creating.await??;
        ensure!(
            in_the_middle >= 2,
            "only {in_the_middle} of the kills came before the last copy"
        );
        bound.converged().await?;
        bound.status_flows("caught").await?;
        bound.bound_once().await?;

        let before = count_copies(&bound.cowboys).await?;
        bound.bind(&["unbind", "cowboys", "--wait=false"]).await?;
        eventually("the unbind to be under way", SOON, async || {
            Ok((count_copies(&bound.cowboys).await? < before).then_some(()))
        })
        .await?;
        bound.consumer.konnectors[KILL_AT.len()].kill9()?;
        start(&mut bound).await?;
        bound.is_gone().await
    })
}

/// Starts the next konnector after one that was killed.
async fn start(bound: &mut Bound) -> Result<()> {
    free_lease(bound.consumer.plane.client(), "kube-bind").await?;
    bound.consumer.start_konnector().await
}
