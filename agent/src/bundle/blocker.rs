//! Why a bundle cannot be synced now.

use std::time::Duration;

use bindery_api::Severity;

use super::observed::ObservedBundle;
use crate::{
    controller::{
        access::ContractAccess,
        conditions::CONSUMER_CLUSTER_MISMATCH,
        observed_session::{ClusterPin, other_cluster},
    },
    session::{connect::ConnectError, heartbeat::Heartbeat},
};

/// Exports that cannot be watched are reported after this time, since connections break and recover.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Reasons of the condition Synced of a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncedReason {
    /// No usable kubeconfig reaches the provider.
    ProviderClientError,
    /// The exports cannot be listed or watched.
    ListExportsFailed,
    /// The bindings of the consumer cannot be watched.
    ListBindingsFailed,
    /// The contract serves another cluster.
    ConsumerClusterMismatch,
    /// A value of the spec is invalid.
    InvalidSpec,
    /// Some exports are not bound, each for its own reason.
    SyncErrors,
    /// The provider has not answered yet.
    Connecting,
    /// An export waits for an event, such as the end of another binding.
    Waiting,
}

/// A reason why a bundle is not in sync.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocker {
    /// Reason of the condition.
    pub reason: SyncedReason,
    /// Severity of the condition.
    pub severity: Severity,
    /// What is wrong, and what to do.
    pub message: String,
}

impl SyncedReason {
    /// The reason as the condition spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ProviderClientError => "ProviderClientError",
            Self::ListExportsFailed => "ListExportsFailed",
            Self::ListBindingsFailed => "ListBindingsFailed",
            Self::ConsumerClusterMismatch => CONSUMER_CLUSTER_MISMATCH,
            Self::InvalidSpec => "InvalidSpec",
            Self::SyncErrors => "SyncErrors",
            Self::Connecting => "Connecting",
            Self::Waiting => "Waiting",
        }
    }
}

impl Blocker {
    /// A blocker with this reason and message.
    pub fn new(reason: SyncedReason, severity: Severity, message: impl Into<String>) -> Self {
        Self {
            reason,
            severity,
            message: message.into(),
        }
    }

    /// A blocker that ends by itself when the provider answers.
    fn connecting(message: &str) -> Self {
        Self::new(SyncedReason::Connecting, Severity::Info, message)
    }
}

/// Returns why the bundle can bind and unbind nothing now; `None` if it can.
pub fn blocker(seen: &ObservedBundle) -> Option<Blocker> {
    if let Some(blocker) = without_provider(seen) {
        return Some(blocker);
    }
    if let Some(why) = &seen.bindings_failing {
        let message = format!("the bindings of this cluster cannot be watched: {why}");
        return Some(Blocker::new(SyncedReason::ListBindingsFailed, Severity::Error, message));
    }
    if let Some(why) = seen.settings.selector_problem() {
        return Some(Blocker::new(SyncedReason::InvalidSpec, Severity::Error, why));
    }
    if seen.exports.complete {
        return None;
    }
    Some(match &seen.exports.failing {
        Some((why, _)) => unlisted(seen, why),
        None => Blocker::connecting("waiting for the provider to list its exports"),
    })
}

/// The blocker for exports that cannot be listed.
pub fn unlisted(seen: &ObservedBundle, why: &str) -> Blocker {
    let message = format!("the provider's exports cannot be listed, so nothing is bound or unbound: {why}");
    Blocker::new(SyncedReason::ListExportsFailed, severity(seen), message)
}

/// Severity of failed probes: an error after the configured count of failures.
pub fn severity(seen: &ObservedBundle) -> Severity {
    let failures = seen.last_probe.as_ref().map_or(0, |probe| probe.failures);
    if failures >= seen.settings.max_retries.max(1) {
        Severity::Error
    } else {
        Severity::Warning
    }
}

/// Returns why the bundle's provider or contract cannot be used now; `None` if it can.
fn without_provider(seen: &ObservedBundle) -> Option<Blocker> {
    let no_client = |message: String| {
        Some(Blocker::new(
            SyncedReason::ProviderClientError,
            Severity::Error,
            message,
        ))
    };
    match &seen.access {
        ContractAccess::Problem(_) => {
            return no_client(
                "no usable kubeconfig reaches the provider; the condition SecretValid says why".to_owned(),
            );
        }
        ContractAccess::Connecting => return Some(Blocker::connecting("waiting for the provider to answer")),
        ContractAccess::Failed(ConnectError::Setup { message }) => return no_client(message.clone()),
        ContractAccess::Failed(error) => return Some(unlisted(seen, &error.to_string())),
        ContractAccess::Changed { .. } => {
            let message = "the Secret leads to another provider, so nothing is bound, changed or unbound; the condition \
                           SecretValid says how to consent";
            return no_client(message.to_owned());
        }
        ContractAccess::Reached(_) => {}
    }
    let Some(session) = &seen.session else {
        return Some(Blocker::connecting("waiting for the session with the provider"));
    };
    // The contract is recorded in the status before anything is created, so that a restarted konnector knows it.
    if seen.pinned() != Some(&*session.contract_uid) {
        return Some(Blocker::connecting(
            "waiting for the contract to be recorded in the status of the bundle",
        ));
    }
    // Bindings are made all the same: the user accepts by one of them, and until then nothing of theirs is written.
    if session.standing.waiting().is_some() && !matches!(session.pin, ClusterPin::Other { .. }) {
        return None;
    }
    match (&session.pin, &session.heartbeat) {
        (ClusterPin::Ours | ClusterPin::Unverified, _) => None,
        (ClusterPin::Other { recorded }, _) => {
            let message = format!(
                "contract {} serves another cluster ({}), so nothing is bound; use credentials for \
                 this cluster, or take the contract over by annotating the bundle with kube-bind.io/accept-provider-change=<time, \
                 RFC 3339>{}",
                session.contract,
                other_cluster(recorded.as_deref()),
                seen.takeover()
                    .complaint(bindery_api::annotations::ACCEPT_PROVIDER_CHANGE),
            );
            Some(Blocker::new(
                SyncedReason::ConsumerClusterMismatch,
                Severity::Error,
                message,
            ))
        }
        (ClusterPin::Unknown, Heartbeat::Failing { message }) => {
            let message = format!("the provider does not accept heartbeats: {message}");
            Some(Blocker::new(SyncedReason::Waiting, Severity::Warning, message))
        }
        (ClusterPin::Unknown, _) => {
            let message = "waiting for the provider to accept the first heartbeat";
            Some(Blocker::new(SyncedReason::Waiting, Severity::Info, message))
        }
    }
}
