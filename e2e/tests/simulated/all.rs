//! Runs all sequences, several at a time.

use std::{
    env,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::Value;
use tokio::time::sleep;

use crate::{
    compare::first_difference,
    generate::{self, step::Sequence},
    report::Report,
    run::{run, state},
    sides::{
        memory::{ISSUER, Memory},
        real::{Admin, Real},
    },
    start,
};

/// How many sequences a run has if nothing else is said.
const SEQUENCES: u64 = 250;

/// How many sequences run at the same time: they wait for controllers more than they ask.
const AT_ONCE: usize = 24;

/// How long the real control plane may still change what the sequences left.
const AFTERWARDS: Duration = Duration::from_secs(3);

/// Runs the sequences that the environment asks for.
pub(crate) async fn run_all(admin: Admin, url: &str, manifests: &[Value], prefix: &str) -> Result<Report> {
    let begin = Instant::now();
    let sequences = sequences(prefix)?;
    let limit = number("BINDERY_SIMULATED_DIFFERENCES")?.map_or(1, |limit| usize::try_from(limit).unwrap_or(1));
    let admin = Arc::new(admin);
    let mut origin = Memory::new(&sequences);
    start::fill_memory(&mut origin, manifests)?;
    let snapshot = origin.snapshot();
    let probe = Real::new(Arc::clone(&admin), start::users().into());
    start::is_ready(&probe).await?;

    let one = |sequence: Sequence| {
        let memory = Memory::beside(&snapshot);
        let real = Real::new(Arc::clone(&admin), sequence.users.clone().into_iter().collect());
        async move {
            let outcome = run(&sequence, memory, real, [ISSUER, url], limit).await;
            outcome
                .with_context(|| format!("seed {}", sequence.seed))
                .map(|outcome| (sequence, outcome))
        }
    };
    let ran: Vec<_> = stream::iter(sequences)
        .map(one)
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await?;
    let mut report = Report::default();
    sleep(AFTERWARDS).await;
    for (sequence, mut outcome) in ran {
        if let Some(last) = outcome.last.take().filter(|_| outcome.differences.is_empty()) {
            let now = state(&sequence, &probe).await?;
            if let Some((path, before, after)) = first_difference(&last, &now) {
                report
                    .restless
                    .push(format!("seed {}: {path} was {before}, is {after}", sequence.seed));
            }
        }
        report.add(&sequence, outcome);
    }
    report.took = begin.elapsed();
    Ok(report)
}

fn sequences(prefix: &str) -> Result<Vec<Sequence>> {
    let only = env::var("BINDERY_SIMULATED_SUBJECT").ok();
    let count = number("BINDERY_SIMULATED_SEQUENCES")?;
    let (first, count) = match number("BINDERY_SIMULATED_SEED")? {
        Some(seed) => (seed, count.unwrap_or(1)),
        None => (1, count.unwrap_or(SEQUENCES)),
    };
    Ok((first..first.saturating_add(count))
        .map(|seed| generate::sequence(seed, prefix, only.as_deref()))
        .collect())
}

/// The number that a variable of the environment has.
fn number(name: &str) -> Result<Option<u64>> {
    let value = env::var(name).ok();
    value
        .map(|value| value.parse().with_context(|| format!("{name} is no number")))
        .transpose()
}
