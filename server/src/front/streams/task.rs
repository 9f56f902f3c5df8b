//! The task that serves one stream.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use bindery_proto::v1alpha2::{ErrorReason, Heartbeat, Removed, SnapshotBegin, SnapshotComplete};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until, timeout},
};
use tonic::{Code, Status};

use crate::front::{
    Failure, Outcome,
    auth::Denial,
    limits::{Permit, STREAM_AGE_MAX},
    streams::{
        Filter, SentObject, StreamEvent, StreamSource, Streams,
        hub::{ChangedNames, Cursor, Hub, RemovedObject, StreamStart, Subscriber},
        recheck::Recheck,
        token,
    },
    transport::{interceptor::Call, metrics::OpenStream},
};

/// A stream that sent nothing for this time sends a heartbeat.
const HEARTBEAT_AFTER: Duration = Duration::from_secs(30);
/// A client that reads nothing for this time is disconnected.
pub(super) const SLOW_AFTER: Duration = Duration::from_mins(1);
/// How long a stream waits for this replica to see what its resume token saw.
const CATCH_UP: Duration = Duration::from_secs(5);
/// How long a stream waits for the permit to send its snapshot.
const ADMISSION: Duration = Duration::from_secs(10);

/// Serves one stream.
pub(super) struct Task<S: StreamSource> {
    pub(super) source: S,
    pub(super) hub: Arc<Hub>,
    pub(super) scopes: Vec<String>,
    pub(super) filter: Filter,
    pub(super) streams: Streams,
    pub(super) call: Call,
    pub(super) out: mpsc::Sender<Box<S::Message>>,
    /// Identities of the objects that the client was sent, by their names in the hub.
    pub(super) sent: HashMap<Arc<str>, RemovedObject>,
    /// Whether `sent` holds all objects that the client knows. It does not after the client resumed.
    pub(super) knows_all: bool,
    pub(super) last_sent: Instant,
    pub(super) _permits: (Permit<String>, Permit<(String, String)>),
    pub(super) open: OpenStream,
}

/// From where the client wants to resume.
pub(super) enum StreamResume {
    /// It sent no resume token.
    None,
    /// Its resume token is of another caller or filter.
    OtherFilter,
    From(Cursor),
}

impl<S: StreamSource> Task<S> {
    pub(super) async fn run(mut self, resume: StreamResume, end: Arc<Mutex<Option<Status>>>) {
        let stop = self.streams.0.stop.clone();
        let client = self.out.clone();
        let outcome = tokio::select! {
            outcome = self.drive(resume) => outcome,
            () = stop.cancelled() => Ok(()),
            () = client.closed() => Ok(()),
        };
        let status = outcome.err().map(Status::from);
        self.open.end(status.as_ref().map_or(Code::Ok, Status::code));
        *end.lock() = status;
        // The senders are dropped after this line, so that the client sees the end with its status.
    }

    async fn drive(&mut self, resume: StreamResume) -> Outcome<()> {
        // In a box of its own, which is freed afterwards: a stream spends most of its time waiting.
        let (subscriber, mut sent) = Box::pin(self.begin(resume)).await?;
        let age = STREAM_AGE_MAX.mul_f64(0.8 + rand::random::<f64>() * 0.2);
        let end = Instant::now() + age;
        let expired = self.expiry();
        let deadline = self.call.deadline.of_stream();
        let mut recheck = Recheck::new(&self.streams.0.authenticators, &self.call);
        loop {
            let heartbeat = self.last_sent + HEARTBEAT_AFTER;
            let mut is_silent = false;
            tokio::select! {
                biased;
                () = sleep_until(end) => return Ok(()),
                () = until(expired) => return Err(Denial::Expired.into()),
                () = until(deadline) => return Err(Failure::deadline()),
                outcome = recheck.end() => return outcome,
                () = subscriber.changed() => {}
                () = sleep_until(heartbeat) => is_silent = true,
            }
            self.source.may_go_on()?;
            let (changed, cursor) = subscriber.drain();
            if changed.is_empty() && is_silent {
                let message = Box::new(self.with_cursor(StreamEvent::Heartbeat(Heartbeat {}), &cursor));
                self.put(message).await?;
            }
            self.changes(changed, Some(sent), cursor).await?;
            sent = cursor;
        }
    }

    /// Sends the snapshot, or the changes since the resume token.
    async fn begin(&mut self, resume: StreamResume) -> Outcome<(Subscriber, Cursor)> {
        let scopes = || self.scopes.iter().map(String::as_str);
        let (subscriber, start) = match resume {
            StreamResume::None => self.hub.subscribe(scopes(), None),
            StreamResume::OtherFilter => {
                let (subscriber, _) = self.hub.subscribe(scopes(), None);
                let refused = "the token is of another caller or filter";
                (subscriber, StreamStart::Snapshot(Some(refused)))
            }
            StreamResume::From(cursor) => {
                self.hub.reached(&cursor, CATCH_UP).await;
                self.hub.subscribe(scopes(), Some(&cursor))
            }
        };
        let cursor = match start {
            StreamStart::Resumed => {
                let (changed, cursor) = subscriber.drain();
                self.changes(changed, None, cursor).await?;
                let message = Box::new(self.with_cursor(StreamEvent::Heartbeat(Heartbeat {}), &cursor));
                self.put(message).await?;
                cursor
            }
            StreamStart::Snapshot(refused) => {
                // Before the caches are read, so that a change meanwhile is sent again.
                let (_, cursor) = subscriber.drain();
                self.snapshot(refused, cursor).await?;
                cursor
            }
        };
        Ok((subscriber, cursor))
    }

    async fn snapshot(&mut self, refused: Option<&'static str>, cursor: Cursor) -> Outcome<()> {
        let streams = self.streams.clone();
        let admitted = timeout(ADMISSION, streams.0.snapshots.acquire()).await;
        let Ok(Ok(_permit)) = admitted else {
            let delay = Duration::from_secs(1).mul_f64(1.0 + rand::random::<f64>() * 9.0);
            let message = "too many streams begin at once; try again after the delay of the RetryInfo";
            return Err(Failure::new(ErrorReason::Overloaded, message).retry_after(delay));
        };
        self.source.is_current()?;
        let begin = SnapshotBegin {
            resume_refused: refused.is_some(),
            reason: refused.unwrap_or_default().to_owned(),
        };
        let message = Box::new(without_cursor::<S>(StreamEvent::Begin(begin)));
        self.put(message).await?;
        let all = self.source.all();
        let count = i32::try_from(all.len()).unwrap_or(i32::MAX);
        for current in all {
            self.sent.insert(current.key, current.identity);
            let message = Box::new(without_cursor::<S>(StreamEvent::Applied(current.object)));
            self.put(message).await?;
        }
        self.knows_all = true;
        let complete = SnapshotComplete { object_count: count };
        let message = Box::new(self.with_cursor(StreamEvent::Complete(complete), &cursor));
        self.put(message).await
    }

    /// Sends changes. The last one carries cursor `after`; the others carry `before`, so that a client that resumes from them gets
    /// all of these changes again.
    async fn changes(&mut self, changed: ChangedNames, before: Option<Cursor>, after: Cursor) -> Outcome<()> {
        for message in self.messages(changed, before, after) {
            self.put(message).await?;
        }
        Ok(())
    }

    fn messages(&mut self, changed: ChangedNames, before: Option<Cursor>, after: Cursor) -> Vec<Box<S::Message>> {
        let mut events = Vec::new();
        let mut done = HashSet::new();
        for (name, removed) in changed {
            for (key, current) in self.source.now(&name) {
                if done.insert(Arc::clone(&key)) {
                    events.extend(self.event(&key, current, removed.clone()));
                }
            }
        }
        let last = events.len().saturating_sub(1);
        let message = |(index, event)| match (index == last, before) {
            (true, _) => Box::new(self.with_cursor(event, &after)),
            (false, Some(before)) => Box::new(self.with_cursor(event, &before)),
            (false, None) => Box::new(without_cursor::<S>(event)),
        };
        events.into_iter().enumerate().map(message).collect()
    }

    fn event(
        &mut self,
        key: &str,
        current: Option<SentObject<S::Object>>,
        removed: Option<RemovedObject>,
    ) -> Option<StreamEvent<S::Object>> {
        if let Some(current) = current {
            self.sent.insert(current.key, current.identity);
            return Some(StreamEvent::Applied(current.object));
        }
        let known = self.sent.remove(key);
        if known.is_none() && self.knows_all {
            return None;
        }
        let without_uid = || RemovedObject {
            name: key.to_owned(),
            uid: String::new(),
        };
        let RemovedObject { name, uid } = known.or(removed).unwrap_or_else(without_uid);
        Some(StreamEvent::Removed(Removed {
            namespace: self.source.namespace(),
            name,
            uid,
        }))
    }

    /// The message of an event, from which the client can resume.
    fn with_cursor(&self, event: StreamEvent<S::Object>, cursor: &Cursor) -> S::Message {
        S::message(event, token::write(self.filter, cursor))
    }

    /// Hands a message to the client, or fails if the client reads too slowly.
    async fn put(&mut self, message: Box<S::Message>) -> Outcome<()> {
        self.last_sent = Instant::now();
        match timeout(SLOW_AFTER, self.out.send(message)).await {
            // If the client is gone, `run` ends the task.
            Ok(_) => Ok(()),
            Err(_) => Err(Failure::new(
                ErrorReason::StreamTooSlow,
                "the client has not read its stream for too long; open it again with the last resume token",
            )),
        }
    }

    /// When the token of the caller expires.
    fn expiry(&self) -> Option<Instant> {
        let end = self.call.caller().ok()?.identity.expires_at?;
        let remaining = Duration::try_from(end.duration_since(Timestamp::now())).unwrap_or(Duration::ZERO);
        Instant::now().checked_add(remaining)
    }
}

/// The message of an event from which the client cannot resume.
fn without_cursor<S: StreamSource>(event: StreamEvent<S::Object>) -> S::Message {
    S::message(event, String::new())
}

async fn until(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => std::future::pending().await,
    }
}
