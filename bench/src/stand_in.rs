//! How a program runs that stands in for a konnector: it holds its watches, and tells what it did when asked or stopped.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use bindery_runtime::shutdown;
use futures::future::try_join_all;
use serde_json::json;
use tokio::task::JoinSet;

use crate::{input, output, tap, writes::Writer};

/// Holds the watches of a konnector until it is stopped. Lines are taken by `take`, of which resource, and whether of the
/// consumer; lines of standard input by `command`, but for `report`.
pub(crate) async fn run<T>(writer: &Arc<Writer>, take: T, command: impl Fn(&str) -> Result<()>) -> Result<()>
where
    T: Fn(usize, bool, &[u8]) + Clone + Send + 'static,
{
    let stop = shutdown::on_signal().context("cannot listen for signals")?;
    let mut watches = watch(writer, take).await?;
    output::line(&json!({"ready": true, "namespaces": writer.sides.places.len(), "watches": watches.len()}))?;
    let mut lines = input::lines();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            line = lines.recv() => match line.transpose()?.as_deref() {
                None => break,
                Some("report") => output::line(&writer.report())?,
                Some(line) => command(line)?,
            },
            Some(ended) = watches.join_next() => return ended.context("a watch failed")?,
        }
    }
    output::line(&writer.report())
}

/// Opens all watches; answers when each is open.
async fn watch<T>(writer: &Arc<Writer>, take: T) -> Result<JoinSet<Result<()>>>
where
    T: Fn(usize, bool, &[u8]) + Clone + Send + 'static,
{
    let sides = &writer.sides;
    let mut wanted = Vec::new();
    for (is_consumer, paths) in [(true, sides.consumer_paths()), (false, sides.provider_paths())] {
        wanted.extend(paths.into_iter().map(|(resource, path)| (is_consumer, resource, path)));
    }
    let opened = wanted
        .iter()
        .map(|(is_consumer, _, path)| tap::open(sides.reader(*is_consumer), path));
    let opened = try_join_all(opened).await?;
    let mut watches = JoinSet::new();
    for (tap, (is_consumer, resource, path)) in opened.into_iter().zip(wanted) {
        let take = take.clone();
        let client = sides.reader(is_consumer).clone();
        watches.spawn(tap::follow(client, path, tap, move |line| {
            take(resource, is_consumer, line);
        }));
    }
    Ok(watches)
}
