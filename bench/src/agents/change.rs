//! Changes of exports: written through the Kubernetes API, and seen by the agents that they are for.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Result;
use bindery_api::v1alpha2::APIServiceExport;
use bindery_runtime::client::Clients;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde::Deserialize;
use serde_json::json;
use tokio::{sync::Semaphore, task::JoinSet, time::sleep_until};

use super::{
    Answer,
    bare::{BareWatch, LABEL},
    bind::Contract,
    crowd::{Crowd, What},
};
use crate::{percentiles::Percentiles, schedule};

/// Connections that writes may use.
pub(super) const CONCURRENCY_MAX: usize = 64;

/// How long after the last write a change may still arrive.
const LATE: Duration = Duration::from_mins(1);

/// How exports are changed.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct Load {
    /// How many changes, of one export after the other.
    count: usize,
    /// So many a second, at random times that are drawn beforehand and kept whatever is under way; None for all at once.
    rate: Option<f64>,
    /// Requests under way at once, where all are.
    concurrency: usize,
    /// Decides the times.
    seed: u64,
    /// Number of the first change: each load goes on where the last one ended.
    from: u64,
}

/// Changes exports until each change has arrived. A change counts from the time that it was meant for.
pub(super) async fn run(load: Load, admin: &Clients, contracts: &[Contract], crowd: &mut Crowd) -> Result<Answer> {
    crowd.drain();
    let bare = BareWatch::open(admin.watch.clone()).await?;
    let start = Instant::now();
    let times = load.times(start);
    let places = Arc::new(Semaphore::new(load.concurrency.clamp(1, CONCURRENCY_MAX)));
    let mut writes = JoinSet::new();
    // What each agent waits for: the number of a change, and when it was meant.
    let mut awaited: Vec<HashMap<u64, Instant>> = (0..contracts.len()).map(|_| HashMap::new()).collect();
    let mut meant = HashMap::new();
    for ((index, at), number) in times.iter().enumerate().zip(load.from..) {
        let agent = index % contracts.len();
        let contract = &contracts[agent];
        awaited[agent].insert(number, at.unwrap_or(start));
        meant.insert(number, at.unwrap_or(start));
        let api: Api<APIServiceExport> = Api::namespaced(admin.write.clone(), &contract.namespace);
        let (export, at, places) = (Arc::clone(&contract.export), *at, Arc::clone(&places));
        writes.spawn(async move {
            let _place = match at {
                Some(at) => {
                    sleep_until(at.into()).await;
                    None
                }
                None => places.acquire_owned().await.ok(),
            };
            write(&api, &export, number).await.map(|()| Instant::now())
        });
    }
    let mut answer = Answer::default();
    let mut last_write = start;
    let mut deadline = times.last().copied().flatten().unwrap_or(start) + Duration::from_mins(10);
    let mut latencies = Vec::with_capacity(times.len());
    let mut last_seen = start;
    while !writes.is_empty() || awaited.iter().any(|awaited| !awaited.is_empty()) {
        tokio::select! {
            Some(written) = writes.join_next(), if !writes.is_empty() => {
                match written.map_err(anyhow::Error::from).and_then(|written| written.map_err(Into::into)) {
                    Ok(at) => last_write = last_write.max(at),
                    Err(error) => answer.failed(&error),
                }
                if writes.is_empty() {
                    deadline = Instant::now() + LATE;
                }
            }
            told = crowd.next(deadline) => {
                let Some(told) = told else { break };
                let What::Change(number) = told.what else { continue };
                // What was overtaken by a later change has arrived with it.
                awaited[told.agent].retain(|awaited, meant| {
                    let arrived = *awaited <= number;
                    if arrived {
                        latencies.push(told.at.saturating_duration_since(*meant));
                        last_seen = last_seen.max(told.at);
                    }
                    !arrived
                });
            }
        }
    }
    let missing: usize = awaited.iter().map(HashMap::len).sum();
    if missing > 0 {
        answer.errors += missing;
        answer
            .error
            .get_or_insert_with(|| format!("{missing} changes did not arrive"));
    }
    answer.count = latencies.len();
    answer.seconds = last_seen.saturating_duration_since(start).as_secs_f64();
    answer.load_seconds = Some(last_write.saturating_duration_since(start).as_secs_f64());
    answer.percentiles = Percentiles::of(latencies);
    answer.bare = Percentiles::of(bare.latencies(&meant));
    Ok(answer)
}

async fn write(api: &Api<APIServiceExport>, export: &str, number: u64) -> kube::Result<()> {
    let patch = json!({"metadata": {"labels": {LABEL: number.to_string()}}});
    let params = PatchParams::default();
    api.patch_metadata(export, &params, &Patch::Merge(patch))
        .await
        .map(|_| ())
}

// === impl Load ===

impl Load {
    /// When each change is meant for, if at a time.
    fn times(&self, start: Instant) -> Vec<Option<Instant>> {
        match self.rate {
            None => vec![None; self.count],
            Some(rate) => {
                let times = schedule::poisson(self.seed, rate, self.count).into_iter();
                times.map(|after| Some(start + after)).collect()
            }
        }
    }
}
