//! The state machine behind a watch: [`Watcher::step`] takes one state to the next.

use std::time::Duration;

use kube::core::Status;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep, timeout};

use super::{
    Decode, Event, Source,
    read::{ApiServer, Body, io_error, read_all, read_line, utf8, within_limit},
};
use crate::{
    backoff::Backoff,
    client::RequestKind,
    errors,
    guard::{Reader, Verdict},
};

mod list;

use list::{PAGE_OBJECTS, Page};

/// Capacity in bytes that the buffer of a watch keeps from one event to the next.
const LINE_CAPACITY_KEPT: usize = 16 << 10;
/// Failures in a row after which a version is given up for a list, if the API server answered at all.
const FAILURES_MAX: u32 = 3;
/// Seconds that one watch request is asked to last, at least; up to a fifth is added, so that watches do not end together.
const WATCH_SECONDS: u64 = 240;
/// A watch without an event or bookmark for this long, which is longer than it was asked to last, counts as dead.
const SILENCE_MAX: Duration = Duration::from_secs(330);

/// After a list that took longer, from its request to its end, the API server is asked whether it knows the version still: it may
/// have been restored from a backup since it answered, as while this process stood still.
const QUICK_LIST: Duration = Duration::from_secs(5);

/// A watch that ends in good order this long before its time was ended for a reason. The one that matters: its CRD got
/// another schema. What such a watch showed last was pruned by the old schema, so fields may be missing that no later event
/// would bring, but that a list does.
const EARLY: Duration = Duration::from_secs(10);
/// Delay between the early end of a watch and the list that follows.
const AFTER_EARLY: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_mins(1));
/// A watch that lasted this long begins a new row of early ends.
const LASTED: Duration = Duration::from_mins(1);

/// Pauses before an API server that is not trusted is read again after it exceeded a limit. Each attempt may read as much as the limit
/// allows.
const AFTER_EXCEEDED: Backoff = Backoff::new(Duration::from_secs(10), Duration::from_mins(5));
/// What the handler is told of a limit that is exceeded. The guard tells which one.
const EXCEEDED: &str = "it sends more than the limits of the konnector allow";

/// The state of a watcher, which says what its next step does.
pub(super) enum State {
    /// No resource version is known to go on from: list everything.
    Listing,
    /// The API server could not be reached since it showed this version, or showed it some time ago: ask whether it knows the version
    /// before watching. One that was restored from a backup would stay silent until it gets there, and never show what it has now.
    Checking(String),
    /// Send a watch request from this version.
    Starting(String),
    /// Read the next event of an open watch.
    Watching(OpenWatch),
}

/// A watch request that was answered.
pub(super) struct OpenWatch {
    body: Body,
    /// Where to go on from: the version of the last event, or of the request.
    version: String,
    /// Whether any event or bookmark has come.
    has_progress: bool,
    begun: Instant,
    /// How long the API server was asked to keep the watch open.
    asked: Duration,
    line: Vec<u8>,
}

/// One watcher with its connection, its event handler and its counts of failures.
pub(super) struct Watcher<C, D, H> {
    api: C,
    source: Source,
    decode: D,
    handler: H,
    /// The next list is asked for in one request instead of pages.
    is_whole: bool,
    /// Objects per page.
    page: usize,
    /// The latest resource version that the handler was told of; zero at first.
    seen: u64,
    /// Steps in a row without progress.
    failures: u32,
    /// Watches in a row that ended early.
    early: u32,
    /// Watches in a row that expired (410) before any event.
    expired: u32,
    /// Judges what comes, if the API server is not trusted.
    reader: Option<Reader>,
    /// Attempts in a row that exceeded a limit.
    exceeded: u32,
}

#[derive(Deserialize)]
struct WatchEvent<'a> {
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

// === impl Watcher ===

impl<C, D, H> Watcher<C, D, H>
where
    C: ApiServer,
    D: Decode,
    H: FnMut(Event<D::Object>) + Send,
{
    pub(super) fn new(api: C, source: Source, decode: D, handler: H) -> Self {
        Self {
            reader: source.reader(),
            exceeded: 0,
            api,
            source,
            decode,
            handler,
            is_whole: true,
            page: PAGE_OBJECTS,
            seen: 0,
            failures: 0,
            early: 0,
            expired: 0,
        }
    }

    /// Does what a state asks for: one request, or one event of an open watch. Waits before it returns where the next step has
    /// to be delayed. Never fails: failures go to the handler and decide about the next state.
    pub(super) async fn step(&mut self, state: State) -> State {
        match state {
            State::Listing => {
                let begun = Instant::now();
                match self.list().await {
                    Ok(version) => {
                        self.failures = 0;
                        if self.reader.as_mut().is_some_and(|reader| !reader.complete()) {
                            return self.exceeded(io_error(EXCEEDED)).await;
                        }
                        self.exceeded = 0;
                        if begun.elapsed() > QUICK_LIST {
                            State::Checking(version)
                        } else {
                            State::Starting(version)
                        }
                    }
                    Err(error) if self.is_exceeded() => self.exceeded(error).await,
                    Err(error) => self.failed(error, State::Listing).await,
                }
            }
            State::Checking(version) => match self.is_ahead(&version).await {
                Ok(false) => State::Starting(version),
                Ok(true) => {
                    self.failures = 0;
                    State::Listing
                }
                Err(error) => self.interrupted(error, version, false).await,
            },
            State::Starting(version) => match self.open(&version).await {
                Ok(watch) => State::Watching(watch),
                Err(error) => self.interrupted(error, version, false).await,
            },
            State::Watching(watch) => self.watch(watch).await,
        }
    }

    /// Reads the next event of an open watch.
    async fn watch(&mut self, mut watch: OpenWatch) -> State {
        let error = match watch.next(self.reader.as_mut()).await {
            Ok(true) => match self.event(&watch.line) {
                Ok(version) => {
                    (watch.version, watch.has_progress) = (version, true);
                    return State::Watching(watch);
                }
                Err(error) => Some(error),
            },
            Ok(false) => None,
            Err(error) => Some(error),
        };
        (self.handler)(Event::Ended);
        match error {
            Some(error) => self.interrupted(error, watch.version, watch.has_progress).await,
            None => self.ended(watch).await,
        }
    }

    /// Decides how to go on after a failure between this version and the next.
    async fn interrupted(&mut self, error: kube::Error, version: String, has_progress: bool) -> State {
        if self.is_exceeded() {
            return self.exceeded(error).await;
        }
        if has_progress {
            self.failures = 0;
        }
        if errors::code(&error) == Some(410) {
            tracing::info!(path = %self.source.path, "watch expired; listing anew");
            self.failures = 0;
            self.expired = if has_progress { 0 } else { self.expired + 1 };
            // Lists whose versions expire at once are spaced.
            if self.expired > 0 {
                sleep(Backoff::WATCH.delay(self.expired - 1)).await;
            }
            return State::Listing;
        }
        // An API server that cannot be reached has said nothing about the version. One that refuses it again and again may
        // never go on from it, for whatever reason.
        let is_unreached = matches!(error, kube::Error::HyperError(_) | kube::Error::Service(_));
        let next = if is_unreached || self.failures < FAILURES_MAX {
            State::Checking(version)
        } else {
            State::Listing
        };
        self.failed(error, next).await
    }

    /// Decides how to go on after a watch ended without an error.
    async fn ended(&mut self, watch: OpenWatch) -> State {
        let lasted = watch.begun.elapsed();
        let is_early = lasted + EARLY < watch.asked;
        if is_early && watch.line.is_empty() {
            tracing::debug!(path = %self.source.path, ?lasted, "watch ended early; listing anew");
            self.failures = 0;
            self.early = if lasted < LASTED { self.early + 1 } else { 1 };
            sleep(AFTER_EARLY.delay(self.early - 1)).await;
            return State::Listing;
        }
        self.expired = 0;
        if watch.has_progress {
            self.failures = 0;
        } else {
            self.back_off().await;
        }
        // If it ended early and in the middle of an event, the connection broke.
        if is_early {
            State::Checking(watch.version)
        } else {
            State::Starting(watch.version)
        }
    }

    /// Whether a limit was exceeded since the last complete list.
    fn is_exceeded(&self) -> bool {
        self.reader.as_ref().is_some_and(Reader::is_exceeded)
    }

    /// Gives up what is read, and lists anew after a pause: only a complete list within the limits shows what there is.
    async fn exceeded(&mut self, error: kube::Error) -> State {
        tracing::warn!(path = %self.source.path, "the provider exceeds a limit");
        (self.handler)(Event::Failed(error));
        sleep(AFTER_EXCEEDED.delay(self.exceeded)).await;
        self.exceeded += 1;
        State::Listing
    }

    async fn failed(&mut self, error: kube::Error, next: State) -> State {
        tracing::debug!(path = %self.source.path, error = %errors::explain(&error), "watch failed");
        (self.handler)(Event::Failed(error));
        self.back_off().await;
        next
    }

    async fn back_off(&mut self) {
        sleep(Backoff::WATCH.delay(self.failures)).await;
        self.failures += 1;
    }

    /// Whether a version is later than all that the API server knows.
    async fn is_ahead(&mut self, version: &str) -> Result<bool, kube::Error> {
        let request = self.source.request(&[("limit", "1")])?;
        let mut body = within_limit(self.api.get(request)).await?;
        let mut text = Vec::new();
        if !read_all(&mut body, &mut text, self.reader.as_mut()).await? {
            return Err(io_error("an object of the list is too long"));
        }
        let page: Page<'_> = serde_json::from_str(utf8(&text)?).map_err(kube::Error::SerdeError)?;
        Ok(is_later(version, &page.metadata.resource_version))
    }

    /// Sends a watch request.
    async fn open(&mut self, version: &str) -> Result<OpenWatch, kube::Error> {
        let seconds = WATCH_SECONDS + rand::random_range(0..=WATCH_SECONDS / 5);
        let mut request = self.source.request(&[
            ("watch", "1"),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", &seconds.to_string()),
            ("resourceVersion", version),
        ])?;
        request.extensions_mut().insert(RequestKind::Watch);
        let body = within_limit(self.api.get(request)).await?;
        (self.handler)(Event::Following);
        Ok(OpenWatch {
            body,
            version: version.to_owned(),
            has_progress: false,
            begun: Instant::now(),
            asked: Duration::from_secs(seconds),
            line: Vec::new(),
        })
    }

    /// Handles the text of one event; returns the resource version that it brings the watch to.
    fn event(&mut self, line: &[u8]) -> Result<String, kube::Error> {
        let event: WatchEvent<'_> = serde_json::from_str(utf8(line)?).map_err(kube::Error::SerdeError)?;
        if event.kind == "ERROR" {
            let status: Status = serde_json::from_str(event.object.get()).map_err(kube::Error::SerdeError)?;
            return Err(kube::Error::Api(Box::new(status)));
        }
        let is_object = matches!(event.kind, "ADDED" | "MODIFIED" | "DELETED");
        let mut object = is_object.then(|| self.decode(event.object.get())).flatten();
        let version = match object.as_ref().and_then(D::version) {
            Some(version) => version.to_string(),
            None => bookmark(event.object)?,
        };
        self.seen = version.parse().map_or(self.seen, |seen| self.seen.max(seen));
        if let Some((object, reader)) = object.as_mut().zip(self.reader.as_mut()) {
            let (namespace, name) = D::name(object);
            let verdict = match event.kind {
                "DELETED" => reader.deleted(namespace, name),
                _ => reader.applied(namespace, name),
            };
            match verdict {
                Verdict::Take => D::hold(object, reader.hold(D::COUNTS_OBJECTS.into(), event.object.get().len())),
                Verdict::Skip => return Ok(version),
                Verdict::Exceeded => return Err(io_error(EXCEEDED)),
            }
        }
        if let Some(object) = object {
            (self.handler)(match event.kind {
                "DELETED" => Event::Deleted(object),
                _ => Event::Applied(object),
            });
        }
        Ok(version)
    }

    fn decode(&self, json: &str) -> Option<D::Object> {
        let warn = |error: &serde_json::Error| {
            tracing::warn!(path = %self.source.path, %error, "an object that cannot be decoded is skipped");
        };
        self.decode.decode(json).inspect_err(warn).ok()
    }
}

// === impl OpenWatch ===

impl OpenWatch {
    /// Reads the next event into `line`. False at the end of the watch; `line` then holds what came of a torn event.
    async fn next(&mut self, reader: Option<&mut Reader>) -> Result<bool, kube::Error> {
        self.line.clear();
        self.line.shrink_to(LINE_CAPACITY_KEPT);
        let read = timeout(SILENCE_MAX, read_line(&mut self.body, &mut self.line, reader)).await;
        read.unwrap_or_else(|_| Err(io_error("the watch fell silent")))
    }
}

/// Returns the resource version of an event, whatever else its object says.
fn bookmark(json: &RawValue) -> Result<String, kube::Error> {
    let bookmark = serde_json::from_str::<Bookmark>(json.get()).map_err(kube::Error::SerdeError)?;
    Ok(bookmark.metadata.resource_version)
}

/// Whether a resource version is later than another of the same API server. Those that are no numbers cannot be compared.
pub(super) fn is_later(version: &str, other: &str) -> bool {
    match (version.parse::<u64>(), other.parse::<u64>()) {
        (Ok(version), Ok(other)) => version > other,
        _ => false,
    }
}
