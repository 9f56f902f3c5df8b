//! Why a bundle can do nothing for now.

use std::time::Duration;

use bindery_api::Severity;

use super::observe::Observed;
use crate::{
    binding::{credential::Access, observe::ClusterPin},
    session::{dial::DialError, heartbeat::Heartbeat},
};

/// Exports that cannot be followed for less than this are no matter: connections break and come back.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Why a bundle is not in sync: the reasons of its condition Synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// There is nothing to ask the provider with.
    ProviderClientError,
    /// What the provider exports cannot be listed, or not be followed any more.
    ListExportsFailed,
    /// What is bound on the consumer cannot be followed.
    ListBindingsFailed,
    /// The contract serves another cluster.
    ConsumerClusterMismatch,
    /// Something in the spec is not in effect.
    InvalidSpec,
    /// Exports are not bound for a reason of their own.
    SyncErrors,
    /// The first answers are on their way.
    Connecting,
    /// Something else has to end before.
    Waiting,
}

/// That it can do nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// Why, in a word.
    pub reason: Reason,
    /// How bad that is.
    pub severity: Severity,
    /// Why, and what mends it.
    pub message: String,
}

// === impl Reason ===

impl Reason {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::ProviderClientError,
        Self::ListExportsFailed,
        Self::ListBindingsFailed,
        Self::ConsumerClusterMismatch,
        Self::InvalidSpec,
        Self::SyncErrors,
        Self::Connecting,
        Self::Waiting,
    ];

    /// As it stands in the condition.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ProviderClientError => "ProviderClientError",
            Self::ListExportsFailed => "ListExportsFailed",
            Self::ListBindingsFailed => "ListBindingsFailed",
            Self::ConsumerClusterMismatch => "ConsumerClusterMismatch",
            Self::InvalidSpec => "InvalidSpec",
            Self::SyncErrors => "SyncErrors",
            Self::Connecting => "Connecting",
            Self::Waiting => "Waiting",
        }
    }
}

// === impl Hold ===

impl Hold {
    /// For that reason.
    pub fn new(reason: Reason, severity: Severity, message: impl Into<String>) -> Self {
        Self {
            reason,
            severity,
            message: message.into(),
        }
    }

    fn connecting(message: &str) -> Self {
        Self::new(Reason::Connecting, Severity::Info, message)
    }
}

/// Decides whether anything can be done.
pub fn hold(seen: &Observed) -> Option<Hold> {
    if let Some(hold) = without_provider(seen) {
        return Some(hold);
    }
    if let Some(why) = &seen.bindings_failing {
        let message = format!("the bindings of this cluster cannot be followed: {why}");
        return Some(Hold::new(Reason::ListBindingsFailed, Severity::Error, message));
    }
    if let Some(why) = seen.terms.unusable() {
        return Some(Hold::new(Reason::InvalidSpec, Severity::Error, why));
    }
    if seen.exports.complete {
        return None;
    }
    Some(match &seen.exports.failing {
        Some((why, _)) => unlisted(seen, why),
        None => Hold::connecting("waiting for the provider to list its exports"),
    })
}

/// That the exports cannot be listed.
pub fn unlisted(seen: &Observed, why: &str) -> Hold {
    let message = format!("the provider's exports cannot be listed, so nothing is bound or unbound: {why}");
    Hold::new(Reason::ListExportsFailed, severity(seen), message)
}

/// How bad it is that the provider does not answer.
pub fn severity(seen: &Observed) -> Severity {
    let failures = seen.probed.as_ref().map_or(0, |probed| probed.failures);
    if failures >= seen.terms.max_retries.max(1) {
        Severity::Error
    } else {
        Severity::Warning
    }
}

fn without_provider(seen: &Observed) -> Option<Hold> {
    let no_client = |message: String| Some(Hold::new(Reason::ProviderClientError, Severity::Error, message));
    match &seen.access {
        Access::Problem(_) => {
            return no_client("there is no kubeconfig to reach the provider with; SecretValid says why".to_owned());
        }
        Access::Connecting => return Some(Hold::connecting("waiting for the provider to answer")),
        Access::Failed(DialError::Setup { message }) => return no_client(message.clone()),
        Access::Failed(error) => return Some(unlisted(seen, &error.to_string())),
        Access::Changed { .. } => {
            let message = "the Secret leads to another provider, so nothing is bound, changed or unbound; SecretValid says \
                           how to consent";
            return no_client(message.to_owned());
        }
        Access::Reached(_) => {}
    }
    let Some(session) = &seen.session else {
        return Some(Hold::connecting("waiting for the session with the provider"));
    };
    // The pin is written before anything is made: a successor must know where it was made for.
    if seen.pinned() != Some(&*session.contract_uid) {
        return Some(Hold::connecting("the bundle is being taken up"));
    }
    match (&session.pin, &session.heartbeat) {
        (ClusterPin::Ours, _) => None,
        (ClusterPin::Other { recorded }, _) => {
            let message = format!(
                "contract {} serves another cluster (kube-system {recorded}), so nothing is bound; use credentials of this \
                 cluster's own, or take it over by annotating the bundle with kube-bind.io/accept-provider-change=<time, \
                 RFC 3339>{}",
                session.contract,
                seen.takeover()
                    .complaint(bindery_api::annotations::ACCEPT_PROVIDER_CHANGE),
            );
            Some(Hold::new(Reason::ConsumerClusterMismatch, Severity::Error, message))
        }
        (ClusterPin::Unknown, Heartbeat::Failing { message }) => {
            let message = format!("the provider takes no heartbeat: {message}");
            Some(Hold::new(Reason::Waiting, Severity::Warning, message))
        }
        (ClusterPin::Unknown, _) => {
            let message = "the first heartbeat is on its way";
            Some(Hold::new(Reason::Waiting, Severity::Info, message))
        }
    }
}
