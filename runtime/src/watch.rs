//! Lists a resource, then follows its changes for ever.
//!
//! The pump reads the socket at full speed and hands each object to a sink as it comes, decoded by the caller's own
//! decoder, so that a reader who needs three fields never builds the rest. It resumes where it was after a broken
//! connection, and lists anew only when the API server has forgotten that point, does not know it yet (as one does that was
//! restored from a backup), or ended a watch before its time; then everything not listed between [`Event::Reset`] and
//! [`Event::Complete`] is gone.

mod items;
mod list;
mod read;
mod source;

use std::{sync::Arc, time::Duration};

use kube::{Client, core::Status};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep, timeout};

use self::read::{answer, io_error, read_chunk, read_line, utf8};
use crate::{backoff::Backoff, errors};

pub use self::source::Source;

/// Objects per page of a list; fewer where they are large.
const PAGE: usize = 500;
/// The longest page of a list; a longer one is asked for in smaller parts.
const PAGE_BYTES_MAX: usize = 64 << 20;
/// What a watch keeps of the room that its lines took.
const LINE_BYTES_KEPT: usize = 16 << 10;
/// A position that fails this often in a row is given up for a list.
const FAILURES_MAX: u32 = 3;
/// How long one watch request lasts, at least; up to a fifth is added, so that watches do not end together.
const WATCH_SECONDS: u64 = 240;
/// A watch that says nothing, not even a bookmark, for longer than it was asked to last is dead.
const SILENCE_MAX: Duration = Duration::from_secs(330);

/// A watch that ends by so much before the time it was asked for was ended for a reason. The one that matters: its CRD
/// has another schema. What such a watch showed last was read by the old one, so that fields may be missing which no
/// later change would bring, and which a list does.
const EARLY: Duration = Duration::from_secs(10);
/// Between the early end of a watch and the list that follows.
const AFTER_EARLY: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_mins(1));
/// A watch that has lasted so long is none of a row that end early.
const LASTED: Duration = Duration::from_mins(1);

/// Makes an object of the JSON text of one.
pub trait Decode: Send {
    /// What is made.
    type Object: Send;
    /// Decodes one object. A failure skips this object and no other.
    fn decode(&self, json: &str) -> serde_json::Result<Self::Object>;
    /// The resource version of an object, where it was decoded. Else the text is read once more for it.
    fn version(_: &Self::Object) -> Option<u64> {
        None
    }
}

/// What a sink is told.
#[derive(Debug)]
pub enum Event<T> {
    /// The API server has gone back in time: what it shows from now on is the truth, however old its versions are. A list
    /// follows.
    Rewound,
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

/// How a watch request ended.
enum End {
    /// In its time, or by a break: where to go on, and whether any event came.
    Due { next: String, progress: bool, broken: bool },
    /// Before its time, after so long.
    Early(Duration),
    /// It was not begun: the API server has not come so far.
    Ahead,
}

struct Pump<D, S> {
    client: Client,
    source: Source,
    decode: D,
    sink: S,
    /// The first list is asked for as a whole, until one was begun.
    whole: bool,
    /// Objects per page.
    page: usize,
    /// The latest version that was told of.
    seen: u64,
}

/// Watches until dropped.
pub async fn run<D, S>(client: Client, source: Source, decode: D, sink: S)
where
    D: Decode,
    S: FnMut(Event<D::Object>) + Send,
{
    let mut pump = Pump::new(client, source, decode, sink);
    // The resource version to go on from; none to list.
    let mut position: Option<String> = None;
    let mut failures = 0;
    let (mut early, mut expired) = (0, 0);
    // Whether the API server was out of sight since it told of the position.
    let mut lost = false;
    loop {
        let mut broken = false;
        let outcome = match position.take() {
            None => pump.list().await.map(|version| (Some(version), true)),
            Some(version) => match pump.resume(version.clone(), lost).await {
                Ok(End::Due {
                    next,
                    progress,
                    broken: before_its_time,
                }) => {
                    (broken, expired) = (before_its_time, 0);
                    Ok((Some(next), progress))
                }
                Ok(End::Ahead) => Ok((None, true)),
                Ok(End::Early(lasted)) => {
                    tracing::debug!(path = %pump.source.path, ?lasted, "watch ended early; listing anew");
                    early = if lasted < LASTED { early + 1 } else { 1 };
                    sleep(AFTER_EARLY.delay(early - 1)).await;
                    Ok((None, true))
                }
                Err((error, reached)) => {
                    if reached.is_some() {
                        failures = 0;
                    }
                    // A version that the API server cannot go on from, for whatever reason, is not asked for for ever. One
                    // that cannot be reached has said nothing of it.
                    let unreached = matches!(error, kube::Error::HyperError(_) | kube::Error::Service(_));
                    let progress = reached.is_some();
                    if errors::code(&error) == Some(410) {
                        tracing::info!(path = %pump.source.path, "watch expired; listing anew");
                        expired = if progress { 0 } else { expired + 1 };
                        // Lists that cannot be gone on from are spaced.
                        if expired > 0 {
                            sleep(Backoff::WATCH.delay(expired - 1)).await;
                        }
                        Ok((None, true))
                    } else {
                        if unreached || failures < FAILURES_MAX {
                            position = Some(reached.unwrap_or(version));
                        }
                        Err(error)
                    }
                }
            },
        };
        lost = broken || outcome.is_err();
        match outcome {
            Ok((next, progress)) => {
                position = next;
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
    let mut pump = Pump::new(client, source, decode, sink);
    let mut failures = 0;
    while let Err(error) = pump.list().await {
        (pump.sink)(Event::Failed(error));
        sleep(Backoff::WATCH.delay(failures)).await;
        failures += 1;
    }
}

// === impl Pump ===

impl<D, S> Pump<D, S>
where
    D: Decode,
    S: FnMut(Event<D::Object>) + Send,
{
    fn new(client: Client, source: Source, decode: D, sink: S) -> Self {
        Self {
            client,
            source,
            decode,
            sink,
            whole: true,
            page: PAGE,
            seen: 0,
        }
    }

    /// Goes on from a version. An API server that has not come so far would keep silent until it has, and tell nothing of
    /// what was before: one that was lost is asked first.
    async fn resume(&mut self, version: String, lost: bool) -> Result<End, (kube::Error, Option<String>)> {
        if lost && self.is_ahead(&version).await.map_err(|error| (error, None))? {
            return Ok(End::Ahead);
        }
        self.watch(version).await
    }

    /// Whether a version is later than all that the API server knows.
    async fn is_ahead(&mut self, version: &str) -> Result<bool, kube::Error> {
        let request = self.source.request(&[("limit", "1")])?;
        let mut body = std::pin::pin!(answer(self.client.request_stream(request)).await?);
        let mut text = Vec::new();
        while answer(read_chunk(&mut body, &mut text)).await? {
            if text.len() > PAGE_BYTES_MAX {
                return Err(io_error("an object of the list is too long"));
            }
        }
        let page: Page<'_> = serde_json::from_str(utf8(&text)?).map_err(kube::Error::SerdeError)?;
        Ok(is_later(version, &page.metadata.resource_version))
    }

    /// One watch request. Fails with the version that was reached, if any.
    async fn watch(&mut self, version: String) -> Result<End, (kube::Error, Option<String>)> {
        let asked = WATCH_SECONDS + rand::random_range(0..=WATCH_SECONDS / 5);
        let seconds = asked.to_string();
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
        let begun = Instant::now();
        let is_early = |begun: Instant| begun.elapsed() + EARLY < Duration::from_secs(asked);
        let mut body = std::pin::pin!(body);
        let mut reached = None;
        let mut line = Vec::new();
        loop {
            line.clear();
            line.shrink_to(LINE_BYTES_KEPT);
            let read = timeout(SILENCE_MAX, read_line(&mut body, &mut line));
            match read.await {
                Ok(Ok(true)) => {}
                Ok(Ok(false)) if line.is_empty() && is_early(begun) => return Ok(End::Early(begun.elapsed())),
                Ok(Ok(false)) => {
                    // The normal end after the asked time, or a broken connection: go on at once, unless nothing at all was
                    // said.
                    return Ok(End::Due {
                        broken: is_early(begun),
                        progress: reached.is_some(),
                        next: reached.unwrap_or(version),
                    });
                }
                Ok(Err(error)) => return Err((error, reached)),
                Err(_) => return Err((io_error("the watch fell silent"), reached)),
            }
            match self.event(&line) {
                Ok(version) => reached = Some(version),
                Err(error) => return Err((error, reached)),
            }
        }
    }

    /// Handles one line; answers the resource version it brought us to.
    fn event(&mut self, line: &[u8]) -> Result<String, kube::Error> {
        let line: Line<'_> = serde_json::from_str(utf8(line)?).map_err(kube::Error::SerdeError)?;
        if line.kind == "ERROR" {
            let status: Status = serde_json::from_str(line.object.get()).map_err(kube::Error::SerdeError)?;
            return Err(kube::Error::Api(Box::new(status)));
        }
        let is_object = matches!(line.kind, "ADDED" | "MODIFIED" | "DELETED");
        let object = is_object.then(|| self.decode(line.object.get())).flatten();
        let version = match object.as_ref().and_then(D::version) {
            Some(version) => version.to_string(),
            None => bookmark(line.object)?,
        };
        self.seen = version.parse().map_or(self.seen, |seen| self.seen.max(seen));
        if let Some(object) = object {
            (self.sink)(match line.kind {
                "DELETED" => Event::Deleted(object),
                _ => Event::Applied(object),
            });
        }
        Ok(version)
    }

    fn decode(&self, json: &str) -> Option<D::Object> {
        match self.decode.decode(json) {
            Ok(object) => Some(object),
            Err(error) => {
                tracing::warn!(path = %self.source.path, %error, "an object that cannot be read is passed over");
                None
            }
        }
    }
}

/// How far an event brought us, whatever its object says else.
fn bookmark(json: &RawValue) -> Result<String, kube::Error> {
    let bookmark = serde_json::from_str::<Bookmark>(json.get()).map_err(kube::Error::SerdeError)?;
    Ok(bookmark.metadata.resource_version)
}

/// Whether a resource version is later than another of the same API server. Those that are no numbers cannot be compared.
fn is_later(version: &str, other: &str) -> bool {
    match (version.parse::<u64>(), other.parse::<u64>()) {
        (Ok(version), Ok(other)) => version > other,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
