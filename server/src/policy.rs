//! Proves that the admission policies are in force. [`WatchedPolicy`] lists them, and `monitor` follows each.
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
    policy::ProbeOutcome,
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

mod monitor;
pub mod requests;

pub use self::monitor::{PolicyMonitor, Standings};

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
            Ok(client) => Ok(ProbeOutcome::of(try_it(client, contract).await, NAME, ANSWER)?),
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
    let answer = roles.create(&as_dry_run(), &probe).await;
    Ok(ProbeOutcome::of(answer, SERVER_NAME, SERVER_ANSWER)?)
}

fn as_dry_run() -> PostParams {
    PostParams {
        dry_run: true,
        ..PostParams::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_policy_is_the_one_that_is_asked_for() {
        let shipped = include_str!("../../deploy/server/policy.yaml");
        assert!(shipped.lines().any(|line| line.trim() == format!("message: {ANSWER}")));
    }
}
