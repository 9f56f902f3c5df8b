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
    /// Lists answer with an earlier state.
    StaleLists,
    /// The API server answers with this status code and does nothing.
    Refuse(u16),
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
    /// The last backups of a consumer and of a provider are restored in place at the same moment.
    RestoreBoth {
        /// Number of the consumer.
        consumer: u8,
        /// Number of the provider.
        provider: u8,
        /// How revisions go on.
        revisions: RevisionsAfter,
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
    pub const KINDS: [&str; 31] = [
        "lost answers",
        "doubled requests",
        "partition",
        "slow answers",
        "stalled watches",
        "stale lists",
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
        if matches!(self, Self::Freeze { millis, .. } if *millis > LEASE_MILLIS) {
            kinds.push("freeze beyond lease");
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
        if matches!(self, Self::RestoreInPlace { restart: true, .. }) {
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
                Disturbance::StaleLists => "stale lists",
                Disturbance::Refuse(429) => "refused 429",
                Disturbance::Refuse(500) => "refused 500",
                Disturbance::Refuse(_) => "refused 503",
            },
            Self::EndWatches { .. } => "ended watches",
            Self::Compact { .. } => "compaction",
            Self::ClockJump { seconds, .. } if *seconds < 0 => "clock jump back",
            Self::ClockJump { .. } => "clock jump forward",
            Self::Crash { process, .. } => match process {
                ProcessName::Konnector { .. } => "crash konnector",
                ProcessName::Server { .. } => "crash server",
            },
            Self::Freeze { process, .. } => match process {
                ProcessName::Konnector { .. } => "freeze konnector",
                ProcessName::Server { .. } => "freeze server",
            },
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
            Self::Disturb { millis, .. } | Self::Crash { millis, .. } | Self::Freeze { millis, .. } => *millis,
            _ => 0,
        }
    }

    fn is_of_clone(&self) -> bool {
        match self {
            Self::Disturb { process, .. }
            | Self::ClockJump { process, .. }
            | Self::Crash { process, .. }
            | Self::Freeze { process, .. } => matches!(
                process,
                ProcessName::Konnector {
                    of: Cluster::Clone(_),
                    ..
                }
            ),
            Self::EndWatches { of } | Self::Compact { of } => matches!(of, Cluster::Clone(_)),
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
                let what = match how {
                    Disturbance::LoseAnswers => "answers are lost".to_owned(),
                    Disturbance::DoubleRequests => "requests are done twice".to_owned(),
                    Disturbance::Partition => "requests do not arrive".to_owned(),
                    Disturbance::Slow => "answers and watch events are slow".to_owned(),
                    Disturbance::StallWatches => "watches send nothing".to_owned(),
                    Disturbance::StaleLists => "lists are stale".to_owned(),
                    Disturbance::Refuse(code) => format!("requests are refused with {code}"),
                };
                write!(f, "{what} between {process} and {target} ({percent} % for {millis} ms)")
            }
            Self::EndWatches { of } => write!(f, "all watches of {of} end"),
            Self::Compact { of } => write!(f, "{of} compacts its history"),
            Self::ClockJump { process, seconds } => write!(f, "the clock of {process} jumps by {seconds} s"),
            Self::Crash { process, millis } => write!(f, "{process} is killed, and starts again after {millis} ms"),
            Self::Freeze { process, millis } => write!(f, "{process} stands still for {millis} ms"),
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
            } => write!(
                f,
                "the backups of consumer {consumer} and of provider {provider} are restored in place (revisions {revisions:?})"
            ),
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
