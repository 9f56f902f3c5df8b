//! What a session with a provider tells the controllers, as one snapshot.

use std::sync::Arc;

use bindery_api::names::CLUSTER_BINDING;
use bindery_runtime::guard::Faults;

use crate::{
    consumer::Consumer,
    holder::Standing,
    session::{
        Session,
        credential::RenewalState,
        exports::ExportLookup,
        heartbeat::Heartbeat,
        provider_rights::{
            LIST_CLUSTER_BINDINGS, ProviderRight, READ_NAMESPACE, Verification, WATCH_CLUSTER_BINDINGS, WRITE_HEARTBEAT,
        },
    },
};

/// A renewal is reported as failing after this many failures in a row.
const RENEWAL_FAILURES_SHOWN: u32 = 3;

/// State of a session at one moment.
#[derive(Clone, Debug)]
pub struct ObservedSession {
    /// Number of the session, unique in this process.
    pub id: u64,
    /// UID of the contract namespace.
    pub contract_uid: Arc<str>,
    /// Name of the contract namespace.
    pub contract: Arc<str>,
    /// The export that a binding names.
    pub export: ExportLookup,
    /// Which consumer cluster the contract is pinned to.
    pub pin: ClusterPin,
    /// The last heartbeat.
    pub heartbeat: Heartbeat,
    /// Why the credential has expired for good; `None` while it works or may be renewed.
    pub expired: Option<String>,
    /// Why the credential is not renewed, though it still works.
    pub renewal_fails: Option<String>,
    /// Whether that is because the backend has locked the renewal of the contract.
    pub is_renewal_locked: bool,
    /// Name of the provider for people.
    pub pretty_name: Option<String>,
    /// Whether the kubeconfig names a gRPC backend.
    pub has_backend: bool,
    /// The rights in the contract namespace that the konnector is known to lack.
    pub missing_rights: Vec<ProviderRight>,
    /// UID of the contract namespace as it was read last; `None` while the konnector may not read it.
    pub found: Option<Arc<str>>,
    /// Whether this konnector holds the contract.
    pub standing: Standing,
    /// What is wrong with what the provider sends.
    pub faults: Faults,
}

/// Which consumer cluster a contract is pinned to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterPin {
    /// The provider has not said it yet.
    Unknown,
    /// This cluster, or a provider that does not record clusters.
    Ours,
    /// Nothing tells, since the konnector may not read or write the record.
    Unverified,
    /// Another cluster: nothing may be written.
    Other {
        /// UID of that cluster's kube-system namespace; `None` while the record cannot be read.
        recorded: Option<String>,
    },
}

/// Names another cluster that a contract serves.
pub fn other_cluster(recorded: Option<&str>) -> String {
    recorded.map_or_else(
        || "its ClusterBinding, which names that, cannot be read now".to_owned(),
        |recorded| format!("kube-system {recorded}"),
    )
}

/// What a provider shows of the cluster that a contract serves.
#[derive(Clone, Copy, Debug)]
struct ClusterRecord<'a> {
    /// UID of the recorded cluster's kube-system namespace.
    recorded: Option<&'a str>,
    /// Whether the provider accepted a heartbeat.
    is_accepted: bool,
    /// Whether the user consents to take the contract over from another cluster.
    takeover: bool,
    /// Whether the contract served another cluster when that was known last, maybe before a restart.
    was_other: bool,
}

impl ClusterRecord<'_> {
    /// Which cluster the contract is pinned to. A record that can no longer be read may have changed, so that it proves nothing.
    fn pin(self, ours: Option<&str>, verification: &Verification) -> ClusterPin {
        let is_unreadable = verification.lacks(LIST_CLUSTER_BINDINGS) || verification.lacks(WATCH_CLUSTER_BINDINGS);
        let is_read = self.recorded.is_some() || (self.is_accepted && !is_unreadable);
        if self.was_other && !is_read && !self.takeover {
            return ClusterPin::Other { recorded: None };
        }
        let Some(ours) = ours else {
            return ClusterPin::Unknown;
        };
        let other = self.recorded.filter(|recorded| *recorded != ours && !self.takeover);
        if let Some(recorded) = other.map(str::to_owned) {
            return ClusterPin::Other {
                recorded: Some(recorded),
            };
        }
        if is_unreadable {
            return ClusterPin::Unverified;
        }
        match self.recorded {
            Some(recorded) if recorded == ours => ClusterPin::Ours,
            // A provider that took the heartbeat and does not record the cluster is kube-bind's.
            None if self.is_accepted => ClusterPin::Ours,
            None if verification.lacks(WRITE_HEARTBEAT) => ClusterPin::Unverified,
            // With consent the next heartbeat takes the contract over.
            Some(_) | None => ClusterPin::Unknown,
        }
    }
}

impl ObservedSession {
    /// Takes a snapshot of a session. `takeover` is true where the user consents to take the contract over from another
    /// cluster, `was_other` where the contract served another one when that was known last.
    pub fn of(session: &Session, consumer: &Consumer, export: ExportLookup, takeover: bool, was_other: bool) -> Self {
        let contract = session.contract();
        let heartbeat = session.heartbeat().borrow().clone();
        let cluster_binding = session.cluster_binding().get(&contract.namespace, CLUSTER_BINDING);
        let recorded = cluster_binding
            .as_ref()
            .and_then(|seen| seen.status.as_ref()?.consumer_cluster_uid.as_deref());
        let verification = session.verification().borrow().clone();
        let record = ClusterRecord {
            recorded,
            is_accepted: heartbeat == Heartbeat::Beating && cluster_binding.is_some(),
            takeover,
            was_other,
        };
        let pin = record.pin(consumer.cluster_uid().as_deref(), &verification);
        let held = session.credential().held();
        let renewal_fails = match &held.renewal {
            RenewalState::Failing { message, count } if *count >= RENEWAL_FAILURES_SHOWN => Some(message.clone()),
            state => state.refusal().map(str::to_owned),
        };
        let is_renewal_locked = matches!(held.renewal, RenewalState::Locked { .. });
        Self {
            id: session.id(),
            contract_uid: Arc::clone(&contract.uid),
            contract: Arc::clone(&contract.namespace),
            export,
            pin,
            heartbeat,
            expired: held.expired(tokio::time::Instant::now()),
            renewal_fails,
            is_renewal_locked,
            pretty_name: cluster_binding.map(|seen| seen.spec.provider_pretty_name.clone()),
            has_backend: held.access.backend.is_some(),
            found: verification.found,
            missing_rights: verification.missing,
            standing: session.standing().borrow().clone(),
            faults: session.faults().borrow().clone(),
        }
    }

    /// Whether the konnector may read all that tells this contract from another, and which cluster it serves, and holds the contract.
    /// Otherwise nothing that the provider shows is a reason to delete or to end anything.
    pub fn is_trusted(&self) -> bool {
        self.is_known() && (self.standing.may_write() || self.standing == Standing::Released)
    }

    /// Whether the konnector may read all that tells this contract from another, and which cluster it serves.
    pub fn is_known(&self) -> bool {
        self.is_verified() && self.pin != ClusterPin::Unverified
    }

    /// Whether the konnector may read the UID of the contract, and it is that of the session.
    pub fn is_verified(&self) -> bool {
        self.found.as_ref() == Some(&self.contract_uid)
    }

    /// Whether the contract namespace did not exist when it was read last.
    pub fn is_gone(&self) -> bool {
        self.found.is_none() && !self.lacks(READ_NAMESPACE)
    }

    /// Whether a right in the contract namespace is known to be missing.
    pub fn lacks(&self, right: ProviderRight) -> bool {
        self.missing_rights.contains(&right)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: Option<&str> = Some("ours");

    #[track_caller]
    fn check(recorded: Option<&str>, is_accepted: bool, missing: &[ProviderRight], expect: &ClusterPin) {
        let record = ClusterRecord {
            recorded,
            is_accepted,
            takeover: false,
            was_other: false,
        };
        let verification = Verification {
            found: None,
            missing: missing.to_vec(),
        };
        assert_eq!(
            record.pin(OURS, &verification),
            *expect,
            "{recorded:?} without {missing:?}"
        );
        assert_eq!(record.pin(None, &verification), ClusterPin::Unknown);
    }

    #[test]
    fn a_record_that_cannot_be_read_proves_nothing() {
        let theirs = ClusterPin::Other {
            recorded: Some("theirs".to_owned()),
        };
        check(OURS, true, &[], &ClusterPin::Ours);
        check(None, true, &[], &ClusterPin::Ours);
        check(None, false, &[], &ClusterPin::Unknown);
        check(Some("theirs"), true, &[], &theirs);
        for unread in [LIST_CLUSTER_BINDINGS, WATCH_CLUSTER_BINDINGS] {
            check(OURS, true, &[unread], &ClusterPin::Unverified);
            check(None, true, &[unread], &ClusterPin::Unverified);
            check(None, false, &[unread], &ClusterPin::Unverified);
            check(Some("theirs"), false, &[unread], &theirs);
        }
        check(OURS, true, &[WRITE_HEARTBEAT], &ClusterPin::Ours);
        check(None, false, &[WRITE_HEARTBEAT], &ClusterPin::Unverified);
    }

    #[test]
    fn with_consent_another_cluster_is_no_hindrance() {
        let record = ClusterRecord {
            recorded: Some("theirs"),
            is_accepted: false,
            takeover: true,
            was_other: true,
        };
        assert_eq!(record.pin(OURS, &Verification::default()), ClusterPin::Unknown);
    }

    #[test]
    fn another_cluster_is_not_forgotten_while_the_record_cannot_be_read() {
        let check = |recorded, is_accepted, missing: &[ProviderRight], takeover, expect: &ClusterPin| {
            let record = ClusterRecord {
                recorded,
                is_accepted,
                takeover,
                was_other: true,
            };
            let verification = Verification {
                found: None,
                missing: missing.to_vec(),
            };
            assert_eq!(
                record.pin(OURS, &verification),
                *expect,
                "{record:?} without {missing:?}"
            );
        };
        let unread = ClusterPin::Other { recorded: None };
        for missing in [
            &[LIST_CLUSTER_BINDINGS][..],
            &[WATCH_CLUSTER_BINDINGS],
            &[WRITE_HEARTBEAT],
            &[],
        ] {
            check(None, false, missing, false, &unread);
        }
        check(None, true, &[LIST_CLUSTER_BINDINGS], false, &unread);
        check(None, true, &[], false, &ClusterPin::Ours);
        check(OURS, false, &[], false, &ClusterPin::Ours);
        check(None, false, &[LIST_CLUSTER_BINDINGS], true, &ClusterPin::Unverified);
        check(None, false, &[], true, &ClusterPin::Unknown);
    }
}
