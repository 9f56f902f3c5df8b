//! A bare watch: hands over its lines without parsing or caching objects.

use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::{AsyncBufRead, AsyncBufReadExt as _};
use http::Request;
use kube::Client;
use serde::Deserialize;

/// Between two watches, so that a server that ends each at once is not asked without end.
const PAUSE: Duration = Duration::from_millis(50);

/// Longer than any run.
const SECONDS: u64 = 24 * 60 * 60;

#[derive(Deserialize)]
struct List {
    metadata: ListMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMeta {
    resource_version: String,
}

/// A watch.
#[derive(Debug)]
pub(crate) struct Tap<R> {
    body: R,
    /// Where it goes on, unless a line says otherwise.
    version: String,
}

/// The version that a line is about.
#[derive(Deserialize)]
struct Line {
    object: List,
}

/// Begins to watch a collection from now on.
pub(crate) async fn open(client: &Client, path: &str) -> Result<Tap<impl AsyncBufRead + Unpin + use<>>> {
    let request = Request::get(format!("{path}?limit=1")).body(Vec::new())?;
    let now = client.request::<List>(request).await;
    let now = now.with_context(|| format!("cannot list {path}"))?;
    resume(client, path, now.metadata.resource_version).await
}

/// Watches a collection from a version on.
async fn resume(client: &Client, path: &str, version: String) -> Result<Tap<impl AsyncBufRead + Unpin + use<>>> {
    let query = format!("watch=1&allowWatchBookmarks=true&timeoutSeconds={SECONDS}&resourceVersion={version}");
    let request = Request::get(format!("{path}?{query}")).body(Vec::new())?;
    let body = client.request_stream(request).await;
    let body = Box::pin(body.with_context(|| format!("cannot watch {path}"))?);
    Ok(Tap { body, version })
}

/// Takes each line of a watch, and goes on where it ends: API servers end watches whose readers are slow on a busy machine.
pub(crate) async fn follow<R: AsyncBufRead + Unpin>(
    client: Client,
    path: String,
    tap: Tap<R>,
    mut take: impl FnMut(&[u8]),
) -> Result<()> {
    let mut version = tap.lines(&mut take).await?;
    loop {
        tokio::time::sleep(PAUSE).await;
        let tap = resume(&client, &path, version).await?;
        version = tap.lines(&mut take).await?;
    }
}

// === impl Tap ===

impl<R: AsyncBufRead + Unpin> Tap<R> {
    /// Takes each line for as long as there are any. Answers where to go on.
    async fn lines(mut self, mut take: impl FnMut(&[u8])) -> Result<String> {
        let (mut last, mut line) = (Vec::new(), Vec::new());
        // What broke is as much of an end as any other.
        while let Ok(1..) = self.body.read_until(b'\n', &mut line).await
            && line.ends_with(b"\n")
        {
            take(&line);
            std::mem::swap(&mut last, &mut line);
            line.clear();
        }
        if last.is_empty() {
            return Ok(self.version);
        }
        let said = || format!("a watch says {}", String::from_utf8_lossy(&last));
        let line: Line = serde_json::from_slice(&last).with_context(said)?;
        Ok(line.object.metadata.resource_version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn check(body: &[u8], lines: usize, version: Option<&str>) {
        let tap = Tap {
            body,
            version: "3".to_owned(),
        };
        let mut taken = 0;
        let end = tap.lines(|_| taken += 1).await;
        assert_eq!(end.ok().as_deref(), version);
        assert_eq!(taken, lines);
    }

    #[tokio::test]
    async fn it_goes_on_after_the_last_whole_line() {
        let line = |version| format!("{{\"object\":{{\"metadata\":{{\"resourceVersion\":\"{version}\"}}}}}}\n");
        check(b"", 0, Some("3")).await;
        check(format!("{}{}", line(4), line(6)).as_bytes(), 2, Some("6")).await;
        check(format!("{}{{\"obj", line(5)).as_bytes(), 1, Some("5")).await;
        // Such as that the version is too old: what came meanwhile is lost.
        check(b"{\"object\":{\"code\":410}}\n", 1, None).await;
    }
}
