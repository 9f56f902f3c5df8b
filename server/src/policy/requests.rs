//! Checks that the author of a request made as a resource was verified. Only the admission policy of
//! `deploy/server/requests-policy.yaml` compares `spec.author` with the user that creates a request. The server tries the policy
//! by a dry run, after it has seen a request and before it serves it; it requires that policy and binding are those that ship;
//! and it does not serve requests that are older than the last change of the policy.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use bindery_api::{
    names,
    v1alpha2::{BindableResourcesRequest, BindableResourcesRequestSpec},
};
use bindery_runtime::{errors, policy::ProbeOutcome};
use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use kube::{Api, Client, ResourceExt as _, api::ObjectMeta};
use parking_lot::Mutex;

use self::shipped::ServerAccount;
use super::as_dry_run;
use crate::writes::WriteError;

mod shipped;

/// Name of the policy and of its binding.
pub const NAME: &str = "kube-bind-requests";
/// The message with which the policy, and nothing else, denies a request named [`names::POLICY_PROBE`]. Its revision is raised
/// with every change of what the policy forbids.
pub const ANSWER: &str = "policy.probe is refused by kube-bind-requests, revision 3";
/// The file to apply where the policy is missing.
const FILE: &str = "deploy/server/requests-policy.yaml";
/// How long a proof that the policy is in force holds, for requests that were seen before it.
const PROOF_LIFETIME: Duration = Duration::from_secs(10);
/// How long the policy is not tried again after it was found missing.
const REFUSAL_LIFETIME: Duration = Duration::from_secs(3);

/// Why a request is not served.
#[derive(thiserror::Error, Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The policy is not in force.
    #[error(
        "ValidatingAdmissionPolicy {NAME} is not in force, so that the author of this request is not verified; apply {FILE} of this \
         version"
    )]
    Missing,
    /// The policy is in force, but is not the one of this version.
    #[error(
        "ValidatingAdmissionPolicy {NAME} is not the one of this version: {field} differs, so that it may not have looked at \
         this request; delete it and its binding and apply {FILE} of this version"
    )]
    Altered {
        /// The first field that differs.
        field: &'static str,
    },
    /// It is unknown whether the policy is in force.
    #[error(
        "cannot try whether ValidatingAdmissionPolicy {NAME} is in force: {cause}; apply {FILE} and the server's roles"
    )]
    Unproved {
        /// Why that is unknown.
        cause: String,
    },
    /// The request is older than the policy, or than its last change.
    #[error(
        "this request is older than ValidatingAdmissionPolicy {NAME}, of {since}, so that its author is not verified; \
         delete it and create it again"
    )]
    MadeBefore {
        /// When the policy was last applied or changed.
        since: Timestamp,
    },
}

/// The reason of a condition that reports a [`Refusal`]. Stored: the names must not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalReason {
    /// The policy is missing, or is not the one of this version.
    PolicyMissing,
    /// It is unknown whether the policy is in force.
    PolicyUnproved,
    /// The request is older than the policy.
    MadeBeforePolicy,
}

/// Admits requests whose author the policy has verified. Clones share what they know of the policy.
#[derive(Clone)]
pub struct AuthorVerifier {
    client: Client,
    /// The server itself, whom the policy leaves out in its own namespace.
    server: ServerAccount,
    /// When each request was first seen, by UID.
    seen: Arc<Mutex<HashMap<String, Instant>>>,
    /// What is known of the policy. Locked while the policy is tried, so that one answer serves all who wait.
    memory: Arc<tokio::sync::Mutex<PolicyMemory>>,
}

/// What is known of the policy.
#[derive(Debug, Default)]
struct PolicyMemory {
    known: Option<KnownAnswer>,
    /// Versions of policy and binding when they were last read.
    versions: Option<Versions>,
    /// When these versions were last found to have changed. A change that was taken back is visible in no other way.
    changed: Option<(Instant, Timestamp)>,
}

/// UID and generation of policy and binding.
type Versions = [(Option<String>, Option<i64>); 2];

/// The answer to a probe of the policy.
#[derive(Clone, Debug)]
struct KnownAnswer {
    /// When the probe began.
    at: Instant,
    /// Since when the policy has not changed; or why it verifies no author.
    answer: Result<Timestamp, Refusal>,
}

// === impl Refusal ===

impl Refusal {
    /// The reason of a condition that reports this.
    pub const fn reason(&self) -> RefusalReason {
        match self {
            Self::Missing | Self::Altered { .. } => RefusalReason::PolicyMissing,
            Self::Unproved { .. } => RefusalReason::PolicyUnproved,
            Self::MadeBefore { .. } => RefusalReason::MadeBeforePolicy,
        }
    }
}

// === impl RefusalReason ===

impl RefusalReason {
    /// Every reason.
    pub const ALL: [Self; 3] = [Self::PolicyMissing, Self::PolicyUnproved, Self::MadeBeforePolicy];

    /// The reason as a condition has it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PolicyMissing => "PolicyMissing",
            Self::PolicyUnproved => "PolicyUnproved",
            Self::MadeBeforePolicy => "MadeBeforePolicy",
        }
    }
}

// === impl KnownAnswer ===

impl KnownAnswer {
    /// Whether the answer holds for a request that was first seen at that time. A proof must be younger than that: the policy may
    /// have been missing in between.
    fn is_for(&self, seen: Instant, now: Instant) -> bool {
        let age = now.saturating_duration_since(self.at);
        match self.answer {
            Ok(_) => self.at >= seen && age < PROOF_LIFETIME,
            Err(_) => age < REFUSAL_LIFETIME,
        }
    }
}

// === impl PolicyMemory ===

impl PolicyMemory {
    fn note(&mut self, versions: Versions, now: (Instant, Timestamp)) {
        if self.versions.as_ref().is_some_and(|before| *before != versions) {
            self.changed = Some(now);
        }
        self.versions = Some(versions);
    }

    /// Fails for a request that was first seen before the policy last changed.
    fn check(&self, seen: Instant) -> Result<(), Refusal> {
        match self.changed {
            Some((at, since)) if seen <= at => Err(Refusal::MadeBefore { since }),
            _ => Ok(()),
        }
    }
}

// === impl AuthorVerifier ===

impl AuthorVerifier {
    /// Creates a verifier for the server with this username, which runs in this namespace.
    pub fn new(client: Client, namespace: &str, username: &str) -> Self {
        let server = ServerAccount {
            username: username.to_owned(),
            namespace: namespace.to_owned(),
        };
        Self {
            client,
            server,
            seen: Arc::default(),
            memory: Arc::default(),
        }
    }

    /// Notes when a request was first seen. One proof serves all requests that were noted before it.
    pub fn note(&self, request: &BindableResourcesRequest) -> Instant {
        let uid = request.uid().unwrap_or_default();
        *self.seen.lock().entry(uid).or_insert_with(Instant::now)
    }

    /// Forgets a request that was deleted.
    pub fn forget(&self, request: &BindableResourcesRequest) {
        self.seen
            .lock()
            .remove(request.metadata.uid.as_deref().unwrap_or_default());
    }

    /// Checks that the policy has verified the author of a request. The inner error says why not, or why that is uncertain.
    pub async fn admit(&self, request: &BindableResourcesRequest) -> Result<Result<(), Refusal>, WriteError> {
        let seen = self.note(request);
        let mut memory = self.memory.lock().await;
        let at = Instant::now();
        let known = memory.known.as_ref().filter(|known| known.is_for(seen, at));
        let answer = if let Some(known) = known {
            known.answer.clone()
        } else {
            let answer = self.prove(&mut memory).await?;
            tracing::debug!(?answer, "policy on requests probed");
            memory.known = Some(KnownAnswer {
                at,
                answer: answer.clone(),
            });
            answer
        };
        let made = request.metadata.creation_timestamp.as_ref().map(|made| made.0);
        Ok(answer
            .and_then(|since| check(made, since))
            .and_then(|()| memory.check(seen)))
    }

    async fn prove(&self, memory: &mut PolicyMemory) -> Result<Result<Timestamp, Refusal>, WriteError> {
        match self.probe().await? {
            ProbeOutcome::Live => {}
            ProbeOutcome::Admitted | ProbeOutcome::OtherWords => return Ok(Err(Refusal::Missing)),
            ProbeOutcome::Unproved(cause) => return Ok(Err(Refusal::Unproved { cause })),
        }
        match self.read().await {
            Ok((policy, binding)) => {
                let both = [&policy.metadata, &binding.metadata];
                let versions = both.map(|meta| (meta.uid.clone(), meta.generation));
                memory.note(versions, (Instant::now(), Timestamp::now()));
                Ok(match shipped::difference(&policy, &binding, &self.server) {
                    Some(field) => Err(Refusal::Altered { field }),
                    None => Ok(shipped::since(both)),
                })
            }
            Err(error) if errors::is_transient(&error) => Err(error.into()),
            Err(error) => {
                let cause = errors::explain(&error);
                Ok(Err(Refusal::Unproved { cause }))
            }
        }
    }

    /// Tries what the policy forbids.
    pub(super) async fn probe(&self) -> Result<ProbeOutcome, WriteError> {
        Ok(ProbeOutcome::of(self.try_it().await, NAME, ANSWER)?)
    }

    async fn try_it(&self) -> Result<BindableResourcesRequest, kube::Error> {
        let spec = BindableResourcesRequestSpec {
            author: names::POLICY_PROBE.to_owned(),
            ..BindableResourcesRequestSpec::default()
        };
        let mut probe = BindableResourcesRequest::new(names::POLICY_PROBE, spec);
        probe.metadata = ObjectMeta {
            namespace: Some(self.server.namespace.clone()),
            ..probe.metadata
        };
        let api: Api<BindableResourcesRequest> = Api::namespaced(self.client.clone(), &self.server.namespace);
        api.create(&as_dry_run(), &probe).await
    }

    async fn read(&self) -> Result<(ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding), kube::Error> {
        let policies: Api<ValidatingAdmissionPolicy> = Api::all(self.client.clone());
        let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(self.client.clone());
        tokio::try_join!(policies.get(NAME), bindings.get(NAME))
    }
}

impl std::fmt::Debug for AuthorVerifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AuthorVerifier").finish_non_exhaustive()
    }
}

/// Fails for a request that is not younger than the policy. Both times are the API server's, in whole seconds: within the same
/// second, either may have been first.
fn check(made: Option<Timestamp>, since: Timestamp) -> Result<(), Refusal> {
    match made {
        Some(made) if made > since => Ok(()),
        _ => Err(Refusal::MadeBefore { since }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_made(made: Option<i64>, expect: bool) {
        let at = |second| Timestamp::from_second(second).unwrap();
        assert_eq!(check(made.map(at), at(100)).is_ok(), expect);
    }

    #[test]
    fn what_is_older_than_the_policy_was_never_looked_at() {
        check_made(Some(101), true);
        check_made(Some(100), false);
        check_made(Some(99), false);
        check_made(None, false);
    }

    #[track_caller]
    fn check_known(answer: Result<Timestamp, Refusal>, seen: u64, now: u64, expect: bool) {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let known = KnownAnswer { at: after(100), answer };
        assert_eq!(known.is_for(after(seen), after(now)), expect);
    }

    #[test]
    fn a_proof_is_for_what_was_seen_before_it() {
        let proof = Ok(Timestamp::UNIX_EPOCH);
        check_known(proof.clone(), 99, 101, true);
        check_known(proof.clone(), 101, 101, false);
        check_known(proof, 99, 110, false);
        // A refusal proves nothing, so that all requests may share it.
        check_known(Err(Refusal::Missing), 101, 101, true);
        check_known(Err(Refusal::Missing), 101, 103, false);
    }

    #[test]
    fn what_was_seen_before_a_change_is_not_believed_after_it() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let at = |seconds| (after(seconds), Timestamp::UNIX_EPOCH);
        let versions = |generation| [(None, Some(1)), (None, Some(generation))];
        let mut memory = PolicyMemory::default();
        memory.note(versions(1), at(10));
        memory.note(versions(1), at(20));
        assert_eq!(memory.check(after(5)), Ok(()));
        // Changed and changed back, it says what it said, under another generation.
        memory.note(versions(3), at(30));
        assert!(memory.check(after(25)).is_err());
        assert_eq!(memory.check(after(31)), Ok(()));
    }
}
