//! Rest: whoever leads renews its Lease, and the konnector's heartbeat goes on. Nothing else is asked, neither read nor
//! written.

use anyhow::{Result, ensure};
use bindery_e2e::{eventually_ok, wildwest::SOON};

use crate::{
    asked::{self, Mark, Request, Who},
    world::World,
};

/// How many heartbeats must pass without anything else. All that is done at intervals is done more often than that.
const HEARTBEATS: usize = 2;
/// The same of renewals of a Lease, each a second after the one before.
const RENEWALS: usize = 3;

/// Waits for a stretch of rest.
pub(crate) async fn is_reached(world: &World, from: Mark) -> Result<()> {
    stretch(world, from, RENEWALS, HEARTBEATS).await
}

/// Waits until hardly anything is under way.
pub(crate) async fn is_near(world: &World) -> Result<()> {
    stretch(world, Mark::now(world)?, 1, 0).await
}

/// Waits until so much, and nothing else, was asked since something else was.
async fn stretch(world: &World, from: Mark, renewals: usize, heartbeats: usize) -> Result<()> {
    eventually_ok("rest on both clusters", SOON, async || {
        let requests = asked::between(world, from, None)?;
        let (here, there): (Vec<_>, Vec<_>) = requests.iter().partition(|request| request.who == Who::Konnector);
        for (requests, leader, heartbeats) in [(here, Who::Konnector, 0), (there, Who::Server, heartbeats)] {
            let last = requests.iter().rposition(|request| !is_routine(request));
            let still = &requests[last.map_or(0, |last| last + 1)..];
            let last = last.map(|last| requests[last]);
            let renewed = still
                .iter()
                .filter(|request| request.who == leader && request.is_renewal());
            let beats = still.iter().filter(|request| request.is_heartbeat());
            let (renewed, beats) = (renewed.count(), beats.count());
            ensure!(
                renewed >= renewals && beats >= heartbeats,
                "{renewed} renewals of {leader:?} and {beats} heartbeats since {last:?}"
            );
        }
        Ok(())
    })
    .await
}

/// Waits until both programs have renewed their Leases after a moment: what they were about to ask, they have asked.
pub(crate) async fn renewed_since(world: &World, from: Mark) -> Result<()> {
    eventually_ok("both Leases to be renewed", SOON, async || {
        let requests = asked::between(world, from, None)?;
        for who in [Who::Konnector, Who::Server] {
            let renewed = requests
                .iter()
                .any(|request| request.who == who && request.is_renewal());
            ensure!(renewed, "{who:?} has not");
        }
        Ok(())
    })
    .await
}

/// What goes on for as long as the programs run.
pub(crate) fn is_routine(request: &Request) -> bool {
    request.is_renewal() || request.is_heartbeat()
}

/// Whether what goes on at intervals of a second or two does so whatever else happens: none of it much more often than the
/// rest of it.
pub(crate) fn goes_on_at_its_pace(requests: &[Request]) -> Result<()> {
    let renewals = |who| {
        let own = requests
            .iter()
            .filter(|request| request.who == who && request.is_renewal());
        own.count()
    };
    let beats = requests.iter().filter(|request| request.is_heartbeat()).count();
    let times = [renewals(Who::Konnector), renewals(Who::Server), beats];
    let (least, most) = times.iter().fold((usize::MAX, 0), |(least, most), times| {
        (least.min(*times), most.max(*times))
    });
    ensure!(
        most <= 3 * least + 3,
        "renewals of the konnector and of the server, and heartbeats: {times:?}"
    );
    Ok(())
}
