//! Lists resources with a number of concurrent requests, by each caller in turn.

use std::time::{Duration, Instant};

use bindery_proto::v1alpha2::{ListExportsRequest, ListTemplatesRequest};
use bindery_sdk::{Client, Error};
use futures::future::join_all;
use serde::Deserialize;

use super::{Answer, bind::Owners};
use crate::percentiles::Percentiles;

/// What is listed.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Listed {
    /// Its exports, by each agent.
    Exports,
    /// The catalog, by owners.
    Templates,
}

/// Lists for a time. Each caller waits for its answer before it asks again.
pub(super) async fn run(
    what: Listed,
    time: Duration,
    concurrency: usize,
    owners: &Owners,
    agents: Vec<Client>,
) -> Answer {
    let callers = match what {
        Listed::Exports => agents,
        Listed::Templates => owners.clients(),
    };
    let start = Instant::now();
    let (callers, workers) = (&callers, concurrency.min(callers.len()).max(1));
    // Each goes round among callers of its own, none of whom may call too often.
    let each = (0..workers).map(|worker| async move {
        let (mut well, mut failed) = (Vec::new(), Vec::new());
        for client in callers.iter().skip(worker).step_by(workers).cycle() {
            if start.elapsed() >= time {
                break;
            }
            let began = Instant::now();
            match list(what, client).await {
                Ok(()) => well.push(began.elapsed()),
                Err(error) => failed.push(error),
            }
        }
        (well, failed)
    });
    let mut answer = Answer::default();
    let mut times = Vec::new();
    for (mut well, failed) in join_all(each).await {
        times.append(&mut well);
        for error in failed {
            answer.failed(&error.into());
        }
    }
    answer.seconds = start.elapsed().as_secs_f64();
    answer.count = times.len();
    answer.percentiles = Percentiles::of(times);
    answer
}

async fn list(what: Listed, client: &Client) -> Result<(), Error> {
    match what {
        Listed::Exports => client.list_exports(ListExportsRequest::default()).await.map(|_| ()),
        Listed::Templates => client.list_templates(ListTemplatesRequest::default()).await.map(|_| ()),
    }
}
