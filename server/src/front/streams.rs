//! Watch streams: each begins with a snapshot or with the missed changes, goes on with changes, and ends when the client, the
//! token or the server ends it.
//!
//! Each stream is a task, which holds the names that changed and the identities of the objects that the client was sent. A
//! client that does not read delays its own task only, and is disconnected after a while.

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

use crate::front::{
    Failure, Outcome,
    auth::Authenticators,
    limits::{Permits, SNAPSHOTS_MAX},
    transport::{interceptor::Call, metrics::Metrics},
};
use crate::limits::{LimitName, Refusals};

pub(crate) mod changes;
pub(crate) mod hub;
mod recheck;
mod task;
pub(crate) mod token;

use hub::{Hub, RemovedObject};
use task::{StreamResume, Task};
pub(crate) use token::Filter;

/// Number of messages that a stream prepares before the client reads them. They are boxed, for a channel allocates room for 32
/// of its items at once, and most streams are silent.
const MESSAGES_AHEAD: usize = 16;

/// An object as a stream sends it.
#[derive(Debug)]
pub(crate) struct SentObject<T> {
    /// Its name in the hub.
    pub key: Arc<str>,
    /// Its name and UID, by which its removal is told.
    pub identity: RemovedObject,
    /// The object as the client sees it.
    pub object: T,
}

/// A name in the hub, and the object that has it now.
pub(crate) type CurrentObject<T> = (Arc<str>, Option<SentObject<T>>);

/// An event of a stream, before it becomes a message of the stream's method.
#[derive(Debug)]
pub(crate) enum StreamEvent<T> {
    /// A snapshot begins.
    Begin(SnapshotBegin),
    /// An object was created or changed, or is part of the snapshot.
    Applied(T),
    /// An object was removed.
    Removed(Removed),
    /// The snapshot is complete.
    Complete(SnapshotComplete),
    /// Nothing happened for a while.
    Heartbeat(Heartbeat),
}

/// The source of a stream's objects.
pub(crate) trait StreamSource: Send + Sync + 'static {
    /// Objects as the client sees them.
    type Object: Send;
    /// Messages of the method.
    type Message: Send + 'static;

    /// All objects that the stream shows.
    fn all(&self) -> Vec<SentObject<Self::Object>>;

    /// The objects that a change of this name in the hub concerns, as they are now.
    fn now(&self, changed: &str) -> Vec<CurrentObject<Self::Object>>;

    /// The namespace of the objects, for those that were removed.
    fn namespace(&self) -> String;

    /// Whether the caller may still watch.
    fn may_go_on(&self) -> Outcome<()>;

    /// Whether this replica follows all changes, so that an object that is not in its caches does not exist.
    fn is_current(&self) -> Outcome<()>;

    /// Makes a message of an event. An empty resume token says that the client cannot resume from there.
    fn message(event: StreamEvent<Self::Object>, resume_token: String) -> Self::Message;
}

/// The limits and services that all streams share.
#[derive(Clone, Debug)]
pub(crate) struct Streams(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    of_principal: Permits<String>,
    of_scope: Permits<(String, String)>,
    snapshots: Semaphore,
    authenticators: Authenticators,
    metrics: Metrics,
    refusals: Refusals,
    stop: CancellationToken,
}

/// The request for a stream.
#[derive(Debug)]
pub(crate) struct StreamRequest<'a> {
    /// Path of the method.
    pub method: &'static str,
    /// The contracts, principals or groups whose changes the stream shows, as scopes of the hub. There is at least one; the streams
    /// of the caller for the first one are limited.
    pub scopes: Vec<String>,
    /// Hash of the caller, the scope and the filter of the request.
    pub filter: Filter,
    /// Resume token of an earlier stream, or empty.
    pub resume_token: &'a str,
}

/// The messages of a stream, as tonic sends them. After the last one, the stream ends with the status in `end`, if any.
pub(crate) struct MessageStream<M> {
    messages: mpsc::Receiver<Box<M>>,
    end: Arc<Mutex<Option<Status>>>,
}

/// Refuses a call whose answer needs all objects of a cache while the cache cannot follow their changes.
pub(crate) fn require_followed(what: &str, health: &watch::Receiver<Health>) -> Outcome<()> {
    let health = health.borrow();
    let message = match (&health.failure, health.is_synced()) {
        (None, true) => return Ok(()),
        (Some(_), _) => format!("this replica cannot follow the changes of {what}; try again"),
        (None, false) => format!("this replica is still listing {what}; try again"),
    };
    Err(Failure::new(ErrorReason::CacheNotReady, message))
}

// === impl Streams ===

impl Streams {
    /// No streams yet. Those that are opened end when `stop` is cancelled.
    pub(crate) fn new(
        authenticators: Authenticators,
        metrics: Metrics,
        refusals: Refusals,
        stop: CancellationToken,
    ) -> Self {
        Self(Arc::new(Shared {
            // Each call brings the limits of its caller.
            of_principal: Permits::new(0),
            of_scope: Permits::new(0),
            refusals,
            snapshots: Semaphore::new(SNAPSHOTS_MAX),
            authenticators,
            metrics,
            stop,
        }))
    }

    /// Number of streams that a caller has open here.
    pub(crate) fn open_of(&self, username: &str) -> usize {
        self.0.of_principal.held(&username.to_owned())
    }

    /// Opens a stream, which a task of its own serves.
    pub(crate) fn open<S: StreamSource>(
        &self,
        call: &Call,
        request: StreamRequest<'_>,
        hub: &Arc<Hub>,
        source: S,
    ) -> Outcome<MessageStream<S::Message>> {
        let (work, outgoing) = self.prepare(call, request, hub, source)?;
        tokio::spawn(work);
        Ok(outgoing)
    }

    /// The future that serves a stream, and the stream of its messages.
    fn prepare<S: StreamSource>(
        &self,
        call: &Call,
        request: StreamRequest<'_>,
        hub: &Arc<Hub>,
        source: S,
    ) -> Outcome<(impl Future<Output = ()> + Send + use<S>, MessageStream<S::Message>)> {
        let resume = match request.resume_token {
            "" => StreamResume::None,
            text => token::read(request.filter, text)?.map_or(StreamResume::OtherFilter, StreamResume::From),
        };
        source.may_go_on()?;
        let name = call.caller()?.username().to_owned();
        let contract = call.caller()?.contract().map(ToOwned::to_owned);
        let refused = |what: &str| {
            self.0.refusals.count(LimitName::Streams);
            let reached = call.limits.reached(LimitName::Streams, contract.as_deref());
            Failure::new(ErrorReason::StreamLimit, format!("{what}: {reached}"))
                .with("limit", reached.name.as_str())
                .with("max", reached.limit.to_string())
        };
        let max = call.limits.streams as usize;
        let of_principal = self
            .0
            .of_principal
            .try_acquire_of(name.clone(), max)
            .ok_or_else(|| refused("too many streams"))?;
        let key = (name, request.scopes.first().cloned().unwrap_or_default());
        // A client with a renewed token opens its next stream before it closes the last one.
        let of_scope = self
            .0
            .of_scope
            .try_acquire_of(key, max.div_ceil(2))
            .ok_or_else(|| refused("too many streams for this contract, which may have half of the limit"))?;
        let (out, messages) = mpsc::channel(MESSAGES_AHEAD);
        let end = Arc::new(Mutex::new(None));
        let task = Task {
            source,
            hub: Arc::clone(hub),
            scopes: request.scopes,
            filter: request.filter,
            streams: self.clone(),
            call: call.clone(),
            out,
            sent: HashMap::new(),
            knows_all: false,
            last_sent: Instant::now(),
            _permits: (of_principal, of_scope),
            open: self.0.metrics.open_stream(request.method),
        };
        Ok((task.run(resume, Arc::clone(&end)), MessageStream { messages, end }))
    }
}

// === impl MessageStream ===

impl<M> Stream for MessageStream<M> {
    type Item = Result<M, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.messages.poll_recv(context).map(|message| match message {
            Some(message) => Some(Ok(*message)),
            None => self.end.lock().take().map(Err),
        })
    }
}

impl<M> fmt::Debug for MessageStream<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MessageStream")
    }
}

#[cfg(test)]
mod tests;
