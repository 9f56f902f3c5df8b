//! Finds out which contract a kubeconfig reaches. Only the provider's answer counts, since names may be reused.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Weak},
    time::Duration,
};

use bindery_api::v1alpha2::APIServiceExport;
use bindery_runtime::{
    backoff::Backoff,
    client::{ClientError, Clients, ClusterTraffic, SharedToken},
    errors,
    kubeconfig::{Fingerprint, ProviderAccess},
    queue::Queue,
};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, api::ListParams};
use parking_lot::Mutex;
use secrecy::SecretString;

use super::{
    backend::{self, BackendError, RenewError, RenewedCredential},
    client_certificate::ClientCertificateFiles,
    network::Network,
    polling::PollPolicy,
};
use crate::{
    attempt::{Attempt, Link},
    contract::Contract,
    metrics::Metrics,
    rights,
};

/// Idle connections that each connection pool of a session keeps.
const IDLE_MAX: usize = 64;
/// Pause after the first failed attempt.
const FIRST_PAUSE: Duration = Duration::from_millis(250);

/// An attempt to reach the contract of a kubeconfig, repeated until it succeeds.
pub type ConnectAttempt = Attempt<Arc<ContractConnection>, ConnectError>;

/// A kubeconfig, and how it is tried.
type AttemptKey = (Fingerprint, ReachTerms);

/// How a kubeconfig is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReachTerms {
    /// The polling policy of a bundle.
    pub policy: Option<PollPolicy>,
    /// Whether a contract whose namespace may not be read counts as not reached.
    pub needs_uid: bool,
}

/// A connection to the contract that a kubeconfig reaches.
#[derive(Clone, Debug)]
pub struct ContractConnection {
    /// The contract.
    pub contract: Contract,
    /// UID of the contract namespace as it was read last; `None` if the konnector may not read it.
    pub found: Option<Arc<str>>,
    /// Fingerprint of the kubeconfig that was tried.
    pub origin: Fingerprint,
    /// The credential that reached the contract: of the kubeconfig, or its renewal.
    pub access: Arc<ProviderAccess>,
    /// Clients that use the credential.
    pub clients: Clients,
    /// The token cell that the clients read.
    pub token: Option<SharedToken>,
    /// The renewal, if the credential of the kubeconfig had expired.
    pub renewed: Option<RenewedCredential>,
}

/// Why a kubeconfig reaches no contract.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// The API server does not answer, or not as an API server does.
    #[error("the provider at {server} cannot be reached: {message}")]
    Unreachable {
        /// Address of the API server.
        server: String,
        /// What happened.
        message: String,
    },
    /// The API server refuses the token, and it cannot be renewed.
    #[error("the provider at {server} refuses the token: {message}")]
    Unauthorized {
        /// Address of the API server.
        server: String,
        /// What the API server answered.
        message: String,
    },
    /// The token has no right to read its contract namespace, nor the exports in it.
    #[error("the provider at {server} denies access to the contract: {message}")]
    Denied {
        /// Address of the API server.
        server: String,
        /// What the API server answered.
        message: String,
    },
    /// The contract namespace does not exist.
    #[error("namespace {namespace} does not exist on the provider at {server}: the contract has ended; bind again")]
    Gone {
        /// Address of the API server.
        server: String,
        /// Name of the contract namespace.
        namespace: String,
    },
    /// The token has no right to read its contract namespace, and nothing else tells whether it is the pinned one.
    #[error(
        "the provider at {server} does not let the konnector read namespace {namespace}, so nothing tells whether it is still the \
         contract that was pinned; the provider's admin mends it by this rule in a Role of that namespace: {}",
        rights::rule("", &["namespaces"], &["get"])
    )]
    Unverified {
        /// Address of the API server.
        server: String,
        /// Name of the contract namespace.
        namespace: String,
    },
    /// No client can be made from the kubeconfig.
    #[error("the kubeconfig cannot be used: {message}")]
    Setup {
        /// Why.
        message: String,
    },
}

/// The running attempts to reach contracts. Holders of the same kubeconfig share one attempt.
#[derive(Debug)]
pub struct Connector {
    attempts: Mutex<HashMap<AttemptKey, Weak<ConnectAttempt>>>,
    backoff: Backoff,
    network: Network,
    metrics: Arc<Metrics>,
    client_certificate: ClientCertificateFiles,
}

/// The attempts that one binding or bundle waits for. Each outcome queues its key.
#[derive(Debug)]
pub struct ConnectAttempts<K> {
    running: HashMap<Fingerprint, (ReachTerms, Arc<ConnectAttempt>, Link)>,
    queue: Queue<K>,
    key: K,
}

impl Connector {
    /// A connector that pauses at most this long between tries. It reaches providers and their backends on this network, counts in the
    /// metrics what it sends to providers and how often it reaches none, and presents the client certificate to backends.
    pub fn new(
        pause_max: Duration,
        network: Network,
        metrics: Arc<Metrics>,
        client_certificate: ClientCertificateFiles,
    ) -> Self {
        Self {
            network,
            metrics,
            client_certificate,
            attempts: Mutex::default(),
            backoff: Backoff::new(FIRST_PAUSE.min(pause_max), pause_max),
        }
    }

    /// Returns the attempt for a kubeconfig and terms, and starts it if there is none. It ends when its last holder drops it.
    pub fn attempt(&self, access: &Arc<ProviderAccess>, terms: ReachTerms) -> Arc<ConnectAttempt> {
        let mut attempts = self.attempts.lock();
        let key = (access.fingerprint.clone(), terms);
        if let Some(attempt) = attempts.get(&key).and_then(Weak::upgrade) {
            return attempt;
        }
        attempts.retain(|_, attempt| attempt.strong_count() > 0);
        let target = Arc::clone(access);
        let backoff = self.backoff;
        let network = self.network.clone();
        let (metrics, certificate) = (Arc::clone(&self.metrics), self.client_certificate.clone());
        let delay = move |failure| {
            let policy = terms.policy;
            policy.map_or_else(|| backoff.delay(failure), |policy| policy.after_failure(failure))
        };
        let attempt = Arc::new(Attempt::paced(delay, move || {
            let reached = reach(
                Arc::clone(&target),
                network.clone(),
                metrics.provider_traffic(),
                certificate.clone(),
            );
            let metrics = Arc::clone(&metrics);
            async move {
                let reached = reached.await;
                // Without a session no heartbeat is sent, and the provider misses one all the same.
                if let Err(ConnectError::Unreachable { .. }) = reached {
                    metrics.heartbeat(false);
                }
                judge(reached?, terms)
            }
        }));
        attempts.insert(key, Arc::downgrade(&attempt));
        attempt
    }
}

impl<K: Eq + Hash + Clone + Send + Sync + 'static> ConnectAttempts<K> {
    /// Starts without any attempt.
    pub fn new(queue: Queue<K>, key: K) -> Self {
        Self {
            running: HashMap::new(),
            queue,
            key,
        }
    }

    /// Returns the outcome of the attempt with a kubeconfig, and starts it if it is not running.
    pub fn connect(
        &mut self,
        connector: &Connector,
        access: &Arc<ProviderAccess>,
        terms: ReachTerms,
    ) -> Option<Result<Arc<ContractConnection>, ConnectError>> {
        let known = self.running.get(&access.fingerprint);
        if known.is_none_or(|(tried, ..)| *tried != terms) {
            let attempt = connector.attempt(access, terms);
            let link = Link::new(attempt.changes(), self.queue.clone(), self.key.clone());
            self.running.insert(access.fingerprint.clone(), (terms, attempt, link));
        }
        let (_, attempt, _) = self.running.get(&access.fingerprint)?;
        attempt.outcome()
    }

    /// Drops the attempts with other kubeconfigs than these.
    pub fn retain(&mut self, current: &[Arc<ProviderAccess>]) {
        self.running
            .retain(|fingerprint, _| current.iter().any(|access| access.fingerprint == *fingerprint));
    }

    /// Count of failures in a row, of the kubeconfig that was tried most often.
    pub fn failures(&self) -> u32 {
        let failures = self.running.values().map(|(_, attempt, _)| attempt.failures());
        failures.max().unwrap_or_default()
    }
}

/// Tries once to reach the contract of a kubeconfig. A refused credential is renewed at its backend first.
async fn reach(
    given: Arc<ProviderAccess>,
    network: Network,
    traffic: ClusterTraffic,
    certificate: ClientCertificateFiles,
) -> Result<Arc<ContractConnection>, ConnectError> {
    let origin = given.fingerprint.clone();
    let (access, renewed, opened) = match open(&given, &network, &traffic).await {
        Err(refusal @ ConnectError::Unauthorized { .. }) => {
            let renewed = renew(&given, refusal, &network, &certificate).await?;
            let access = Arc::clone(&renewed.access);
            let opened = open(&access, &network, &traffic).await?;
            (access, Some(renewed), opened)
        }
        opened => (given, None, opened?),
    };
    let (FoundContract { contract, is_verified }, clients, token) = opened;
    if renewed
        .as_ref()
        .is_some_and(|renewed| is_verified && renewed.contract_uid != *contract.uid)
    {
        return Err(ConnectError::Setup {
            message: "the backend renewed it with a kubeconfig of another contract".to_owned(),
        });
    }
    Ok(Arc::new(ContractConnection {
        found: is_verified.then(|| Arc::clone(&contract.uid)),
        contract,
        origin,
        access,
        clients,
        token,
        renewed,
    }))
}

/// Refuses a connection to an unverified contract where the terms need its UID.
fn judge(reached: Arc<ContractConnection>, terms: ReachTerms) -> Result<Arc<ContractConnection>, ConnectError> {
    if reached.found.is_some() || !terms.needs_uid {
        return Ok(reached);
    }
    Err(ConnectError::Unverified {
        server: reached.access.server(),
        namespace: reached.contract.namespace.to_string(),
    })
}

/// A contract as the provider shows it.
#[derive(Clone, Debug)]
pub(super) struct FoundContract {
    pub(super) contract: Contract,
    /// Whether its UID was read; otherwise the konnector may read the exports but not the namespace.
    pub(super) is_verified: bool,
}

/// A contract, the clients that reached it, and their token cell.
type Opened = (FoundContract, Clients, Option<SharedToken>);

/// Makes clients from a kubeconfig and reads its contract.
async fn open(access: &ProviderAccess, network: &Network, traffic: &ClusterTraffic) -> Result<Opened, ConnectError> {
    let clients = || {
        let token = access.token.as_ref().map(SharedToken::new).transpose()?;
        let clients = network
            .kubernetes
            .clients(&access.config, token.as_ref(), IDLE_MAX, traffic)?;
        Ok((clients, token))
    };
    let (clients, token) = clients().map_err(|error: ClientError| ConnectError::Setup {
        message: errors::chain(&error),
    })?;
    Ok((read_contract(&clients, access).await?, clients, token))
}

/// Reads the contract that a kubeconfig names. Where the konnector may read the exports but not the namespace, a digest of
/// the connection stands for its UID.
pub(super) async fn read_contract(clients: &Clients, access: &ProviderAccess) -> Result<FoundContract, ConnectError> {
    match read_uid(clients, access).await {
        Ok(uid) => Ok(FoundContract {
            contract: Contract {
                uid,
                namespace: Arc::clone(&access.namespace),
            },
            is_verified: true,
        }),
        Err(denied @ ConnectError::Denied { .. }) => read_exports(clients, access, denied).await,
        Err(error) => Err(error),
    }
}

/// Reads the UID of the contract namespace.
pub(super) async fn read_uid(clients: &Clients, access: &ProviderAccess) -> Result<Arc<str>, ConnectError> {
    let namespaces: Api<Namespace> = Api::all(clients.lease.clone());
    let read = namespaces.get(&access.namespace).await;
    let namespace = read.map_err(|error| refusal(access, &error))?;
    let uid = namespace.metadata.uid.ok_or_else(|| ConnectError::Unreachable {
        server: access.server(),
        message: "its answer has no UID".to_owned(),
    })?;
    Ok(uid.into())
}

/// Reaches a contract whose namespace may not be read, if its exports may. Otherwise `denied` stands.
async fn read_exports(
    clients: &Clients,
    access: &ProviderAccess,
    denied: ConnectError,
) -> Result<FoundContract, ConnectError> {
    let exports: Api<APIServiceExport> = Api::namespaced(clients.lease.clone(), &access.namespace);
    match exports.list_metadata(&ListParams::default().limit(1)).await {
        Ok(_) => Ok(FoundContract {
            contract: Contract::unverified(access),
            is_verified: false,
        }),
        Err(error) => Err(match refusal(access, &error) {
            ConnectError::Denied { .. } => denied,
            refusal => refusal,
        }),
    }
}

/// Returns what an error of the API server means for the contract.
fn refusal(access: &ProviderAccess, error: &kube::Error) -> ConnectError {
    let (server, message) = (access.server(), errors::explain(error));
    match errors::code(error) {
        Some(401) => ConnectError::Unauthorized { server, message },
        Some(403) => ConnectError::Denied { server, message },
        _ if errors::is_object_gone(error, &access.namespace) => ConnectError::Gone {
            server,
            namespace: access.namespace.to_string(),
        },
        _ => ConnectError::Unreachable { server, message },
    }
}

/// Renews the credential of a kubeconfig that the API server refused, at its backend. Without a backend the refusal stands.
async fn renew(
    access: &ProviderAccess,
    refusal: ConnectError,
    network: &Network,
    certificate: &ClientCertificateFiles,
) -> Result<RenewedCredential, ConnectError> {
    let Some(endpoint) = &access.backend else {
        return Err(refusal);
    };
    let token = SecretString::from(endpoint.token.clone());
    let client = certificate.read().map_err(BackendError::from);
    let client = client
        .and_then(|certificate| backend::client(endpoint, network, bindery_sdk::StaticToken::new(token), certificate));
    let renewed = match client {
        // Which contract it reaches is not known yet, nor is its holder.
        Ok(client) => backend::renew(&client, &access.namespace, "").await,
        Err(error) => Err(error.into()),
    };
    renewed.map_err(|error| {
        let message = format!("{refusal}; renewing it failed: {error}");
        let server = access.server();
        match error {
            RenewError::Refused(_) | RenewError::Locked(_) | RenewError::Unusable(_) => {
                ConnectError::Unauthorized { server, message }
            }
            RenewError::Failed(_) => ConnectError::Unreachable { server, message },
        }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::session::kubeconfigs;

    #[track_caller]
    fn check(status: serde_json::Value, expect: &str) {
        let error = kube::Error::Api(Box::new(serde_json::from_value(status).unwrap()));
        let refusal = refusal(&kubeconfigs::access("x", 0, 3600), &error);
        assert!(format!("{refusal:?}").starts_with(expect), "{refusal:?}");
    }

    #[test]
    fn only_a_missing_namespace_ends_a_contract() {
        let not_found = |name: &str| json!({"code": 404, "reason": "NotFound", "details": {"name": name}});
        check(not_found("kube-bind-x"), "Gone");
        check(not_found(""), "Unreachable");
        check(json!({"code": 404, "message": "404 page not found"}), "Unreachable");
        check(json!({"code": 401}), "Unauthorized");
        check(json!({"code": 403}), "Denied");
        check(json!({"code": 503}), "Unreachable");
    }
}
