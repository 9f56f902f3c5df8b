//! What is scheduled, in the order of time.

use std::{
    cmp::{Ordering, Reverse},
    collections::BinaryHeap,
    time::Duration,
};

use bytes::Bytes;

use super::{
    arrive::{Answer, InFlight},
    link::{Connect, End, HowClosed},
    process::ProcessId,
};
use crate::topology::Cluster;

/// One thing that will happen.
#[derive(Debug)]
pub(super) enum Event {
    /// A timer of a process fires.
    Wake { process: ProcessId, incarnation: u32 },
    /// A request reaches its API server.
    Arrive(Box<InFlight>),
    /// An answer reaches its process.
    Answer(Box<Answer>),
    /// Events of a watch reach their process.
    WatchDue(u64),
    /// The API server ends a watch, as its client asked.
    WatchOver(u64),
    /// The API server sends bookmarks on all watches.
    Bookmarks(Cluster),
    /// A controller of the control plane works.
    Chore(Cluster),
    /// A connection to a gRPC port is opened.
    Connect(Box<Connect>),
    /// Bytes reach one end of a connection.
    Bytes { connection: u64, to: End, bytes: Bytes },
    /// One end of a connection learns that the other end has closed it.
    Close { connection: u64, to: End, how: HowClosed },
    /// A process starts again.
    Start { process: ProcessId, incarnation: u32 },
    /// A frozen process goes on.
    Thaw { process: ProcessId, incarnation: u32 },
}

/// Scheduled events. Events of the same moment happen in the order in which they were scheduled.
#[derive(Debug, Default)]
pub(super) struct Queue {
    heap: BinaryHeap<Reverse<Scheduled>>,
    next: u64,
}

#[derive(Debug)]
struct Scheduled {
    at: Duration,
    number: u64,
    event: Event,
}

impl Queue {
    pub(super) fn push(&mut self, at: Duration, event: Event) {
        let number = self.next;
        self.next += 1;
        self.heap.push(Reverse(Scheduled { at, number, event }));
    }

    pub(super) fn pop(&mut self) -> Option<(Duration, Event)> {
        let Reverse(Scheduled { at, event, .. }) = self.heap.pop()?;
        Some((at, event))
    }

    pub(super) fn next_at(&self) -> Option<Duration> {
        self.heap.peek().map(|Reverse(next)| next.at)
    }
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}
