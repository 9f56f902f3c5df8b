//! Finds out whether the admission policies on the konnector's account are in force, and tells it by a metric and the log. Nothing that the
//! konnector does relies on them: they limit what somebody else could do with its token.

use std::time::Duration;

use bindery_runtime::{
    client::Clients,
    policy::{self, Changes, Followed, PoliciesInForce, PolicyTiming, Probe, ProbeOutcome, Standing, konnector},
};
use futures::future::join_all;

/// They are probed at this interval, and when they or the API server change.
const TIMING: PolicyTiming = PolicyTiming {
    interval: Duration::from_hours(1),
    // No right relies on them that could be taken back.
    grace: Duration::ZERO,
    withdraws: false,
};

/// Watches and probes the policies of the konnector of this namespace, the names of which begin with `base`. Does not end.
pub(crate) async fn follow(base: &str, namespace: &str, clients: &Clients, metric: &PoliciesInForce) {
    let probes = konnector::probes(base, namespace);
    join_all(
        probes
            .iter()
            .map(|(probe, words)| follow_one(probe, words, clients, metric)),
    )
    .await;
}

async fn follow_one(probe: &Probe, words: &str, clients: &Clients, metric: &PoliciesInForce) {
    let policy = probe.policy.as_str();
    let followed = Followed {
        policy: policy.to_owned(),
        timing: TIMING,
        changes: Changes::default(),
    };
    policy::follow(
        followed,
        clients.watch.clone(),
        async || {
            let answer = probe.send(clients.write.clone()).await;
            Some(ProbeOutcome::of(answer, policy, words))
        },
        |standing| {
            say(policy, standing);
            metric.note(policy, standing);
        },
    )
    .await;
}

fn say(policy: &str, standing: Standing) {
    if standing.withholds() {
        tracing::error!(
            policy,
            "the admission policy on this konnector's account is not in force: RBAC alone limits what its token can write; apply \
             deploy/konnector of this version, or upgrade the release"
        );
    } else {
        tracing::info!(policy, "the admission policy on this konnector's account is in force");
    }
}
