//! `bindery-bench list`: reads both sides once and keeps nothing, as fast as it goes. No restart can be quicker.

use std::time::Instant;

use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use http::Request;
use kube::Client;
use serde::Deserialize;
use serde_json::json;

use crate::{output, sides};

/// Collections of the provider that are read at once.
const AT_ONCE: usize = 8;

/// Flags.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    sides: sides::Args,
    /// Objects in a page.
    #[arg(long, default_value_t = 500)]
    page: usize,
}

/// What was read.
#[derive(Clone, Copy, Debug, Default)]
struct Read {
    pages: usize,
    bytes: usize,
}

/// A page, of which only the way to the next one matters.
#[derive(Deserialize)]
struct Page {
    metadata: PageMeta,
}

#[derive(Deserialize)]
struct PageMeta {
    #[serde(default, rename = "continue")]
    next: String,
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
            .map(|(_, path)| list(client, path, args.page))
            .buffer_unordered(AT_ONCE)
            .try_fold(Read::default(), async |all, one| Ok(all.and(one)))
            .await?;
        anyhow::Ok((read, reading.elapsed()))
    };
    let ((consumer, consumer_time), (provider, provider_time)) = tokio::try_join!(read(true), read(false))?;
    let all = consumer.and(provider);
    output::line(&json!({
        "seconds": begun.elapsed().as_secs_f64(),
        "connect_seconds": connected.as_secs_f64(),
        "consumer_seconds": consumer_time.as_secs_f64(),
        "provider_seconds": provider_time.as_secs_f64(),
        "pages": all.pages,
        "bytes": all.bytes,
    }))
}

async fn list(client: &Client, path: String, page: usize) -> Result<Read> {
    let mut read = Read::default();
    let mut next = String::new();
    loop {
        // It is made of letters, digits, `-`, `_` and `=`.
        let from = if next.is_empty() {
            String::new()
        } else {
            format!("&continue={next}")
        };
        let request = Request::get(format!("{path}?limit={page}{from}")).body(Vec::new())?;
        let text = client.request_text(request).await;
        let text = text.with_context(|| format!("cannot list {path}"))?;
        read = read.and(Read {
            pages: 1,
            bytes: text.len(),
        });
        next = serde_json::from_str::<Page>(&text)?.metadata.next;
        if next.is_empty() {
            return Ok(read);
        }
    }
}

// === impl Read ===

impl Read {
    const fn and(self, other: Self) -> Self {
        Self {
            pages: self.pages + other.pages,
            bytes: self.bytes + other.bytes,
        }
    }
}
