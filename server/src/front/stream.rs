//! A watch stream: a snapshot or what was missed, then changes, until the client, the token or the server ends it.
//!
//! Each stream is a task that holds nothing but the names that changed and what the client was last shown. A client that
//! does not read holds up its own task alone, and not for long.

use std::{
    collections::HashMap,
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bindery_proto::v1alpha2::{ErrorReason, Heartbeat, Removed, SnapshotBegin, SnapshotComplete};
use bindery_runtime::cache::Health;
use futures::Stream;
use parking_lot::Mutex;
use tokio::{
    sync::{Semaphore, mpsc, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::{
    auth::Authenticators,
    error::{Failure, Outcome},
    gate::Call,
    limits::{SNAPSHOTS_MAX, STREAMS_PER_CONTRACT, STREAMS_PER_PRINCIPAL, Slots},
    metrics::Metrics,
};

pub(super) mod hub;
mod recheck;
mod task;
mod token;

use hub::{Gone, Hub};
use task::{Resume, Task};
pub(super) use token::Filter;

/// Messages that are ready before the client reads them. In boxes: a channel has room for 32 of whatever it carries from the
/// first one on, and most streams are silent.
const AHEAD: usize = 16;

/// Something that a stream shows.
#[derive(Debug)]
pub(super) struct Shown<T> {
    /// What the hub calls it.
    pub key: Arc<str>,
    /// What it is, should it go.
    pub identity: Gone,
    /// The object as the client sees it.
    pub object: T,
}

/// A key, and what is there now.
pub(crate) type Now<T> = (Arc<str>, Option<Shown<T>>);

/// One event, before it becomes a message of its method.
#[derive(Debug)]
pub(super) enum Event<T> {
    /// A snapshot begins.
    Begin(SnapshotBegin),
    /// An object is there.
    Applied(T),
    /// An object is gone.
    Removed(Removed),
    /// The snapshot is complete.
    Complete(SnapshotComplete),
    /// Nothing happened.
    Heartbeat(Heartbeat),
}

/// What a stream shows.
pub(super) trait Feed: Send + Sync + 'static {
    /// Objects.
    type Object: Send;
    /// Messages of the method.
    type Message: Send + 'static;

    /// All there is.
    fn all(&self) -> Vec<Shown<Self::Object>>;

    /// The keys that a changed name stands for, each with what is there now.
    fn now(&self, changed: &str) -> Vec<Now<Self::Object>>;

    /// The namespace that removed objects had.
    fn namespace(&self) -> String;

    /// Whether the caller may still watch.
    fn may_go_on(&self) -> Outcome<()>;

    /// Whether this replica follows all changes, so that what it does not know is not there.
    fn is_current(&self) -> Outcome<()>;

    /// Wraps an event.
    fn message(event: Event<Self::Object>, resume_token: String) -> Self::Message;
}

/// What streams share.
#[derive(Clone, Debug)]
pub(super) struct Streams(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    of_principal: Slots<String>,
    of_scope: Slots<(String, String)>,
    snapshots: Semaphore,
    authenticators: Authenticators,
    metrics: Metrics,
    stop: CancellationToken,
}

/// What a call asks for.
#[derive(Debug)]
pub(super) struct Asked<'a> {
    /// Path of the method.
    pub method: &'static str,
    /// Contract or principal.
    pub scope: &'a str,
    /// What the stream shows.
    pub filter: Filter,
    /// Token of an earlier stream, or empty.
    pub resume_token: &'a str,
}

/// The messages of a stream. When they end, so does the stream, with the status that stands then.
pub(super) struct Outgoing<M> {
    messages: mpsc::Receiver<Box<M>>,
    end: Arc<Mutex<Option<Status>>>,
}

/// Refuses to tell what is there while a watch is broken: what changed since is unknown.
pub(super) fn followed(what: &str, health: &watch::Receiver<Health>) -> Outcome<()> {
    let health = health.borrow();
    let message = match (&health.failure, health.synced) {
        (None, true) => return Ok(()),
        (Some(_), _) => format!("this replica cannot follow the changes of {what}; try again"),
        (None, false) => format!("this replica is still listing {what}; try again"),
    };
    Err(Failure::new(ErrorReason::CacheNotReady, message))
}

// === impl Streams ===

impl Streams {
    /// Streams that end when `stop` is cancelled.
    pub(super) fn new(authenticators: Authenticators, metrics: Metrics, stop: CancellationToken) -> Self {
        Self(Arc::new(Shared {
            of_principal: Slots::new(STREAMS_PER_PRINCIPAL),
            of_scope: Slots::new(STREAMS_PER_CONTRACT),
            snapshots: Semaphore::new(SNAPSHOTS_MAX),
            authenticators,
            metrics,
            stop,
        }))
    }

    /// Opens a stream.
    pub(super) fn open<F: Feed>(
        &self,
        call: &Call,
        asked: &Asked<'_>,
        hub: &Arc<Hub>,
        feed: F,
    ) -> Outcome<Outgoing<F::Message>> {
        let (work, outgoing) = self.prepare(call, asked, hub, feed)?;
        tokio::spawn(work);
        Ok(outgoing)
    }

    /// What a stream does, and its messages.
    fn prepare<F: Feed>(
        &self,
        call: &Call,
        asked: &Asked<'_>,
        hub: &Arc<Hub>,
        feed: F,
    ) -> Outcome<(impl Future<Output = ()> + Send + use<F>, Outgoing<F::Message>)> {
        let resume = match asked.resume_token {
            "" => Resume::None,
            text => token::read(asked.filter, text)?.map_or(Resume::OtherFilter, Resume::From),
        };
        feed.may_go_on()?;
        let name = call.caller()?.username().to_owned();
        let limit = |what| {
            Failure::new(
                ErrorReason::StreamLimit,
                format!("{what} has as many streams as it may; close one"),
            )
        };
        let of_principal = self
            .0
            .of_principal
            .take(name.clone())
            .ok_or_else(|| limit("the caller"))?;
        let key = (name, asked.scope.to_owned());
        let of_scope = self
            .0
            .of_scope
            .take(key)
            .ok_or_else(|| limit("the caller, for this contract,"))?;
        let (out, messages) = mpsc::channel(AHEAD);
        let end = Arc::new(Mutex::new(None));
        let task = Task {
            feed,
            hub: Arc::clone(hub),
            scope: asked.scope.to_owned(),
            filter: asked.filter,
            streams: self.clone(),
            call: call.clone(),
            out,
            shown: HashMap::new(),
            knows_all: false,
            last_sent: Instant::now(),
            _slots: (of_principal, of_scope),
            open: self.0.metrics.open_stream(asked.method),
        };
        Ok((task.run(resume, Arc::clone(&end)), Outgoing { messages, end }))
    }
}

// === impl Outgoing ===

impl<M> Stream for Outgoing<M> {
    type Item = Result<M, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.messages.poll_recv(context).map(|message| match message {
            Some(message) => Some(Ok(*message)),
            None => self.end.lock().take().map(Err),
        })
    }
}

impl<M> fmt::Debug for Outgoing<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Outgoing")
    }
}

#[cfg(test)]
mod tests;
