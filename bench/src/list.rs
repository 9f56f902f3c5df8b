//! `bindery-bench list`: lists all objects of both clusters once, as fast as possible, and keeps none. A konnector must list
//! them too when it starts, so no restart can be faster.

use std::time::Instant;

use anyhow::{Context as _, Result};
use futures::{AsyncReadExt as _, StreamExt as _, TryStreamExt as _, stream};
use http::Request;
use kube::Client;
use serde_json::json;

use crate::{output, sides};

/// Number of collections that are listed concurrently.
const AT_ONCE: usize = 8;

/// Number of bytes of an answer that are read at a time.
const CHUNK: usize = 64 * 1024;

/// Flags.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    sides: sides::Args,
}

pub(crate) async fn run(args: Args) -> Result<()> {
    let begun = Instant::now();
    let sides = args.sides.connect().await?;
    let connected = begun.elapsed();
    let reading = Instant::now();
    let read = async |is_consumer: bool| {
        let paths = if is_consumer {
            sides.consumer_paths()
        } else {
            sides.provider_paths()
        };
        let client = sides.reader(is_consumer);
        let read = stream::iter(paths)
            .map(|(_, path)| list(client, path))
            .buffer_unordered(AT_ONCE)
            .try_fold(0, async |all, one| Ok(all + one))
            .await?;
        anyhow::Ok((read, reading.elapsed()))
    };
    let ((consumer, consumer_time), (provider, provider_time)) = tokio::try_join!(read(true), read(false))?;
    output::line(&json!({
        "seconds": begun.elapsed().as_secs_f64(),
        "connect_seconds": connected.as_secs_f64(),
        "consumer_seconds": consumer_time.as_secs_f64(),
        "provider_seconds": provider_time.as_secs_f64(),
        "bytes": consumer + provider,
    }))
}

/// Lists a collection by one request without pages, and returns the number of bytes received. The API server answers it from
/// its memory; it would read pages after the first from etcd, which takes several times as long.
async fn list(client: &Client, path: String) -> Result<usize> {
    let request = Request::get(format!("{path}?limit=0")).body(Vec::new())?;
    let body = client.request_stream(request).await;
    let mut body = Box::pin(body.with_context(|| format!("cannot list {path}"))?);
    let (mut bytes, mut chunk) = (0, vec![0; CHUNK]);
    loop {
        match body
            .read(&mut chunk)
            .await
            .with_context(|| format!("cannot list {path}"))?
        {
            0 => return Ok(bytes),
            read => bytes += read,
        }
    }
}
