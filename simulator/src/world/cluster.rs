//! The API servers of a world and the work of their control planes.

use std::{collections::BTreeSet, time::Duration};

use bindery_simulator_apiserver::{ApiServer, ObjectKey, Revisions, Snapshot};
use jiff::SignedDuration;
use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;

use super::{Event, RuleNumber, World, WorldChange, timestamp};
use crate::topology::{Cluster, ControllerPace};

/// How often an API server sends bookmarks.
const BOOKMARKS_EVERY: Duration = Duration::from_mins(1);

/// The longest time after a write until a quick control plane works.
const QUICK_MAX: Duration = Duration::from_millis(30);

/// One cluster.
#[derive(Debug)]
pub(super) struct ClusterSlot {
    pub(super) api: ApiServer,
    /// When the next step of the control plane is due, if one is scheduled.
    chore_due: Option<Duration>,
    /// The controllers of the control plane stand still until then, by the rule of this number.
    stopped: Option<(RuleNumber, Duration)>,
    /// The last time at which a restore of its etcd kept the API server from answering.
    pub(super) away_until: Duration,
}

/// How long an API server does not answer at least while its etcd is restored.
const AWAY: Duration = Duration::from_secs(1);

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
            chore_due: None,
            stopped: None,
            away_until: Duration::ZERO,
        }
    }
}

impl World {
    /// Adds a cluster and starts its control plane.
    pub(super) fn add_cluster(&mut self, name: Cluster, mut api: ApiServer) {
        api.set_policy_delay(SignedDuration::from_millis(self.topology.policy_delay.into()));
        self.clusters.insert(name, ClusterSlot::new(api));
        self.schedule_bookmarks(name);
        self.after_writes(name);
        self.schedule_chore(name);
    }

    /// The cluster whose API server has this host name.
    pub(super) fn cluster_of_host(&self, host: &str) -> Option<Cluster> {
        let (kind, number) = host.strip_suffix(".sim")?.split_once('-')?;
        let number = number.parse().ok()?;
        let name = match kind {
            "consumer" => Cluster::Consumer(number),
            "provider" => Cluster::Provider(number),
            "clone" => Cluster::Clone(number),
            _ => return None,
        };
        self.clusters.contains_key(&name).then_some(name)
    }

    /// Takes a backup of a cluster.
    pub fn backup(&mut self, cluster: Cluster) -> Option<Backup> {
        let backup = Backup(self.clusters.get(&cluster)?.api.snapshot());
        self.note(&format!("backup of {cluster}"));
        Some(backup)
    }

    /// Restores a backup of a cluster in place. All its watches end. Returns whether something had been written since the backup.
    pub fn restore(&mut self, cluster: Cluster, backup: &Backup, revisions: Revisions) -> bool {
        self.note(&format!(
            "{cluster} is restored from its backup, revisions {revisions:?}"
        ));
        let mut has_changed = false;
        if let Some(slot) = self.clusters.get_mut(&cluster) {
            slot.away_until = self.now + AWAY;
            has_changed = slot.api.revision() != backup.0.revision();
            slot.api.restore(&backup.0, revisions);
        }
        self.after_writes(cluster);
        self.schedule_chore(cluster);
        has_changed
    }

    /// Takes this percentage of the objects of bound and exported APIs out of a cluster's etcd, without a trace. Returns how many
    /// objects these were.
    pub fn lose(&mut self, cluster: Cluster, percent: u8) -> usize {
        let Some(slot) = self.clusters.get_mut(&cluster) else {
            return 0;
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
        lost.len()
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

    /// Makes a cluster forget its history. Returns whether there is such a cluster.
    pub fn compact(&mut self, cluster: Cluster) -> bool {
        self.note(&format!("{cluster} is compacted"));
        if let Some(slot) = self.clusters.get_mut(&cluster) {
            slot.api.compact();
        }
        self.after_writes(cluster);
        self.clusters.contains_key(&cluster)
    }

    /// Ends all watches of a cluster early. Returns how many these were.
    pub fn end_watches(&mut self, cluster: Cluster) -> usize {
        self.note(&format!("all watches of {cluster} end"));
        let watches = self.watches.of_cluster(cluster);
        for watch in &watches {
            self.end_watch(*watch);
        }
        watches.len()
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

    /// Schedules the next step of a control plane, unless one is scheduled.
    fn schedule_chore(&mut self, cluster: Cluster) {
        let at = self.now + delay(self.pace, &mut self.random);
        if let Some(slot) = self.clusters.get_mut(&cluster)
            && slot.chore_due.is_none()
        {
            slot.chore_due = Some(at);
            self.queue.push(at, Event::Chore(cluster));
        }
    }

    /// Schedules the next step of a control plane that has begun to work. A controller is late to begin, and then does all its work.
    fn go_on_with_chores(&mut self, cluster: Cluster) {
        let at = self.now + delay(ControllerPace::Quick, &mut self.random);
        let soon = self.now + QUICK_MAX;
        if let Some(slot) = self.clusters.get_mut(&cluster)
            && slot.chore_due.is_none_or(|due| due > soon)
        {
            // A later event that is scheduled becomes void.
            slot.chore_due = Some(at);
            self.queue.push(at, Event::Chore(cluster));
        }
    }

    /// Stops the controllers of a cluster's control plane for this long.
    pub fn stop_controllers(&mut self, cluster: Cluster, time: Duration) -> RuleNumber {
        self.note(&format!("the controllers of {cluster} stop for {time:?}"));
        let rule = self.rules.add();
        if let Some(slot) = self.clusters.get_mut(&cluster) {
            slot.stopped = Some((rule, self.now + time));
        }
        rule
    }

    /// Lets the control planes work as late after writes as the seed says. Until then they are quick, so that clusters are set up soon.
    pub fn slow_controllers(&mut self) {
        self.pace = self.topology.pace;
    }

    /// Lets all control planes work soon after each write.
    pub(super) fn hasten_controllers(&mut self) {
        self.pace = ControllerPace::Quick;
        let clusters: Vec<_> = self.clusters().collect();
        for cluster in clusters {
            if let Some(slot) = self.clusters.get_mut(&cluster) {
                slot.stopped = None;
                // The event that is scheduled becomes void.
                slot.chore_due = None;
            }
            self.schedule_chore(cluster);
        }
    }

    /// Lets one controller of the control plane work; false if there is no work, or another step is due instead.
    pub(super) fn chore(&mut self, cluster: Cluster) -> bool {
        let Some(slot) = self.clusters.get_mut(&cluster) else {
            return false;
        };
        if slot.chore_due.is_none_or(|due| due > self.now) {
            return false;
        }
        slot.chore_due = None;
        let chores = slot.api.background();
        if chores.is_empty() {
            return false;
        }
        if let Some((rule, until)) = slot.stopped.filter(|(_, until)| *until > self.now) {
            self.rules.hit(rule);
            slot.chore_due = Some(until);
            self.queue.push(until, Event::Chore(cluster));
            return false;
        }
        let chore = &chores[self.random.random_range(0..chores.len())];
        slot.api.perform(timestamp(self.now), chore);
        let line = format!("{cluster}: {chore}");
        self.trace.line(self.now, &line);
        let has_more = chores.len() > 1;
        self.after_writes(cluster);
        if has_more {
            self.go_on_with_chores(cluster);
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

/// Draws how long after a write a control plane works.
fn delay(pace: ControllerPace, random: &mut ChaCha8Rng) -> Duration {
    Duration::from_micros(match pace {
        ControllerPace::Quick => random.random_range(500..30_000),
        ControllerPace::Slow => random.random_range(200_000..5_000_000),
        ControllerPace::Late => random.random_range(500_000..30_000_000),
    })
}
