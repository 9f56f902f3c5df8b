//! Proves that the admission policies are in force. [`WatchedPolicy`] lists them: `monitor` watches and probes each, and `force` decides
//! what follows.
//!
//! [`Prober`] tries the policy of `deploy/server/policy.yaml`: without it, rights on cluster-scoped objects
//! would reach the objects of other consumers. A policy takes effect with a delay, and may be an older one, so that the server
//! tries it each time before it grants such rights: by a dry run as the contract's account.

use bindery_api::{
    names,
    v1alpha2::{APIServiceNamespace, APIServiceNamespaceSpec},
};
use bindery_runtime::{
    client::{ClientError, ClusterTraffic, Network, SharedToken},
    errors,
};
use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::ServiceAccount,
    rbac::v1::Role,
};
use kube::{
    Api, Client, Config, ResourceExt as _,
    api::{ObjectMeta, PostParams},
    config::AuthInfo,
};
use secrecy::SecretString;

use crate::{contract, state::State, template::Refusal, writes::WriteError};

mod force;
mod monitor;
pub mod requests;

pub use self::{
    force::{PolicyTiming, Standing},
    monitor::{PolicyMonitor, Standings},
};

/// Name of the policy and of its binding.
pub const NAME: &str = "kube-bind-binder";
/// The message with which the policy, and nothing else, denies [`names::POLICY_PROBE`]. Its revision is raised with every change
/// of what the policy forbids, so that an older policy proves nothing.
pub const ANSWER: &str = "policy.probe is refused by kube-bind-binder, revision 4";

/// Name of the policy on the server's own account, `deploy/server/account-policy.yaml`, and of its binding.
pub const SERVER_NAME: &str = "kube-bind-server";
/// The message with which the policy on the server's account denies it a Role named [`names::POLICY_PROBE`]. Its revision is raised with
/// every change of what the policy forbids.
pub const SERVER_ANSWER: &str = "policy.probe is refused by kube-bind-server, revision 1";

/// The shortest lifetime that the API server grants, in seconds. The token never leaves this process.
const TOKEN_SECONDS: i64 = 600;

/// How many contracts at most are tried for one probe, until one of them has an account.
const CONTRACTS_TRIED_MAX: usize = 3;

/// The admission policies that the server watches. A further one is a variant here, with its name and its probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchedPolicy {
    /// Limits what contracts write. Rights on cluster-scoped objects and in shared namespaces rely on it.
    Binder,
    /// Verifies the authors of requests that are made as resources. Each of these is served after a proof of its own.
    Requests,
    /// Limits what the server's own account writes. Nothing that the server gives relies on it.
    ServerAccount,
}

/// What a probe of a policy showed.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ProbeOutcome {
    /// The policy is in force: it denied the probe.
    Live,
    /// The policy is not in force: the probe was admitted.
    Admitted,
    /// The policy of this version is not in force: an older version, or another policy, denied the probe.
    OtherWords,
    /// The probe did not reach admission, for this cause.
    Unproved(String),
}

/// Tries the policy as the accounts of contracts.
#[derive(Clone)]
pub struct Prober {
    /// How the server reaches its cluster, without the server's credentials.
    config: Config,
    network: Network,
    client: Client,
}

// === impl WatchedPolicy ===

impl WatchedPolicy {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Binder, Self::Requests, Self::ServerAccount];

    /// Name of the policy and of its binding.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Binder => NAME,
            Self::Requests => requests::NAME,
            Self::ServerAccount => SERVER_NAME,
        }
    }

    /// Whether only the account of a contract can probe the policy.
    const fn needs_contract(self) -> bool {
        match self {
            Self::Binder => true,
            Self::Requests | Self::ServerAccount => false,
        }
    }

    /// Tries what the policy forbids. `None` if there is no account that the policy limits.
    async fn probe(self, state: &State) -> Option<Result<ProbeOutcome, WriteError>> {
        match self {
            Self::Binder => state.prober.probe_any(contracts(state)).await,
            Self::Requests => Some(state.author_verifier.probe().await),
            Self::ServerAccount => Some(probe_own_account(state).await),
        }
    }
}

/// The oldest contracts, whose accounts exist most likely.
fn contracts(state: &State) -> Vec<String> {
    let mut contracts = state
        .caches
        .namespaces
        .list(|namespace| contract::is_contract(namespace) && !contract::is_terminating(namespace));
    contracts.sort_by_key(|contract| (contract.creation_timestamp(), contract.name_any()));
    contracts.truncate(CONTRACTS_TRIED_MAX);
    contracts.iter().map(|contract| contract.name_any()).collect()
}

// === impl Prober ===

impl Prober {
    /// Creates a prober for the cluster of this configuration on this network; `client` is the server's own.
    pub fn new(config: &Config, network: Network, client: Client) -> Self {
        let mut config = config.clone();
        config.auth_info = AuthInfo::default();
        Self {
            config,
            network,
            client,
        }
    }

    /// Checks that the policy limits what a contract writes. The inner error says why that is not certain.
    pub async fn prove(&self, contract: &str) -> Result<Result<(), Refusal>, WriteError> {
        let outcome = self.probe(contract).await?;
        tracing::debug!(contract, ?outcome, "admission policy probed");
        Ok(match outcome {
            ProbeOutcome::Live => Ok(()),
            ProbeOutcome::Admitted | ProbeOutcome::OtherWords => Err(Refusal::AdmissionPolicyMissing { policy: NAME }),
            ProbeOutcome::Unproved(cause) => Err(Refusal::AdmissionPolicyUnproved { policy: NAME, cause }),
        })
    }

    /// Tries the policy as the account of a contract.
    async fn probe(&self, contract: &str) -> Result<ProbeOutcome, WriteError> {
        let token = self.token(contract).await?;
        match self.client_of(&token) {
            Ok(client) => outcome(try_it(client, contract).await, NAME, ANSWER),
            Err(error) => Ok(ProbeOutcome::Unproved(error.to_string())),
        }
    }

    /// Tries the policy as the account of one of these contracts: the first with which something is shown. `None` without contracts.
    async fn probe_any(&self, contracts: Vec<String>) -> Option<Result<ProbeOutcome, WriteError>> {
        let mut last = None;
        for contract in contracts {
            let outcome = self.probe(&contract).await;
            if !matches!(&outcome, Err(_) | Ok(ProbeOutcome::Unproved(_))) {
                return Some(outcome);
            }
            last = Some(outcome);
        }
        last
    }

    async fn token(&self, contract: &str) -> Result<SecretString, WriteError> {
        let request = TokenRequest {
            spec: TokenRequestSpec {
                expiration_seconds: Some(TOKEN_SECONDS),
                ..TokenRequestSpec::default()
            },
            ..TokenRequest::default()
        };
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), contract);
        let granted = accounts
            .create_token_request(names::KUBE_BINDER, &PostParams::default(), &request)
            .await?;
        Ok(granted.status.map(|status| status.token).unwrap_or_default().into())
    }

    fn client_of(&self, token: &SecretString) -> Result<Client, ClientError> {
        let token = SharedToken::new(token)?;
        let clients = self
            .network
            .clients(&self.config, Some(&token), 1, &ClusterTraffic::default());
        Ok(clients?.write)
    }
}

impl std::fmt::Debug for Prober {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prober").finish_non_exhaustive()
    }
}

async fn try_it(client: Client, contract: &str) -> Result<APIServiceNamespace, kube::Error> {
    let mut probe = APIServiceNamespace::new(names::POLICY_PROBE, APIServiceNamespaceSpec {});
    probe.metadata = ObjectMeta {
        namespace: Some(contract.to_owned()),
        ..probe.metadata
    };
    let api: Api<APIServiceNamespace> = Api::namespaced(client, contract);
    api.create(&as_dry_run(), &probe).await
}

/// Tries the policy on the server's own account.
async fn probe_own_account(state: &State) -> Result<ProbeOutcome, WriteError> {
    let roles: Api<Role> = Api::namespaced(state.clients.write.clone(), &state.settings.namespace);
    let probe = Role {
        metadata: ObjectMeta {
            name: Some(names::POLICY_PROBE.to_owned()),
            ..ObjectMeta::default()
        },
        ..Role::default()
    };
    outcome(roles.create(&as_dry_run(), &probe).await, SERVER_NAME, SERVER_ANSWER)
}

fn as_dry_run() -> PostParams {
    PostParams {
        dry_run: true,
        ..PostParams::default()
    }
}

/// Judges by an answer whether the policy of that name is in force. It is if it denied the request with exactly these words.
fn outcome<T>(answer: Result<T, kube::Error>, policy: &str, words: &str) -> Result<ProbeOutcome, WriteError> {
    let error = match answer {
        Ok(_) => return Ok(ProbeOutcome::Admitted),
        Err(error) if errors::is_transient(&error) => return Err(error.into()),
        Err(error) => error,
    };
    if errors::is_policy_denial(&error, policy, words) {
        return Ok(ProbeOutcome::Live);
    }
    // Admission comes before the object is stored: a request that fails for an existing object was admitted.
    if errors::is_already_exists(&error) {
        return Ok(ProbeOutcome::Admitted);
    }
    if errors::policy_denials(&error).next().is_some() {
        return Ok(ProbeOutcome::OtherWords);
    }
    Ok(ProbeOutcome::Unproved(errors::explain(&error)))
}

#[cfg(test)]
mod tests {
    use kube::core::{
        Status,
        response::{StatusCause, StatusDetails},
    };

    use super::*;

    /// A refusal with a message and, if a policy denied the request, a cause.
    fn refusal(code: u16, message: &str, cause: Option<&str>) -> Result<(), kube::Error> {
        let causes = cause.iter().map(|message| StatusCause {
            reason: String::new(),
            message: (*message).to_owned(),
            field: String::new(),
        });
        let details = StatusDetails {
            name: names::POLICY_PROBE.to_owned(),
            group: String::new(),
            kind: String::new(),
            uid: String::new(),
            causes: causes.collect(),
            retry_after_seconds: 0,
        };
        let reason = if code == 409 { "AlreadyExists" } else { "Forbidden" };
        let status = Status::failure(message, reason).with_code(code).with_details(details);
        Err(kube::Error::Api(status.boxed()))
    }

    #[track_caller]
    fn check(answer: Result<(), kube::Error>, expect: &ProbeOutcome) {
        assert_eq!(&outcome(answer, NAME, ANSWER).unwrap(), expect);
    }

    #[test]
    fn only_a_denial_in_the_policys_own_words_proves_it() {
        let denied = |policy: &str, words: &str| {
            let cause = format!("ValidatingAdmissionPolicy '{policy}' with binding '{policy}' denied request: {words}");
            refusal(422, &format!("\"policy.probe\" is forbidden: {cause}"), Some(&cause))
        };
        check(denied(NAME, ANSWER), &ProbeOutcome::Live);
        check(denied("other", ANSWER), &ProbeOutcome::OtherWords);
        let (words, revision) = ANSWER.rsplit_once(' ').unwrap();
        let revision: u32 = revision.parse().unwrap();
        for other in [revision - 1, revision + 1, revision * 10] {
            check(denied(NAME, &format!("{words} {other}")), &ProbeOutcome::OtherWords);
        }
        check(Ok(()), &ProbeOutcome::Admitted);
        check(refusal(409, "policy.probe exists", None), &ProbeOutcome::Admitted);
        // A name or message that repeats the words is not the policy's denial.
        let forged = format!("ValidatingAdmissionPolicy '{NAME}' with binding '{NAME}' denied request: {ANSWER}");
        check(refusal(403, &forged, None), &ProbeOutcome::Unproved(forged.clone()));
        check(refusal(401, "no", None), &ProbeOutcome::Unproved("no".to_owned()));
    }

    #[test]
    fn the_shipped_policy_is_the_one_that_is_asked_for() {
        let shipped = include_str!("../../deploy/server/policy.yaml");
        assert!(shipped.lines().any(|line| line.trim() == format!("message: {ANSWER}")));
    }

    #[test]
    fn silence_is_no_answer() {
        assert!(outcome(refusal(503, "later", None), NAME, ANSWER).is_err());
    }
}
