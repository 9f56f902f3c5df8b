//! What goes wrong in a history.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::topology::Cluster;

/// One process of a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ProcessName {
    /// A konnector replica of a consumer or of its clone.
    Konnector {
        /// The cluster that the konnector serves.
        of: Cluster,
        /// Number of the replica.
        replica: u8,
    },
    /// A server replica.
    Server {
        /// Number of the provider.
        provider: u8,
        /// Number of the replica.
        replica: u8,
    },
}

/// Where requests of a process go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Target {
    /// The API server of a cluster.
    Api(Cluster),
    /// The gRPC port of the server of the provider of this number.
    Grpc(u8),
}

/// What happens to requests on a disturbed link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Disturbance {
    /// The request is done, and its answer is lost.
    LoseAnswers,
    /// The request is done twice.
    DoubleRequests,
    /// The request does not arrive.
    Partition,
    /// Answers and watch events come late.
    Slow,
    /// Watches send nothing, and stay open.
    StallWatches,
    /// Watches lag by seconds to minutes, as on a replica of the API server that is behind. Lists and writes are up to date.
    StaleWatches,
    /// The API server answers with this status code and does nothing.
    Refuse(u16),
}

/// A moment in the life of a request or of a watch event, at which an armed fault begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum TriggerPoint {
    /// The process has sent a request.
    Sent,
    /// A request of the process has reached its API server, which has done it.
    Arrived,
    /// An answer has reached the process, which has not read it yet.
    Answered,
    /// Watch events have reached the process, which has not read them yet.
    Watch,
}

/// How the revisions of a restored etcd go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum RevisionsAfter {
    /// At the revision of the backup.
    Kept,
    /// Far above every revision that a client may have seen (`etcdutl --bump-revision`).
    Bumped,
}

/// A compatible change of the provider's CRD.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum DefinitionChange {
    /// An optional field is added.
    AddField,
    /// A printer column is added.
    AddColumn,
}

/// One thing that goes wrong. Times are in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Fault {
    /// The link between a process and a target is disturbed for a while.
    Disturb {
        /// Whose requests.
        process: ProcessName,
        /// Where they go.
        target: Target,
        /// What happens to them.
        how: Disturbance,
        /// Percentage of requests that are hit.
        percent: u8,
        /// For how long.
        millis: u64,
    },
    /// All watches of a cluster end early.
    EndWatches {
        /// The cluster.
        of: Cluster,
    },
    /// The cluster forgets its history: watches from earlier revisions are answered with 410.
    Compact {
        /// The cluster.
        of: Cluster,
    },
    /// The wall clock of a process jumps by this many seconds.
    ClockJump {
        /// The process.
        process: ProcessName,
        /// By how many seconds; backwards if negative.
        seconds: i64,
    },
    /// A process is killed, and started again after a while.
    Crash {
        /// The process.
        process: ProcessName,
        /// When it starts again.
        millis: u64,
    },
    /// A process stands still for a while, as on a suspended virtual machine.
    Freeze {
        /// The process.
        process: ProcessName,
        /// For how long.
        millis: u64,
    },
    /// A process is killed at the next request or watch event but `after`, and started again after a while.
    CrashAt {
        /// The process.
        process: ProcessName,
        /// How many requests or watch events go well before.
        after: u8,
        /// At which moment.
        point: TriggerPoint,
        /// When it starts again.
        millis: u64,
    },
    /// A process begins to stand still at the next request or watch event but `after`.
    FreezeAt {
        /// The process.
        process: ProcessName,
        /// How many requests or watch events go well before.
        after: u8,
        /// At which moment.
        point: TriggerPoint,
        /// For how long.
        millis: u64,
    },
    /// The machine of a process sleeps: the process stands still, and so does its monotonic clock, while its wall clock goes on.
    Sleep {
        /// The process.
        process: ProcessName,
        /// For how long.
        millis: u64,
    },
    /// The controllers of a cluster's control plane stand still: garbage collector, namespace controller and all others.
    StopControllers {
        /// The cluster.
        of: Cluster,
        /// For how long.
        millis: u64,
    },
    /// A backup of a cluster's etcd is taken. It replaces the earlier one.
    Backup {
        /// The cluster.
        of: Cluster,
    },
    /// The last backup of a cluster is restored in place.
    RestoreInPlace {
        /// The cluster.
        of: Cluster,
        /// How revisions go on.
        revisions: RevisionsAfter,
        /// Whether the processes of the cluster start anew after the restore.
        restart: bool,
    },
    /// The last backup of a consumer is started as a second cluster, with a konnector of its own, beside the consumer.
    RestoreBeside {
        /// Number of the consumer.
        consumer: u8,
        /// How revisions go on.
        revisions: RevisionsAfter,
    },
    /// All konnectors of a consumer are stopped for a while, as when the clone of the cluster is to replace it. Does nothing unless
    /// there is a clone.
    StopOrigin {
        /// Number of the consumer.
        consumer: u8,
        /// When they start again.
        millis: u64,
    },
    /// The last backups of a consumer and of a provider are restored in place at the same moment.
    RestoreBoth {
        /// Number of the consumer.
        consumer: u8,
        /// Number of the provider.
        provider: u8,
        /// How revisions go on.
        revisions: RevisionsAfter,
        /// Whether the processes of both clusters start anew after the restore.
        restart: bool,
    },
    /// The etcd of a cluster loses some synced objects, finalizers and all, without an event, while its processes are down.
    LoseObjects {
        /// The cluster.
        of: Cluster,
        /// Percentage of synced objects that are lost.
        percent: u8,
    },
    /// The provider changes its CRD.
    ChangeDefinition {
        /// Number of the provider.
        provider: u8,
        /// How.
        change: DefinitionChange,
    },
}

// === impl Fault ===

impl Fault {
    /// The names of all kinds of faults, for statistics.
    pub const KINDS: [&str; 36] = [
        "lost answers",
        "doubled requests",
        "partition",
        "slow answers",
        "stalled watches",
        "stale watches",
        "refused 429",
        "refused 500",
        "refused 503",
        "grpc disturbed",
        "ended watches",
        "compaction",
        "clock jump forward",
        "clock jump back",
        "crash konnector",
        "crash server",
        "freeze konnector",
        "freeze server",
        "freeze beyond lease",
        "armed crash",
        "armed freeze",
        "sleep",
        "stopped controllers",
        "stopped origin",
        "backup",
        "restore consumer in place",
        "restore provider in place",
        "restore beside",
        "restore both",
        "restore kept revisions",
        "restore bumped revisions",
        "restore and restart",
        "lose consumer objects",
        "lose provider objects",
        "definition change",
        "fault of clone",
    ];

    /// The kinds of a fault: names among [`Self::KINDS`].
    pub fn kinds(&self) -> Vec<&'static str> {
        let mut kinds = vec![self.kind()];
        if let Self::Disturb {
            target: Target::Grpc(_),
            ..
        } = self
        {
            kinds.push("grpc disturbed");
        }
        if let Self::Freeze { millis, .. } | Self::FreezeAt { millis, .. } = self
            && *millis > LEASE_MILLIS
        {
            kinds.push("freeze beyond lease");
        }
        match self {
            Self::CrashAt { .. } => kinds.push("armed crash"),
            Self::FreezeAt { .. } => kinds.push("armed freeze"),
            _ => {}
        }
        if let Self::RestoreInPlace { revisions, .. }
        | Self::RestoreBeside { revisions, .. }
        | Self::RestoreBoth { revisions, .. } = self
        {
            kinds.push(match revisions {
                RevisionsAfter::Kept => "restore kept revisions",
                RevisionsAfter::Bumped => "restore bumped revisions",
            });
        }
        if let Self::RestoreInPlace { restart: true, .. } | Self::RestoreBoth { restart: true, .. } = self {
            kinds.push("restore and restart");
        }
        if self.is_of_clone() {
            kinds.push("fault of clone");
        }
        kinds
    }

    /// The main kind of a fault.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Disturb { how, .. } => match how {
                Disturbance::LoseAnswers => "lost answers",
                Disturbance::DoubleRequests => "doubled requests",
                Disturbance::Partition => "partition",
                Disturbance::Slow => "slow answers",
                Disturbance::StallWatches => "stalled watches",
                Disturbance::StaleWatches => "stale watches",
                Disturbance::Refuse(429) => "refused 429",
                Disturbance::Refuse(500) => "refused 500",
                Disturbance::Refuse(_) => "refused 503",
            },
            Self::EndWatches { .. } => "ended watches",
            Self::Compact { .. } => "compaction",
            Self::ClockJump { seconds, .. } if *seconds < 0 => "clock jump back",
            Self::ClockJump { .. } => "clock jump forward",
            Self::Crash { process, .. } | Self::CrashAt { process, .. } => match process {
                ProcessName::Konnector { .. } => "crash konnector",
                ProcessName::Server { .. } => "crash server",
            },
            Self::Freeze { process, .. } | Self::FreezeAt { process, .. } => match process {
                ProcessName::Konnector { .. } => "freeze konnector",
                ProcessName::Server { .. } => "freeze server",
            },
            Self::Sleep { .. } => "sleep",
            Self::StopControllers { .. } => "stopped controllers",
            Self::StopOrigin { .. } => "stopped origin",
            Self::Backup { .. } => "backup",
            Self::RestoreInPlace { of, .. } => match of {
                Cluster::Provider(_) => "restore provider in place",
                Cluster::Consumer(_) | Cluster::Clone(_) => "restore consumer in place",
            },
            Self::RestoreBeside { .. } => "restore beside",
            Self::RestoreBoth { .. } => "restore both",
            Self::LoseObjects { of, .. } => match of {
                Cluster::Provider(_) => "lose provider objects",
                Cluster::Consumer(_) | Cluster::Clone(_) => "lose consumer objects",
            },
            Self::ChangeDefinition { .. } => "definition change",
        }
    }

    /// How long the fault lasts, in milliseconds; 0 if it is over at once.
    pub fn millis(&self) -> u64 {
        match self {
            Self::Disturb { millis, .. }
            | Self::Crash { millis, .. }
            | Self::Freeze { millis, .. }
            | Self::CrashAt { millis, .. }
            | Self::FreezeAt { millis, .. }
            | Self::Sleep { millis, .. }
            | Self::StopControllers { millis, .. }
            | Self::StopOrigin { millis, .. } => *millis,
            _ => 0,
        }
    }

    /// Whether the fault is only a backup, which harms nothing.
    pub fn is_backup(&self) -> bool {
        matches!(self, Self::Backup { .. })
    }

    fn is_of_clone(&self) -> bool {
        match self {
            Self::Disturb { process, .. }
            | Self::ClockJump { process, .. }
            | Self::Crash { process, .. }
            | Self::Freeze { process, .. }
            | Self::CrashAt { process, .. }
            | Self::FreezeAt { process, .. }
            | Self::Sleep { process, .. } => matches!(
                process,
                ProcessName::Konnector {
                    of: Cluster::Clone(_),
                    ..
                }
            ),
            Self::EndWatches { of } | Self::Compact { of } | Self::StopControllers { of, .. } => {
                matches!(of, Cluster::Clone(_))
            }
            _ => false,
        }
    }
}

/// How long a Lease lasts that its holder does not renew, in milliseconds: the default of both programs.
pub const LEASE_MILLIS: u64 = 15_000;

impl ProcessName {
    /// Whether the process is a konnector of a restored second cluster.
    pub fn is_of_clone(self) -> bool {
        let Self::Konnector { of, .. } = self else {
            return false;
        };
        matches!(of, Cluster::Clone(_))
    }
}

impl fmt::Display for ProcessName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Konnector { of, replica } => write!(f, "konnector {replica} of {of}"),
            Self::Server { provider, replica } => write!(f, "server {replica} of provider {provider}"),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Api(cluster) => write!(f, "the API server of {cluster}"),
            Self::Grpc(provider) => write!(f, "the gRPC port of provider {provider}"),
        }
    }
}

impl fmt::Display for TriggerPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sent => "a request that it sends",
            Self::Arrived => "a request of its own that was done",
            Self::Answered => "an answer that it gets",
            Self::Watch => "a delivery on a watch",
        })
    }
}

impl fmt::Display for Disturbance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LoseAnswers => "answers are lost",
            Self::DoubleRequests => "requests are done twice",
            Self::Partition => "requests do not arrive",
            Self::Slow => "answers and watch events are slow",
            Self::StallWatches => "watches send nothing",
            Self::StaleWatches => "watches lag behind lists and writes",
            Self::Refuse(code) => return write!(f, "requests are refused with {code}"),
        })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disturb {
                process,
                target,
                how,
                percent,
                millis,
            } => {
                write!(f, "{how} between {process} and {target} ({percent} % for {millis} ms)")
            }
            Self::EndWatches { of } => write!(f, "all watches of {of} end"),
            Self::Compact { of } => write!(f, "{of} compacts its history"),
            Self::ClockJump { process, seconds } => write!(f, "the clock of {process} jumps by {seconds} s"),
            Self::Crash { process, millis } => write!(f, "{process} is killed, and starts again after {millis} ms"),
            Self::Freeze { process, millis } => write!(f, "{process} stands still for {millis} ms"),
            Self::CrashAt {
                process,
                after,
                point,
                millis,
            } => {
                let number = u16::from(*after) + 1;
                write!(
                    f,
                    "{process} is killed at {point} (number {number} from here), and starts again after {millis} ms"
                )
            }
            Self::FreezeAt {
                process,
                after,
                point,
                millis,
            } => {
                let number = u16::from(*after) + 1;
                write!(
                    f,
                    "{process} stands still from {point} on (number {number} from here), for {millis} ms"
                )
            }
            Self::Sleep { process, millis } => {
                write!(
                    f,
                    "the machine of {process} sleeps for {millis} ms, and its monotonic clock stands still"
                )
            }
            Self::StopControllers { of, millis } => {
                write!(
                    f,
                    "the controllers of the control plane of {of} stand still for {millis} ms"
                )
            }
            Self::StopOrigin { consumer, millis } => write!(
                f,
                "the konnectors of consumer {consumer} are stopped while its clone runs, and start again after {millis} ms"
            ),
            Self::Backup { of } => write!(f, "a backup of {of} is taken"),
            Self::RestoreInPlace { of, revisions, restart } => {
                let restart = if *restart { ", and its processes start anew" } else { "" };
                write!(
                    f,
                    "the backup of {of} is restored in place (revisions {revisions:?}){restart}"
                )
            }
            Self::RestoreBeside { consumer, revisions } => write!(
                f,
                "the backup of consumer {consumer} is started beside it, with a konnector (revisions {revisions:?})"
            ),
            Self::RestoreBoth {
                consumer,
                provider,
                revisions,
                restart,
            } => {
                let restart = if *restart {
                    ", and their processes start anew"
                } else {
                    ""
                };
                write!(
                    f,
                    "the backups of consumer {consumer} and of provider {provider} are restored in place (revisions {revisions:?}){restart}"
                )
            }
            Self::LoseObjects { of, percent } => {
                write!(
                    f,
                    "the etcd of {of} loses {percent} % of its synced objects while its processes are down"
                )
            }
            Self::ChangeDefinition { provider, change } => {
                let what = match change {
                    DefinitionChange::AddField => "an optional field",
                    DefinitionChange::AddColumn => "a printer column",
                };
                write!(f, "provider {provider} adds {what} to its CRD")
            }
        }
    }
}
