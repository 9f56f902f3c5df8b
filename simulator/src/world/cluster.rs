//! The API servers of a world and the work of their control planes.

use std::{collections::BTreeSet, time::Duration};

use bindery_simulator_apiserver::{ApiServer, ObjectKey, Revisions, Snapshot};
use rand::RngExt as _;

use super::{Event, World, WorldChange, timestamp};
use crate::topology::Cluster;

/// How often an API server sends bookmarks.
const BOOKMARKS_EVERY: Duration = Duration::from_mins(1);

/// One cluster.
#[derive(Debug)]
pub(super) struct ClusterSlot {
    pub(super) api: ApiServer,
    /// An earlier state, from which lists are answered that accept one.
    pub(super) stale: Option<ApiServer>,
    /// Whether a step of the control plane is scheduled.
    chore_due: bool,
}

/// A backup of a cluster's etcd.
#[derive(Clone, Debug)]
pub struct Backup(pub(super) Snapshot);

/// The host name of a cluster's API server.
pub fn cluster_host(cluster: Cluster) -> String {
    match cluster {
        Cluster::Consumer(number) => format!("consumer-{number}.sim"),
        Cluster::Provider(number) => format!("provider-{number}.sim"),
        Cluster::Clone(number) => format!("clone-{number}.sim"),
    }
}

impl ClusterSlot {
    pub(super) fn new(api: ApiServer) -> Self {
        Self {
            api,
            stale: None,
            chore_due: false,
        }
    }
}

impl World {
    /// Adds a cluster and starts its control plane.
    pub(super) fn add_cluster(&mut self, name: Cluster, api: ApiServer) {
        self.clusters.insert(name, ClusterSlot::new(api));
        self.schedule_bookmarks(name);
        self.after_writes(name);
        self.schedule_chore(name);
    }

    /// The cluster whose API server has this host name.
    pub(super) fn cluster_of_host(&self, host: &str) -> Option<Cluster> {
        self.clusters.keys().copied().find(|name| cluster_host(*name) == host)
    }

    /// Takes a backup of a cluster.
    pub fn backup(&mut self, cluster: Cluster) -> Option<Backup> {
        let backup = Backup(self.clusters.get(&cluster)?.api.snapshot());
        self.note(&format!("backup of {cluster}"));
        Some(backup)
    }

    /// Restores a backup of a cluster in place. All its watches end.
    pub fn restore(&mut self, cluster: Cluster, backup: &Backup, revisions: Revisions) {
        self.note(&format!(
            "{cluster} is restored from its backup, revisions {revisions:?}"
        ));
        if let Some(slot) = self.clusters.get_mut(&cluster) {
            slot.api.restore(&backup.0, revisions);
            slot.stale = None;
        }
        self.after_writes(cluster);
        self.schedule_chore(cluster);
    }

    /// Takes this percentage of the objects of bound and exported APIs out of a cluster's etcd, without a trace.
    pub fn lose(&mut self, cluster: Cluster, percent: u8) {
        let Some(slot) = self.clusters.get_mut(&cluster) else {
            return;
        };
        let is_custom = |key: &ObjectKey| {
            let group = key.group.as_str();
            group.contains('.') && !group.ends_with("k8s.io") && group != "kube-bind.io"
        };
        let custom = slot.api.objects().map(|(key, _)| key).filter(|key| is_custom(key));
        let lost: BTreeSet<_> = custom
            .filter(|_| self.random.random_range(0..100) < percent)
            .cloned()
            .collect();
        let snapshot = slot.api.snapshot().without(|key, _| lost.contains(key));
        slot.api.restore(&snapshot, Revisions::Kept);
        self.note(&format!("{cluster} loses {} objects", lost.len()));
        self.after_writes(cluster);
        self.schedule_chore(cluster);
    }

    /// Starts a backup of a consumer as a second cluster with a konnector of its own.
    pub fn clone_beside(&mut self, consumer: u8, backup: &Backup, revisions: Revisions) -> Cluster {
        let clone = Cluster::Clone(consumer);
        self.note(&format!("the backup of consumer {consumer} is started as {clone}"));
        self.remove_cluster(clone);
        self.add_cluster(clone, ApiServer::beside(&backup.0, revisions));
        self.start_konnectors(clone, 1);
        clone
    }

    /// Ends a cluster with its processes.
    pub fn remove_cluster(&mut self, cluster: Cluster) {
        if self.clusters.remove(&cluster).is_none() {
            return;
        }
        self.end_processes_of(cluster);
        self.fail_watches_of(cluster);
    }

    /// Makes a cluster forget its history.
    pub fn compact(&mut self, cluster: Cluster) {
        self.note(&format!("{cluster} is compacted"));
        if let Some(slot) = self.clusters.get_mut(&cluster) {
            slot.api.compact();
        }
        self.after_writes(cluster);
    }

    /// Ends all watches of a cluster early.
    pub fn end_watches(&mut self, cluster: Cluster) {
        self.note(&format!("all watches of {cluster} end"));
        for watch in self.watches.of_cluster(cluster) {
            self.end_watch(watch);
        }
    }

    /// Records what was written in a cluster, and schedules what follows from it.
    pub(super) fn after_writes(&mut self, cluster: Cluster) {
        let Some(slot) = self.clusters.get_mut(&cluster) else {
            return;
        };
        let changes = slot.api.take_changes();
        let has_changed = !changes.is_empty();
        for change in changes {
            let origin = change.request.and_then(|number| {
                let place = usize::try_from(number).ok()?;
                self.origins.get(place).copied().flatten()
            });
            self.changes.push(WorldChange {
                at: self.now,
                cluster,
                change,
                origin,
            });
        }
        if has_changed {
            self.schedule_chore(cluster);
        }
        self.schedule_watches(cluster);
    }

    fn schedule_chore(&mut self, cluster: Cluster) {
        let delay = Duration::from_micros(self.random.random_range(500..30_000));
        if let Some(slot) = self.clusters.get_mut(&cluster)
            && !slot.chore_due
        {
            slot.chore_due = true;
            self.queue.push(self.now + delay, Event::Chore(cluster));
        }
    }

    /// Lets one controller of the control plane work, if there is work.
    pub(super) fn chore(&mut self, cluster: Cluster) -> bool {
        let Some(slot) = self.clusters.get_mut(&cluster) else {
            return false;
        };
        slot.chore_due = false;
        let chores = slot.api.background();
        if chores.is_empty() {
            return false;
        }
        let chore = &chores[self.random.random_range(0..chores.len())];
        slot.api.perform(timestamp(self.now), chore);
        let line = format!("{cluster}: {chore}");
        self.trace.line(self.now, &line);
        let has_more = chores.len() > 1;
        self.after_writes(cluster);
        if has_more {
            self.schedule_chore(cluster);
        }
        true
    }

    fn schedule_bookmarks(&mut self, cluster: Cluster) {
        self.queue.push(self.now + BOOKMARKS_EVERY, Event::Bookmarks(cluster));
    }

    /// Sends bookmarks on all watches of a cluster.
    pub(super) fn bookmarks(&mut self, cluster: Cluster) {
        if self.clusters.contains_key(&cluster) {
            self.deliver_bookmarks(cluster);
            self.schedule_bookmarks(cluster);
        }
    }
}
