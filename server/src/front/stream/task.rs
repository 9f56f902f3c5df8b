//! One stream at work.

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

use super::{
    Event, Feed, Filter, Shown, Streams,
    hub::{self, Gone, Hub, Mark, Start},
    recheck::Recheck,
    token,
};
use crate::front::{
    error::{Failure, Outcome},
    gate::Call,
    limits::Slot,
    metrics::OpenStream,
};

const HEARTBEAT_AFTER: Duration = Duration::from_secs(30);
pub(super) const AGE_MAX: Duration = Duration::from_mins(30);
/// A client that takes nothing for this time is let go.
pub(super) const SLOW_AFTER: Duration = Duration::from_mins(1);
/// How long a stream waits for this replica to catch up with its token.
const CATCH_UP: Duration = Duration::from_secs(5);
/// How long a stream waits until it may send its snapshot.
const ADMISSION: Duration = Duration::from_secs(10);

/// One stream at work.
pub(super) struct Task<F: Feed> {
    pub(super) feed: F,
    pub(super) hub: Arc<Hub>,
    pub(super) scope: String,
    pub(super) filter: Filter,
    pub(super) streams: Streams,
    pub(super) call: Call,
    pub(super) out: mpsc::Sender<Box<F::Message>>,
    /// What the client was shown. Not all of it, where it resumed.
    pub(super) shown: HashMap<Arc<str>, Gone>,
    pub(super) knows_all: bool,
    pub(super) last_sent: Instant,
    pub(super) _slots: (Slot<String>, Slot<(String, String)>),
    pub(super) open: OpenStream,
}

/// What the client's token comes to.
pub(super) enum Resume {
    None,
    OtherFilter,
    From(Mark),
}

impl<F: Feed> Task<F> {
    pub(super) async fn run(mut self, resume: Resume, end: Arc<Mutex<Option<Status>>>) {
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
        // What only the begin needs is given back after it: most of its time a stream waits.
        let (member, mut sent) = Box::pin(self.begin(resume)).await?;
        let age = AGE_MAX.mul_f64(0.8 + rand::random::<f64>() * 0.2);
        let old = Instant::now() + age;
        let expired = self.expiry();
        let deadline = self.call.deadline.of_stream();
        let mut recheck = Recheck::new(&self.streams.0.authenticators, self.call.token());
        loop {
            let beat = self.last_sent + HEARTBEAT_AFTER;
            let mut silent = false;
            tokio::select! {
                biased;
                () = sleep_until(old) => return Ok(()),
                () = until(expired) => return Err(Failure::new(ErrorReason::TokenExpired, "the token has expired; get a new one")),
                () = until(deadline) => return Err(Failure::new(ErrorReason::Deadline, "the call's deadline passed")),
                refused = recheck.refused() => return Err(refused),
                () = member.changed() => {}
                () = sleep_until(beat) => silent = true,
            }
            self.feed.may_go_on()?;
            let (dirty, mark) = member.drain();
            if dirty.is_empty() && silent {
                let message = Box::new(self.marked(Event::Heartbeat(Heartbeat {}), &mark));
                self.put(message).await?;
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
                let message = Box::new(self.marked(Event::Heartbeat(Heartbeat {}), &mark));
                self.put(message).await?;
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
        self.feed.is_current()?;
        let begin = SnapshotBegin {
            resume_refused: refused.is_some(),
            reason: refused.unwrap_or_default().to_owned(),
        };
        let message = Box::new(bare::<F>(Event::Begin(begin)));
        self.put(message).await?;
        let all = self.feed.all();
        let count = i32::try_from(all.len()).unwrap_or(i32::MAX);
        for shown in all {
            self.shown.insert(shown.key, shown.identity);
            let message = Box::new(bare::<F>(Event::Applied(shown.object)));
            self.put(message).await?;
        }
        self.knows_all = true;
        let complete = SnapshotComplete { object_count: count };
        let message = Box::new(self.marked(Event::Complete(complete), &mark));
        self.put(message).await
    }

    /// Sends changes. Only with the last of them has the client come as far as `after`.
    async fn changes(&mut self, dirty: hub::Dirty, before: Option<Mark>, after: Mark) -> Outcome<()> {
        for message in self.messages(dirty, before, after) {
            self.put(message).await?;
        }
        Ok(())
    }

    fn messages(&mut self, dirty: hub::Dirty, before: Option<Mark>, after: Mark) -> Vec<Box<F::Message>> {
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
        let marked = |(index, event)| match (index == last, before) {
            (true, _) => Box::new(self.marked(event, &after)),
            (false, Some(before)) => Box::new(self.marked(event, &before)),
            (false, None) => Box::new(bare::<F>(event)),
        };
        events.into_iter().enumerate().map(marked).collect()
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

    /// An event, and how far the client has come with it.
    fn marked(&self, event: Event<F::Object>, mark: &Mark) -> F::Message {
        F::message(event, token::write(self.filter, mark))
    }

    /// Hands over a message. Nothing else waits while it holds one: a stream that is silent is small.
    async fn put(&mut self, message: Box<F::Message>) -> Outcome<()> {
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
}

/// An event that says nothing of how far the client has come.
fn bare<F: Feed>(event: Event<F::Object>) -> F::Message {
    F::message(event, String::new())
}

async fn until(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => std::future::pending().await,
    }
}
