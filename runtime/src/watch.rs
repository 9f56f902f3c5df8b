//! Lists a resource, then follows its changes for ever.
//!
//! The pump reads the socket at full speed and hands each object to a sink as it comes, decoded by the caller's own
//! decoder, so that a reader who needs three fields never builds the rest. It resumes where it was after a broken
//! connection, and lists anew only when the API server has forgotten that point; then everything not listed between
//! [`Event::Reset`] and [`Event::Complete`] is gone.

use std::{sync::Arc, time::Duration};

use futures::{AsyncBufRead, AsyncBufReadExt as _};
use http::Request;
use kube::{Client, core::Status};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::{sleep, timeout};

use crate::{backoff::Backoff, errors};

/// Objects per page of a list; fewer where they are large.
const PAGE: usize = 500;
/// The longest line of a watch: an object is at most some 1.5 MiB at rest, and JSON may escape it to more.
const LINE_BYTES_MAX: usize = 16 << 20;
/// The longest page of a list; a longer one is asked for in smaller parts.
const PAGE_BYTES_MAX: usize = 64 << 20;
/// Without a first or a next byte for this long, a list, or the answer to a watch request, has failed.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// A position that fails this often in a row is given up for a list.
const FAILURES_MAX: u32 = 3;
/// How long one watch request lasts, at least; up to a fifth is added, so that watches do not end together.
const WATCH_SECONDS: u64 = 240;
/// A watch that says nothing, not even a bookmark, for longer than it was asked to last is dead.
const SILENCE_MAX: Duration = Duration::from_secs(330);

/// The collection to watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Path of the collection, such as `/apis/wildwest.dev/v1alpha1/cowboys`.
    pub path: Arc<str>,
    /// Only objects with these labels, in the syntax of kubectl's `-l`; empty for all.
    pub labels: String,
    /// Only objects with these fields, such as `metadata.name=cluster`; empty for all.
    pub fields: String,
}

/// Makes an object of the JSON text of one.
pub trait Decode: Send {
    /// What is made.
    type Object: Send;
    /// Decodes one object. A failure skips this object and no other.
    fn decode(&self, json: &str) -> serde_json::Result<Self::Object>;
}

/// What a sink is told.
#[derive(Debug)]
pub enum Event<T> {
    /// A list begins.
    Reset,
    /// An object of the list.
    Listed(T),
    /// An object of the list that cannot be decoded. It is there, whatever it says.
    Unreadable(Name),
    /// The list is complete: what was not listed since [`Event::Reset`] did not exist at this resource version.
    Complete(String),
    /// Changes are followed from here, or again.
    Following,
    /// An object was created or changed.
    Applied(T),
    /// An object was deleted; this is its last state.
    Deleted(T),
    /// The API server could not be reached or refused. The pump tries again by itself.
    Failed(kube::Error),
}

/// Which object.
#[derive(Debug, Deserialize)]
pub struct Name {
    /// Its namespace; empty for a cluster-scoped one.
    #[serde(default)]
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
}

#[derive(Deserialize)]
struct Named {
    metadata: Name,
}

#[derive(Deserialize)]
struct Page<'a> {
    metadata: PageMeta,
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageMeta {
    resource_version: String,
    #[serde(default, rename = "continue")]
    next: String,
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
struct Bookmark {
    metadata: BookmarkMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BookmarkMeta {
    resource_version: String,
}

struct Pump<D, S> {
    client: Client,
    source: Source,
    decode: D,
    sink: S,
    /// Objects per page.
    page: usize,
}

/// Where a watch goes on after it ended.
enum Next {
    Resume(String),
    Relist,
}

/// Watches until dropped.
pub async fn run<D, S>(client: Client, source: Source, decode: D, sink: S)
where
    D: Decode,
    S: FnMut(Event<D::Object>) + Send,
{
    let mut pump = Pump {
        client,
        source,
        decode,
        sink,
        page: PAGE,
    };
    let mut position: Option<String> = None;
    let mut failures = 0;
    loop {
        let outcome = match position.take() {
            None => pump.list().await.map(|version| (Next::Resume(version), true)),
            Some(version) => pump.watch(version.clone()).await.or_else(|(error, reached)| {
                if errors::code(&error) == Some(410) {
                    return Ok((Next::Relist, reached.is_some()));
                }
                if reached.is_some() {
                    failures = 0;
                }
                // A version that the API server cannot go on from, for whatever reason, is not asked for for ever. One that
                // cannot be reached has said nothing of it.
                let unreached = matches!(error, kube::Error::HyperError(_) | kube::Error::Service(_));
                if unreached || failures < FAILURES_MAX {
                    position = Some(reached.unwrap_or(version));
                }
                Err(error)
            }),
        };
        match outcome {
            Ok((next, progress)) => {
                if let Next::Resume(version) = next {
                    position = Some(version);
                }
                if progress {
                    failures = 0;
                    continue;
                }
            }
            Err(error) => {
                tracing::debug!(path = %pump.source.path, error = %errors::explain(&error), "watch failed");
                (pump.sink)(Event::Failed(error));
            }
        }
        sleep(Backoff::WATCH.delay(failures)).await;
        failures += 1;
    }
}

/// Lists once, trying again until that succeeds.
pub async fn list<D, S>(client: Client, source: Source, decode: D, sink: S)
where
    D: Decode,
    S: FnMut(Event<D::Object>) + Send,
{
    let mut pump = Pump {
        client,
        source,
        decode,
        sink,
        page: PAGE,
    };
    let mut failures = 0;
    while let Err(error) = pump.list().await {
        (pump.sink)(Event::Failed(error));
        sleep(Backoff::WATCH.delay(failures)).await;
        failures += 1;
    }
}

// === impl Source ===

impl Source {
    /// All objects of a kind, in one namespace or in all.
    pub fn of<K>(namespace: Option<&str>) -> Self
    where
        K: kube::Resource,
        K::DynamicType: Default,
    {
        Self::path(K::url_path(&K::DynamicType::default(), namespace))
    }

    /// All objects of a collection.
    pub fn path(path: impl Into<Arc<str>>) -> Self {
        Self {
            path: path.into(),
            labels: String::new(),
            fields: String::new(),
        }
    }

    /// Only what carries these labels.
    #[must_use]
    pub fn labels(mut self, selector: impl Into<String>) -> Self {
        self.labels = selector.into();
        self
    }

    /// Only what has these fields.
    #[must_use]
    pub fn fields(mut self, selector: impl Into<String>) -> Self {
        self.fields = selector.into();
        self
    }

    fn request(&self, pairs: &[(&str, &str)]) -> Result<Request<Vec<u8>>, kube::Error> {
        let mut query = form(pairs);
        for (name, value) in [("labelSelector", &self.labels), ("fieldSelector", &self.fields)] {
            if !value.is_empty() {
                query.push('&');
                query.push_str(&form(&[(name, value)]));
            }
        }
        Request::get(format!("{}?{query}", self.path))
            .body(Vec::new())
            .map_err(kube::Error::HttpError)
    }
}

/// Encodes query parameters: everything but unreserved characters is escaped.
fn form(pairs: &[(&str, &str)]) -> String {
    use std::fmt::Write as _;

    let mut text = String::new();
    for (name, value) in pairs {
        if !text.is_empty() {
            text.push('&');
        }
        text.push_str(name);
        text.push('=');
        for byte in value.bytes() {
            match byte {
                b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => text.push(char::from(byte)),
                other => {
                    // Writing to a String cannot fail.
                    let _ = write!(text, "%{other:02X}");
                }
            }
        }
    }
    text
}

// === impl Pump ===

impl<D, S> Pump<D, S>
where
    D: Decode,
    S: FnMut(Event<D::Object>) + Send,
{
    async fn list(&mut self) -> Result<String, kube::Error> {
        let limit = self.page.to_string();
        let mut next = String::new();
        let mut first = true;
        loop {
            let mut pairs = vec![("limit", limit.as_str())];
            if !next.is_empty() {
                pairs.push(("continue", &next));
            }
            let mut body = std::pin::pin!(answer(self.client.request_stream(self.source.request(&pairs)?)).await?);
            let mut text = Vec::new();
            while answer(read_chunk(&mut body, &mut text)).await? {
                if text.len() > PAGE_BYTES_MAX {
                    self.page = (self.page / 2).max(1);
                    return Err(io_error("a page of the list is too long; smaller ones are asked for"));
                }
            }
            let page: Page<'_> = serde_json::from_slice(&text).map_err(kube::Error::SerdeError)?;
            if std::mem::take(&mut first) {
                (self.sink)(Event::Reset);
            }
            for item in page.items.into_iter().flatten() {
                if let Some(object) = self.decode(item) {
                    (self.sink)(Event::Listed(object));
                } else if let Ok(named) = serde_json::from_str::<Named>(item.get()) {
                    (self.sink)(Event::Unreadable(named.metadata));
                }
            }
            if page.metadata.next.is_empty() {
                (self.sink)(Event::Complete(page.metadata.resource_version.clone()));
                return Ok(page.metadata.resource_version);
            }
            next = page.metadata.next;
        }
    }

    /// One watch request. Fails with the version that was reached, if any event came.
    async fn watch(&mut self, version: String) -> Result<(Next, bool), (kube::Error, Option<String>)> {
        let seconds = (WATCH_SECONDS + rand::random_range(0..=WATCH_SECONDS / 5)).to_string();
        let pairs = [
            ("watch", "1"),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", &seconds),
            ("resourceVersion", &version),
        ];
        let request = self.source.request(&pairs).map_err(|error| (error, None))?;
        let body = answer(self.client.request_stream(request)).await;
        let body = body.map_err(|error| (error, None))?;
        (self.sink)(Event::Following);
        let mut body = std::pin::pin!(body);
        let mut reached = None;
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = timeout(SILENCE_MAX, read_line(&mut body, &mut line));
            match read.await {
                Ok(Ok(true)) => {}
                Ok(Ok(false)) => {
                    // The normal end after the asked time: go on at once, unless nothing at all was said.
                    let progress = reached.is_some();
                    return Ok((Next::Resume(reached.unwrap_or(version)), progress));
                }
                Ok(Err(error)) => return Err((error, reached)),
                Err(_) => return Err((io_error("the watch fell silent"), reached)),
            }
            match self.event(&line) {
                Ok(Some(version)) => reached = Some(version),
                Ok(None) => {}
                Err(error) => return Err((error, reached)),
            }
        }
    }

    /// Handles one line; answers the resource version it brought us to.
    fn event(&mut self, line: &[u8]) -> Result<Option<String>, kube::Error> {
        let line: Line<'_> = serde_json::from_slice(line).map_err(kube::Error::SerdeError)?;
        if line.kind == "ERROR" {
            let status: Status = serde_json::from_str(line.object.get()).map_err(kube::Error::SerdeError)?;
            return Err(kube::Error::Api(Box::new(status)));
        }
        let version = serde_json::from_str::<Bookmark>(line.object.get()).map_err(kube::Error::SerdeError)?;
        match line.kind {
            "ADDED" | "MODIFIED" => {
                if let Some(object) = self.decode(line.object) {
                    (self.sink)(Event::Applied(object));
                }
            }
            "DELETED" => {
                if let Some(object) = self.decode(line.object) {
                    (self.sink)(Event::Deleted(object));
                }
            }
            _ => {}
        }
        Ok(Some(version.metadata.resource_version))
    }

    fn decode(&self, json: &RawValue) -> Option<D::Object> {
        match self.decode.decode(json.get()) {
            Ok(object) => Some(object),
            Err(error) => {
                tracing::warn!(path = %self.source.path, %error, "an object that cannot be read is passed over");
                None
            }
        }
    }
}

/// Waits for an answer, though not for ever.
async fn answer<T>(request: impl Future<Output = Result<T, kube::Error>>) -> Result<T, kube::Error> {
    timeout(ANSWER_MAX, request)
        .await
        .unwrap_or_else(|_| Err(io_error("the API server does not answer")))
}

fn io_error(message: &'static str) -> kube::Error {
    kube::Error::ReadEvents(std::io::Error::other(message))
}

/// Appends what has arrived, waiting for some. False at the end of the body.
async fn read_chunk<R>(body: &mut std::pin::Pin<&mut R>, text: &mut Vec<u8>) -> Result<bool, kube::Error>
where
    R: AsyncBufRead,
{
    let chunk = body.fill_buf().await.map_err(kube::Error::ReadEvents)?;
    let length = chunk.len();
    text.extend_from_slice(chunk);
    body.as_mut().consume(length);
    Ok(length > 0)
}

/// Reads up to and with the next line break. False at the end of the body; a last line without a break is dropped,
/// for it may be half an event.
async fn read_line<R>(body: &mut std::pin::Pin<&mut R>, line: &mut Vec<u8>) -> Result<bool, kube::Error>
where
    R: AsyncBufRead,
{
    loop {
        let chunk = body.fill_buf().await.map_err(kube::Error::ReadEvents)?;
        if chunk.is_empty() {
            return Ok(false);
        }
        let end = chunk.iter().position(|byte| *byte == b'\n');
        let length = end.map_or(chunk.len(), |at| at + 1);
        if line.len() + length > LINE_BYTES_MAX {
            return Err(io_error("an event is too long"));
        }
        line.extend_from_slice(&chunk[..length]);
        body.as_mut().consume(length);
        if end.is_some() {
            return Ok(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_are_escaped() {
        let source = Source::path("/api/v1/secrets")
            .labels("a in (b,c)")
            .fields("metadata.name=x");
        let request = source.request(&[("limit", "5")]).unwrap();
        assert_eq!(
            request.uri(),
            "/api/v1/secrets?limit=5&labelSelector=a%20in%20%28b%2Cc%29&fieldSelector=metadata.name%3Dx"
        );
    }

    #[tokio::test]
    async fn lines_are_read_whole_and_a_torn_one_is_dropped() {
        let mut body = std::pin::pin!(&b"one\ntwo\nhal"[..]);
        let mut lines = Vec::new();
        let mut line = Vec::new();
        while read_line(&mut body, &mut line).await.unwrap() {
            lines.push(String::from_utf8(std::mem::take(&mut line)).unwrap());
        }
        assert_eq!(lines, ["one\n", "two\n"]);
    }
}
