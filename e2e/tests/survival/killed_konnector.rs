//! The konnector is killed again and again while objects come, change and go, and in the middle of an unbind.

use anyhow::{Result, ensure};
use bindery_e2e::{
    Gate,
    bound::{self, Bound, count_copies, free_lease, names},
    lease::PATIENT,
    run,
};
use kube::api::ListParams;

const BURST: usize = 200;
/// What is in sync before the burst.
const EARLY: usize = 20;

/// Each konnector is killed right after it has written this often to objects of the burst on the consumer. An object takes a
/// write at least, so that even the last konnector leaves most of the burst to its successor.
const KILL_AFTER: [usize; 3] = [5, 20, 40];
/// The konnector is killed right after it has let go of this many objects during the unbind.
const UNBIND_KILL_AFTER: usize = 5;

#[test]
fn konnector_killed_during_a_burst() -> Result<()> {
    run(async {
        let mut bound = Bound::start("burst", &PATIENT).await?;
        let gate = Gate::start(&bound.consumer.plane).await?;
        bound.consumer.stop_konnectors().await?;
        bound.consumer.reach_through(gate.url())?;
        bound.consumer.start_konnector().await?;
        bound.create(names("early", 0..EARLY)).await?;
        bound.converged().await?;

        gate.shut_after(KILL_AFTER[0], writes_to("burst"));
        let burst: Vec<_> = names("burst", 0..BURST).collect();
        let creating = tokio::spawn({
            let (cowboys, burst) = (bound.cowboys.clone(), burst.clone());
            async move { bound::create(&cowboys, burst).await }
        });
        bound
            .expected
            .extend(burst.into_iter().map(|name| (name, "ride".to_owned())));
        for round in 0..KILL_AFTER.len() {
            gate.silent().await;
            bound.consumer.konnectors[round].kill9()?;
            let copies = count_copies(&bound.cowboys).await?;
            ensure!(copies < EARLY + BURST, "the konnector was killed after the last copy");
            // What happens while nobody looks.
            for name in names("early", 5 * round..5 * round + 5) {
                bound.intend(&name, &format!("ride {round}")).await?;
            }
            bound.delete(&format!("early-{:03}", 15 + round)).await?;
            free_lease(bound.consumer.plane.client(), "kube-bind").await?;
            if let Some(writes) = KILL_AFTER.get(round + 1) {
                gate.shut_after(*writes, writes_to("burst"));
                bound.consumer.spawn_konnector()?;
            } else {
                gate.open();
                bound.consumer.start_konnector().await?;
            }
        }
        creating.await??;
        bound.converged().await?;
        bound.status_flows("caught").await?;
        bound.bound_once().await?;

        gate.shut_after(UNBIND_KILL_AFTER, writes_to(""));
        bound
            .bind(&["unbind", "cowboys", "--delete-objects", "--wait=false"])
            .await?;
        gate.silent().await;
        bound.consumer.konnectors[KILL_AFTER.len()].kill9()?;
        let left = bound
            .cowboys
            .ours
            .list_metadata(&ListParams::default())
            .await?
            .items
            .len();
        ensure!(left > 0, "the konnector was killed after the last object had gone");
        gate.open();
        free_lease(bound.consumer.plane.client(), "kube-bind").await?;
        bound.consumer.start_konnector().await?;
        bound.is_gone().await
    })
}

/// Tells the konnector's writes to cowboys of these names.
fn writes_to(prefix: &str) -> impl Fn(&str) -> bool + Send + 'static {
    let path = format!("/cowboys/{prefix}");
    move |write| write.contains(&path)
}
