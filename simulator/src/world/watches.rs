//! Open watches: when their events reach the process.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use bindery_simulator_apiserver::WatchId;
use bytes::Bytes;
use tokio::sync::mpsc;
use tower::BoxError;

use super::{Event, World, process::ProcessId};
use crate::topology::Cluster;

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

    /// Sends bookmarks on all watches of a cluster that wait for events, all at the same moment.
    pub(super) fn deliver_bookmarks(&mut self, cluster: Cluster) {
        let waiting = |watch: &OpenWatch| watch.cluster == cluster && watch.is_answered && watch.due.is_none();
        let open = self.watches.open.iter().filter(|(_, watch)| waiting(watch));
        let open: Vec<_> = open.map(|(number, watch)| (*number, watch.process)).collect();
        let mut processes = BTreeSet::new();
        let mut count = 0;
        for (number, process) in open {
            if self.rules_stall(process, cluster).is_some() {
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
        let Some(slot) = self.clusters.get(&cluster) else {
            return;
        };
        let mut due = Vec::new();
        for (number, watch) in &self.watches.open {
            let is_idle = watch.cluster == cluster && watch.is_answered && watch.due.is_none();
            if is_idle && (slot.api.pending_events(watch.id) > 0 || slot.api.watch_ended(watch.id)) {
                due.push((*number, watch.process));
            }
        }
        for (number, process) in due {
            let delay = self.latency() + self.rules_delay(process, cluster);
            let at = self
                .rules_stall(process, cluster)
                .unwrap_or_default()
                .max(self.now + delay);
            if let Some(watch) = self.watches.open.get_mut(&number) {
                watch.due = Some(at);
                self.queue.push(at, Event::WatchDue(number));
            }
        }
    }

    /// Hands the events of a watch to its process, and its end.
    pub(super) fn deliver_watch(&mut self, number: u64) -> Option<Cluster> {
        let watch = self.watches.open.get_mut(&number)?;
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
        let events = slot.api.watch_events(watch.id);
        let count = events.len();
        for event in events {
            // The process may have dropped the body meanwhile.
            let _ = watch.body.send(Ok(event));
        }
        let has_ended = slot.api.watch_ended(watch.id);
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
