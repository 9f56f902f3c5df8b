//! Whether requests that were made as resources may be believed: who made one is known to nobody but the admission policy of
//! `deploy/server/requests-policy.yaml`, which holds its author to that. It is tried, as a dry run, after a request was seen
//! and before it is served; it is to be the one that ships; and what is older than its last change was never looked at.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use bindery_api::{
    names,
    v1alpha2::{BindableResourcesRequest, BindableResourcesRequestSpec},
};
use bindery_runtime::errors;
use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use kube::{Api, Client, ResourceExt as _, api::ObjectMeta};
use parking_lot::Mutex;

use self::shipped::Server;
use super::{Outcome, as_dry_run, outcome};
use crate::writes::WriteError;

mod shipped;

/// Name of the policy and of its binding.
pub const NAME: &str = "kube-bind-requests";
/// What the policy, and nothing else, says of a request that is called [`names::POLICY_PROBE`]. The number is raised with
/// every change of what the policy forbids.
pub const ANSWER: &str = "policy.probe is refused by kube-bind-requests, revision 1";
/// What to apply where it is missing.
const FILE: &str = "deploy/server/requests-policy.yaml";
/// For so long a proof is good, for requests that were seen before it.
const PROOF_LIFETIME: Duration = Duration::from_secs(10);
/// For so long nobody is asked again after a refusal.
const REFUSAL_LIFETIME: Duration = Duration::from_secs(3);

/// Why a request is not served.
#[derive(thiserror::Error, Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Nothing holds requests to their authors.
    #[error(
        "ValidatingAdmissionPolicy {NAME} is not in force, so that nobody knows who made this request; apply {FILE} of this \
         version"
    )]
    Missing,
    /// The policy answers, but is not the one that ships.
    #[error(
        "ValidatingAdmissionPolicy {NAME} is not the one of this version: {field} differs, so that it may not have looked at \
         this request; delete it and its binding and apply {FILE} of this version"
    )]
    Altered {
        /// The first field that differs.
        field: &'static str,
    },
    /// It is not known whether the policy is in force.
    #[error(
        "cannot try whether ValidatingAdmissionPolicy {NAME} is in force: {cause}; apply {FILE} and the server's roles"
    )]
    Unproved {
        /// What came instead of an answer.
        cause: String,
    },
    /// The request was made before the policy was.
    #[error(
        "this request is older than ValidatingAdmissionPolicy {NAME}, of {since}, so that nobody has checked who made it; \
         delete it and create it again"
    )]
    MadeBefore {
        /// When the policy was last applied or changed.
        since: Timestamp,
    },
}

/// Lets requests pass that the policy has looked at. Clones share what they know.
#[derive(Clone)]
pub struct Gate {
    client: Client,
    /// The server, which may create requests in its own namespace.
    server: Server,
    /// When requests were first seen, by UID.
    seen: Arc<Mutex<HashMap<String, Instant>>>,
    /// Held while the policy is tried: those who wait for it may be served by the same answer.
    memory: Arc<tokio::sync::Mutex<Memory>>,
}

#[derive(Debug, Default)]
struct Memory {
    known: Option<Known>,
    /// Policy and binding as they were read last.
    versions: Option<Versions>,
    /// When they were found to be others than before. A change that was taken back leaves no other trace.
    changed: Option<(Instant, Timestamp)>,
}

/// Which specifications were read: UID and generation of each.
type Versions = [(Option<String>, Option<i64>); 2];

/// How the policy answered.
#[derive(Clone, Debug)]
struct Known {
    /// When it was about to be asked.
    at: Instant,
    /// Since when it has said what it says.
    answer: Result<Timestamp, Refusal>,
}

// === impl Refusal ===

impl Refusal {
    /// Stable reason, for conditions.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Missing | Self::Altered { .. } => "PolicyMissing",
            Self::Unproved { .. } => "PolicyUnproved",
            Self::MadeBefore { .. } => "MadeBeforePolicy",
        }
    }

    /// Whether a reason is one of these.
    pub fn is_reason(reason: &str) -> bool {
        ["PolicyMissing", "PolicyUnproved", "MadeBeforePolicy"].contains(&reason)
    }
}

// === impl Known ===

impl Known {
    /// Whether the answer is one for a request that was first seen then. The policy may have gone and come back since an
    /// older proof, and the request have been made in between.
    fn is_for(&self, seen: Instant, now: Instant) -> bool {
        let age = now.saturating_duration_since(self.at);
        match self.answer {
            Ok(_) => self.at >= seen && age < PROOF_LIFETIME,
            Err(_) => age < REFUSAL_LIFETIME,
        }
    }
}

// === impl Memory ===

impl Memory {
    fn note(&mut self, versions: Versions, now: (Instant, Timestamp)) {
        if self.versions.as_ref().is_some_and(|before| *before != versions) {
            self.changed = Some(now);
        }
        self.versions = Some(versions);
    }

    /// Whether what was first seen then may have been made before the last change.
    fn check(&self, seen: Instant) -> Result<(), Refusal> {
        match self.changed {
            Some((at, since)) if seen <= at => Err(Refusal::MadeBefore { since }),
            _ => Ok(()),
        }
    }
}

// === impl Gate ===

impl Gate {
    /// A gate for a server that has this namespace and name and acts by this client.
    pub fn new(client: Client, namespace: &str, username: &str) -> Self {
        let server = Server {
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

    /// Notes that a request is there; one proof is enough for all that are noted before it.
    pub fn note(&self, request: &BindableResourcesRequest) -> Instant {
        let uid = request.uid().unwrap_or_default();
        *self.seen.lock().entry(uid).or_insert_with(Instant::now)
    }

    /// Forgets a request that has gone.
    pub fn forget(&self, request: &BindableResourcesRequest) {
        self.seen
            .lock()
            .remove(request.metadata.uid.as_deref().unwrap_or_default());
    }

    /// Whether the policy has looked at a request, as far as that can be told.
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
            memory.known = Some(Known {
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

    async fn prove(&self, memory: &mut Memory) -> Result<Result<Timestamp, Refusal>, WriteError> {
        match outcome(self.try_it().await, NAME, ANSWER)? {
            Outcome::Live => {}
            Outcome::Missing => return Ok(Err(Refusal::Missing)),
            Outcome::Unproved(cause) => return Ok(Err(Refusal::Unproved { cause })),
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

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gate").finish_non_exhaustive()
    }
}

/// Both times are the API server's, in whole seconds: in one and the same, either may have been first.
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
        let known = Known { at: after(100), answer };
        assert_eq!(known.is_for(after(seen), after(now)), expect);
    }

    #[test]
    fn a_proof_is_for_what_was_seen_before_it() {
        let proof = Ok(Timestamp::UNIX_EPOCH);
        check_known(proof.clone(), 99, 101, true);
        check_known(proof.clone(), 101, 101, false);
        check_known(proof, 99, 110, false);
        // A refusal is nobody's proof, and need not be asked for by each.
        check_known(Err(Refusal::Missing), 101, 101, true);
        check_known(Err(Refusal::Missing), 101, 103, false);
    }

    #[test]
    fn what_was_seen_before_a_change_is_not_believed_after_it() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let at = |seconds| (after(seconds), Timestamp::UNIX_EPOCH);
        let versions = |generation| [(None, Some(1)), (None, Some(generation))];
        let mut memory = Memory::default();
        memory.note(versions(1), at(10));
        memory.note(versions(1), at(20));
        assert_eq!(memory.check(after(5)), Ok(()));
        // Changed and changed back, it says what it said, under another generation.
        memory.note(versions(3), at(30));
        assert!(memory.check(after(25)).is_err());
        assert_eq!(memory.check(after(31)), Ok(()));
    }

    #[test]
    fn every_refusal_has_a_reason_of_its_own() {
        let since = Timestamp::UNIX_EPOCH;
        let cause = String::new();
        for refusal in [
            Refusal::Missing,
            Refusal::Altered { field: "spec" },
            Refusal::Unproved { cause },
            Refusal::MadeBefore { since },
        ] {
            assert!(Refusal::is_reason(refusal.reason()), "{refusal}");
        }
        assert!(!Refusal::is_reason("TemplateNotFound"));
    }
}
