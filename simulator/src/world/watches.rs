//! Open watches: when their events reach the process.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use bindery_simulator_apiserver::WatchId;
use bytes::Bytes;
use tokio::sync::mpsc;
use tower::BoxError;

use super::{Event, World, process::ProcessId};
use crate::{faults::TriggerPoint, topology::Cluster};

/// All open watches by number.
#[derive(Debug, Default)]
pub(super) struct Watches {
    open: BTreeMap<u64, OpenWatch>,
    next: u64,
}

/// The body of a watch as the world writes it.
pub(super) type WatchSender = mpsc::UnboundedSender<Result<Bytes, BoxError>>;

#[derive(Debug)]
struct OpenWatch {
    cluster: Cluster,
    id: WatchId,
    process: ProcessId,
    incarnation: u32,
    body: WatchSender,
    /// Whether the head of the answer has reached the process.
    is_answered: bool,
    /// When a delivery is due, if one is scheduled.
    due: Option<Duration>,
    /// Events that a stale watch has not sent yet, each with the time at which it is sent. They come before those of the API server.
    held: VecDeque<(Duration, Bytes)>,
    path: String,
}

impl Watches {
    pub(super) fn open(
        &mut self,
        (cluster, id): (Cluster, WatchId),
        (process, incarnation): (ProcessId, u32),
        body: WatchSender,
        path: String,
    ) -> u64 {
        let number = self.next;
        self.next += 1;
        self.open.insert(
            number,
            OpenWatch {
                cluster,
                id,
                process,
                incarnation,
                body,
                is_answered: false,
                due: None,
                held: VecDeque::new(),
                path,
            },
        );
        number
    }

    pub(super) fn of_cluster(&self, cluster: Cluster) -> Vec<u64> {
        let all = self.open.iter().filter(|(_, watch)| watch.cluster == cluster);
        all.map(|(number, _)| *number).collect()
    }

    /// Takes the watches of a process that has ended.
    fn take_of(&mut self, process: ProcessId) -> Vec<OpenWatch> {
        let gone = self.open.extract_if(.., |_, watch| watch.process == process);
        gone.map(|(_, watch)| watch).collect()
    }
}

impl World {
    /// Ends the watches of a process that has ended.
    pub(super) fn drop_watches_of(&mut self, process: ProcessId) {
        for watch in self.watches.take_of(process) {
            if let Some(slot) = self.clusters.get_mut(&watch.cluster) {
                slot.api.end_watch(watch.id);
                // Taken, so that the API server forgets the watch.
                slot.api.watch_events(watch.id);
            }
        }
    }

    /// Ends a watch that nobody reads.
    pub(super) fn close_watch(&mut self, number: u64) {
        let Some(watch) = self.watches.open.remove(&number) else {
            return;
        };
        if let Some(slot) = self.clusters.get_mut(&watch.cluster) {
            slot.api.end_watch(watch.id);
            // Taken, so that the API server forgets the watch.
            slot.api.watch_events(watch.id);
        }
    }

    /// Sends bookmarks on all watches of a cluster that wait for events, all at the same moment.
    pub(super) fn deliver_bookmarks(&mut self, cluster: Cluster) {
        let waiting = |watch: &OpenWatch| watch.cluster == cluster && watch.is_answered && watch.due.is_none();
        let open = self.watches.open.iter().filter(|(_, watch)| waiting(watch));
        let open: Vec<_> = open.map(|(number, watch)| (*number, watch.process)).collect();
        let mut processes = BTreeSet::new();
        let mut count = 0;
        for (number, process) in open {
            if self.is_stalled(process, cluster) {
                continue;
            }
            let (Some(watch), Some(slot)) = (self.watches.open.get(&number), self.clusters.get_mut(&cluster)) else {
                continue;
            };
            slot.api.bookmark(watch.id);
            for event in slot.api.watch_events(watch.id) {
                count += 1;
                let _ = watch.body.send(Ok(event));
            }
            processes.insert(process);
        }
        self.trace.line(self.now, &format!("{cluster}: {count} bookmarks"));
        for process in processes {
            self.run(process);
        }
    }

    /// Marks the answer of a watch as delivered, so that events may follow.
    pub(super) fn watch_answered(&mut self, number: u64) {
        if let Some(watch) = self.watches.open.get_mut(&number) {
            watch.is_answered = true;
            let cluster = watch.cluster;
            self.schedule_watches(cluster);
        }
    }

    /// Schedules deliveries on the watches of a cluster that have events.
    pub(super) fn schedule_watches(&mut self, cluster: Cluster) {
        if self.has_stale_watches(cluster) {
            self.hold_events(cluster);
        }
        let Some(slot) = self.clusters.get(&cluster) else {
            return;
        };
        let mut due = Vec::new();
        for (number, watch) in &self.watches.open {
            let is_idle = watch.cluster == cluster && watch.is_answered && watch.due.is_none();
            let held = watch.held.front().map(|(at, _)| *at);
            let has_news = || slot.api.pending_events(watch.id) > 0 || slot.api.watch_ended(watch.id);
            if is_idle && (held.is_some() || has_news()) {
                due.push((*number, watch.process, held.unwrap_or_default()));
            }
        }
        for (number, process, held) in due {
            let delay = self.latency() + self.rules_delay(process, cluster);
            let stall = self.rules_stall(process, cluster).unwrap_or_default();
            let at = (self.now + delay).max(stall).max(held);
            if let Some(watch) = self.watches.open.get_mut(&number) {
                watch.due = Some(at);
                self.queue.push(at, Event::WatchDue(number));
            }
        }
    }

    /// Takes the events of stale watches of a cluster from its API server, to send them later.
    fn hold_events(&mut self, cluster: Cluster) {
        let of_cluster = self.watches.open.iter().filter(|(_, watch)| watch.cluster == cluster);
        let all: Vec<_> = of_cluster.map(|(number, watch)| (*number, watch.process)).collect();
        for (number, process) in all {
            let Some((rule, at)) = self.rules_lag(process, cluster) else {
                continue;
            };
            let (Some(watch), Some(slot)) = (self.watches.open.get_mut(&number), self.clusters.get_mut(&cluster))
            else {
                continue;
            };
            if slot.api.watch_ended(watch.id) || slot.api.pending_events(watch.id) == 0 {
                continue;
            }
            // Events keep their order, also where one rule follows another.
            let at = watch.held.back().map_or(at, |(last, _)| at.max(*last));
            let events = slot.api.watch_events(watch.id);
            watch.held.extend(events.into_iter().map(|event| (at, event)));
            self.rules.hit(rule);
        }
    }

    /// Lets all watches send soon what was held back.
    pub(super) fn release_watches(&mut self) {
        for watch in self.watches.open.values_mut() {
            watch.due = None;
            for (at, _) in &mut watch.held {
                *at = self.now;
            }
        }
        let clusters: Vec<_> = self.clusters().collect();
        for cluster in clusters {
            self.schedule_watches(cluster);
        }
    }

    /// Hands the events of a watch to its process, and its end. `None` if the watch is closed, or another delivery is due instead.
    pub(super) fn deliver_watch(&mut self, number: u64) -> Option<Cluster> {
        let watch = self.watches.open.get_mut(&number)?;
        if watch.due.is_none_or(|due| due > self.now) {
            return None;
        }
        watch.due = None;
        let cluster = watch.cluster;
        let slot = self.clusters.get_mut(&cluster)?;
        if watch.body.is_closed() {
            slot.api.end_watch(watch.id);
            // Taken, so that the API server forgets the watch.
            slot.api.watch_events(watch.id);
            self.watches.open.remove(&number);
            return None;
        }
        let mut events = Vec::new();
        while watch.held.front().is_some_and(|(at, _)| *at <= self.now) {
            events.extend(watch.held.pop_front().map(|(_, event)| event));
        }
        if watch.held.is_empty() {
            events.extend(slot.api.watch_events(watch.id));
        }
        let count = events.len();
        for event in events {
            // The process may have dropped the body meanwhile.
            let _ = watch.body.send(Ok(event));
        }
        if let Some((at, _)) = watch.held.front() {
            watch.due = Some(*at);
            self.queue.push(*at, Event::WatchDue(number));
        }
        let has_ended = watch.held.is_empty() && slot.api.watch_ended(watch.id);
        if count == 0 && !has_ended {
            return None;
        }
        let process = watch.process;
        debug_assert_eq!(
            watch.incarnation, self.processes[process.0].incarnation,
            "watches end with their process"
        );
        let ending = if has_ended { ", which ends" } else { "" };
        let line = format!(
            "{} ← {cluster}: {count} on watch {}{ending}",
            self.processes[process.0].label, watch.path
        );
        if has_ended {
            self.watches.open.remove(&number);
        }
        self.trace.line(self.now, &line);
        self.reach(process, TriggerPoint::Watch);
        self.run(process);
        Some(cluster)
    }

    /// Makes the API server end a watch.
    pub(super) fn end_watch(&mut self, number: u64) {
        let Some(watch) = self.watches.open.get(&number) else {
            return;
        };
        let cluster = watch.cluster;
        if let Some(slot) = self.clusters.get_mut(&cluster) {
            slot.api.end_watch(watch.id);
            self.schedule_watches(cluster);
        }
    }

    /// Breaks the watches of a cluster that has ended.
    pub(super) fn fail_watches_of(&mut self, cluster: Cluster) {
        for number in self.watches.of_cluster(cluster) {
            if let Some(watch) = self.watches.open.remove(&number) {
                let _ = watch.body.send(Err("connection reset by peer".into()));
                self.run(watch.process);
            }
        }
    }
}
