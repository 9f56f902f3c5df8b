//! The kubelet of the tests runs Pods as they are. What other suites see of Pods is therefore what users get.

mod ending;
mod starting;
mod surroundings;
mod workloads;
mod world;

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::Kubelet;
use futures::FutureExt as _;

use crate::world::with_node;

#[test]
fn pods_run_as_they_say() -> Result<()> {
    with_node("pods", allowing_restarts, |node| {
        vec![
            starting::an_image_that_was_not_built_cannot_be_pulled(node).boxed_local(),
            starting::what_is_missing_is_said_until_it_is_there(node).boxed_local(),
            starting::a_program_that_must_not_be_root_is_not_started(node).boxed_local(),
            starting::a_pod_that_asks_for_something_unknown_is_not_started(node).boxed_local(),
            starting::a_pod_is_ready_once_its_probe_says_so(node).boxed_local(),
            starting::a_program_that_listens_on_loopback_alone_is_not_ready(node).boxed_local(),
            surroundings::a_program_finds_what_its_pod_gives_it(node).boxed_local(),
            surroundings::a_token_is_replaced_while_the_program_runs(node).boxed_local(),
            ending::a_container_that_is_killed_or_not_alive_is_started_again(node).boxed_local(),
            ending::a_pod_has_its_grace_period_to_end(node).boxed_local(),
            workloads::a_job_ends_as_its_program_does(node).boxed_local(),
            workloads::a_deployment_replaces_its_pods(node).boxed_local(),
        ]
    })
}

fn allowing_restarts(kubelet: Kubelet<'_>) -> Kubelet<'_> {
    kubelet.allowing_restarts()
}

/// No suite passes by restarts that nobody has noticed.
#[test]
fn a_program_that_is_started_again_fails_its_suite() -> Result<()> {
    let outcome = with_node(
        "restarts",
        |kubelet| kubelet,
        |node| vec![ending::a_container_that_ends_is_started_again(node).boxed_local()],
    );
    let said = format!("{:#}", outcome.err().context("nobody notices it")?);
    ensure!(
        said.contains("were started again") && said.contains("restarts-short"),
        "{said}"
    );
    Ok(())
}
