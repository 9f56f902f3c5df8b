//! Renewals of credentials, by one agent after the other, each with the token that its last renewal gave it. Each comes on a new
//! connection, as from a konnector that was away.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use bindery_runtime::kubeconfig::ProviderAccess;
use futures::future::join_all;
use tokio::time::sleep_until;

use super::{
    Answer,
    agent_client::{AgentToken, address, client},
    bind::Contract,
};
use crate::{percentiles::Percentiles, schedule};

/// Decides the times of renewals.
const SEED: u64 = 11;

/// Renews `rate` times a second for a time, at random times that are kept whatever is under way. A renewal counts from the time
/// that it was meant for.
pub(super) async fn run(rate: f64, time: Duration, contracts: &[Contract], tokens: &[AgentToken]) -> Answer {
    let start = Instant::now();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    let times = schedule::poisson(SEED, rate, (rate * time.as_secs_f64()) as usize);
    // An agent that is to renew again waits for its last renewal, as a konnector does.
    let each = contracts
        .iter()
        .zip(tokens)
        .enumerate()
        .map(async |(agent, (contract, token))| {
            let mut outcomes = Vec::new();
            for after in times.iter().skip(agent).step_by(contracts.len()) {
                let meant = start + *after;
                sleep_until(meant.into()).await;
                outcomes.push(renew(agent, contract, token).await.map(|()| meant.elapsed()));
            }
            outcomes
        });
    let mut answer = Answer::default();
    let mut well = Vec::with_capacity(times.len());
    for outcome in join_all(each).await.into_iter().flatten() {
        match outcome {
            Ok(time) => well.push(time),
            Err(error) => answer.failed(&error),
        }
    }
    answer.seconds = start.elapsed().as_secs_f64();
    answer.count = well.len();
    answer.percentiles = Percentiles::of(well);
    answer
}

async fn renew(agent: usize, contract: &Contract, token: &AgentToken) -> Result<()> {
    let client = client(&contract.backend, address(agent), token)?;
    let renewed = client.renew_kubeconfig(&contract.namespace).await?;
    let access = ProviderAccess::parse(renewed.kubeconfig.expose())?;
    token.replace(access.backend.context("a renewed kubeconfig without a backend")?);
    Ok(())
}
