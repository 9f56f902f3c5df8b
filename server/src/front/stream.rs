//! A watch stream: a snapshot or what was missed, then changes, until the client, the token or the server ends it.
//!
//! Each stream is a task that holds nothing but the names that changed and what the client was last shown. A client that
//! does not read holds up its own task alone, and not for long.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bindery_proto::v1alpha2::{ErrorReason, Heartbeat, Removed, SnapshotBegin, SnapshotComplete};
use futures::Stream;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::{
    sync::{Semaphore, mpsc},
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status};

use super::{
    auth::Authenticators,
    error::{Failure, Outcome},
    gate::Call,
    limits::{SNAPSHOTS_MAX, STREAMS_PER_CONTRACT, STREAMS_PER_PRINCIPAL, Slot, Slots},
    metrics::{Metrics, OpenStream},
};

pub(super) mod hub;
mod token;

use hub::{Gone, Hub, Mark, Start};
pub(super) use token::Filter;

const HEARTBEAT_AFTER: Duration = Duration::from_secs(30);
const AGE_MAX: Duration = Duration::from_mins(30);
/// A token is checked again after this time; half of it at the earliest.
const RECHECK_AFTER: Duration = Duration::from_mins(5);
/// A client that takes nothing for this time is let go.
const SLOW_AFTER: Duration = Duration::from_mins(1);
/// How long a stream waits for this replica to catch up with its token.
const CATCH_UP: Duration = Duration::from_secs(5);
/// How long a stream waits until it may send its snapshot.
const ADMISSION: Duration = Duration::from_secs(10);
/// Messages that are ready before the client reads them.
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
    messages: mpsc::Receiver<M>,
    end: Arc<Mutex<Option<Status>>>,
}

/// One stream at work.
struct Task<F: Feed> {
    feed: F,
    hub: Arc<Hub>,
    scope: String,
    filter: Filter,
    streams: Streams,
    call: Call,
    out: mpsc::Sender<F::Message>,
    /// What the client was shown. Not all of it, where it resumed.
    shown: HashMap<Arc<str>, Gone>,
    knows_all: bool,
    last_sent: Instant,
    _slots: (Slot<String>, Slot<(String, String)>),
    open: OpenStream,
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
        tokio::spawn(task.run(resume, Arc::clone(&end)));
        Ok(Outgoing { messages, end })
    }
}

/// What the client's token comes to.
enum Resume {
    None,
    OtherFilter,
    From(Mark),
}

// === impl Task ===

impl<F: Feed> Task<F> {
    async fn run(mut self, resume: Resume, end: Arc<Mutex<Option<Status>>>) {
        let stop = self.streams.0.stop.clone();
        let gone = self.out.clone();
        let outcome = tokio::select! {
            outcome = self.drive(resume) => outcome,
            () = stop.cancelled() => Ok(()),
            () = gone.closed() => Ok(()),
        };
        let status = outcome.err().map(Status::from);
        self.open.end(status.as_ref().map_or(Code::Ok, Status::code));
        *end.lock() = status;
        // Only now are the senders dropped, and the client sees the end.
    }

    async fn drive(&mut self, resume: Resume) -> Outcome<()> {
        let (member, mut sent) = self.begin(resume).await?;
        let age = AGE_MAX.mul_f64(0.8 + rand::random::<f64>() * 0.2);
        let old = Instant::now() + age;
        let expired = self.expiry();
        let deadline = self.call.deadline.of_stream();
        let mut recheck = next_check();
        loop {
            let beat = self.last_sent + HEARTBEAT_AFTER;
            let mut silent = false;
            tokio::select! {
                biased;
                () = sleep_until(old) => return Ok(()),
                () = until(expired) => return Err(Failure::new(ErrorReason::TokenExpired, "the token has expired; get a new one")),
                () = until(deadline) => return Err(Failure::new(ErrorReason::Deadline, "the call's deadline passed")),
                () = sleep_until(recheck) => {
                    self.check_token().await?;
                    recheck = next_check();
                }
                () = member.changed() => {}
                () = sleep_until(beat) => silent = true,
            }
            self.feed.may_go_on()?;
            let (dirty, mark) = member.drain();
            if dirty.is_empty() && silent {
                self.send(Event::Heartbeat(Heartbeat {}), &mark).await?;
            }
            self.changes(dirty, Some(sent), mark).await?;
            sent = mark;
        }
    }

    /// Sends what the stream begins with.
    async fn begin(&mut self, resume: Resume) -> Outcome<(hub::Member, Mark)> {
        let (member, start) = match resume {
            Resume::None => self.hub.join(&self.scope, None),
            Resume::OtherFilter => {
                let (member, _) = self.hub.join(&self.scope, None);
                (
                    member,
                    Start::Snapshot(Some("the token is of another caller or filter")),
                )
            }
            Resume::From(mark) => {
                self.hub.reached(&mark, CATCH_UP).await;
                self.hub.join(&self.scope, Some(&mark))
            }
        };
        let mark = match start {
            Start::Resumed => {
                let (dirty, mark) = member.drain();
                self.changes(dirty, None, mark).await?;
                self.send(Event::Heartbeat(Heartbeat {}), &mark).await?;
                mark
            }
            Start::Snapshot(refused) => {
                // Taken before the caches are read: what changes meanwhile comes again.
                let (_, mark) = member.drain();
                self.snapshot(refused, mark).await?;
                mark
            }
        };
        Ok((member, mark))
    }

    async fn snapshot(&mut self, refused: Option<&'static str>, mark: Mark) -> Outcome<()> {
        let streams = self.streams.clone();
        let admitted = timeout(ADMISSION, streams.0.snapshots.acquire()).await;
        let Ok(Ok(_permit)) = admitted else {
            let delay = Duration::from_secs(1).mul_f64(1.0 + rand::random::<f64>() * 9.0);
            let message = "too many streams begin at once; come back a little later";
            return Err(Failure::new(ErrorReason::Overloaded, message).retry_after(delay));
        };
        let begin = SnapshotBegin {
            resume_refused: refused.is_some(),
            reason: refused.unwrap_or_default().to_owned(),
        };
        self.send_bare(Event::Begin(begin)).await?;
        let all = self.feed.all();
        let count = i32::try_from(all.len()).unwrap_or(i32::MAX);
        for shown in all {
            self.shown.insert(shown.key, shown.identity);
            self.send_bare(Event::Applied(shown.object)).await?;
        }
        self.knows_all = true;
        let complete = SnapshotComplete { object_count: count };
        self.send(Event::Complete(complete), &mark).await
    }

    /// Sends changes. Only with the last of them has the client come as far as `after`.
    async fn changes(&mut self, dirty: hub::Dirty, before: Option<Mark>, after: Mark) -> Outcome<()> {
        let mut events = Vec::new();
        let mut done = HashSet::new();
        for (changed, gone) in dirty {
            for (key, now) in self.feed.now(&changed) {
                if done.insert(Arc::clone(&key)) {
                    events.extend(self.event(&key, now, gone.clone()));
                }
            }
        }
        let last = events.len().saturating_sub(1);
        for (index, event) in events.into_iter().enumerate() {
            match (index == last, before) {
                (true, _) => self.send(event, &after).await?,
                (false, Some(before)) => self.send(event, &before).await?,
                (false, None) => self.send_bare(event).await?,
            }
        }
        Ok(())
    }

    fn event(&mut self, key: &str, now: Option<Shown<F::Object>>, gone: Option<Gone>) -> Option<Event<F::Object>> {
        if let Some(shown) = now {
            self.shown.insert(shown.key, shown.identity);
            return Some(Event::Applied(shown.object));
        }
        let known = self.shown.remove(key);
        if known.is_none() && self.knows_all {
            return None;
        }
        let unnamed = || Gone {
            name: key.to_owned(),
            uid: String::new(),
        };
        let Gone { name, uid } = known.or(gone).unwrap_or_else(unnamed);
        Some(Event::Removed(Removed {
            namespace: self.feed.namespace(),
            name,
            uid,
        }))
    }

    async fn send(&mut self, event: Event<F::Object>, mark: &Mark) -> Outcome<()> {
        self.put(F::message(event, token::write(self.filter, mark))).await
    }

    async fn send_bare(&mut self, event: Event<F::Object>) -> Outcome<()> {
        self.put(F::message(event, String::new())).await
    }

    async fn put(&mut self, message: F::Message) -> Outcome<()> {
        self.last_sent = Instant::now();
        match timeout(SLOW_AFTER, self.out.send(message)).await {
            // A client that is gone ends the task elsewhere.
            Ok(_) => Ok(()),
            Err(_) => Err(Failure::new(
                ErrorReason::StreamTooSlow,
                "the client has not read its stream for too long; connect again with the last token",
            )),
        }
    }

    fn expiry(&self) -> Option<Instant> {
        let end = self.call.caller().ok()?.identity.expires_at?;
        let left = Duration::try_from(end.duration_since(Timestamp::now())).unwrap_or(Duration::ZERO);
        Instant::now().checked_add(left)
    }

    /// A token that was revoked in ways that nobody records ends its streams here.
    async fn check_token(&self) -> Outcome<()> {
        let Some(token) = self.call.token() else {
            return Ok(());
        };
        match self.streams.0.authenticators.authenticate(token).await {
            Err(failure) if failure.reason().code() == Code::Unauthenticated => Err(failure),
            _ => Ok(()),
        }
    }
}

/// Spread, so that the tokens of a thousand streams are not checked at once.
fn next_check() -> Instant {
    Instant::now() + RECHECK_AFTER.mul_f64(0.5 + rand::random::<f64>() * 0.5)
}

async fn until(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

// === impl Outgoing ===

impl<M> Stream for Outgoing<M> {
    type Item = Result<M, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.messages.poll_recv(context).map(|message| match message {
            Some(message) => Some(Ok(message)),
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
