//! The least that an apply can cost: sends requests that somebody else has made up, so many at once, and looks at nothing
//! but whether they were taken. `cargo xtask bench synk` compares synk with it.
//!
//! Each line of the file is `METHOD PATH` or `METHOD PATH BODY`. All before an empty line is answered before what follows
//! is sent.

use std::{fs, path::PathBuf};

use anyhow::{Context as _, Result};
use bindery_runtime::client::{self, Clients};
use clap::Parser;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use http::{Request, header::CONTENT_TYPE};
use kube::Client;

/// Sends the requests of a file.
#[derive(Debug, Parser)]
struct Args {
    /// Which cluster, and as whom.
    #[arg(long)]
    kubeconfig: PathBuf,
    /// How many requests are under way at once.
    #[arg(long)]
    concurrency: usize,
    /// The requests.
    file: PathBuf,
}

#[tokio::main]
async fn main() -> Result<()> {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let args = Args::parse();
    let config = client::config(Some(&args.kubeconfig), None).await?;
    let client = Clients::new(&config, args.concurrency)?.write;
    let text = fs::read_to_string(&args.file).with_context(|| format!("cannot read {}", args.file.display()))?;
    for phase in text.split("\n\n") {
        let requests = phase.lines().map(|line| send(&client, line));
        stream::iter(requests)
            .buffer_unordered(args.concurrency)
            .try_for_each(|()| async { Ok(()) })
            .await?;
    }
    Ok(())
}

async fn send(client: &Client, line: &str) -> Result<()> {
    let mut words = line.splitn(3, ' ');
    let mut word = || words.next().unwrap_or_default();
    let (method, path, body) = (word(), word(), word());
    let content_type = if method == "PATCH" {
        "application/apply-patch+yaml"
    } else {
        "application/json"
    };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(CONTENT_TYPE, content_type)
        .body(body.as_bytes().to_vec())?;
    client
        .request_text(request)
        .await
        .with_context(|| format!("{method} {path}"))?;
    Ok(())
}
