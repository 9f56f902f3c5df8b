//! Finds out which contract a kubeconfig leads to. Only the provider's answer tells: names may be reused.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Weak},
    time::Duration,
};

use bindery_runtime::{
    backoff::Backoff,
    client::{ClientError, Clients, Meter, SharedToken},
    errors,
    queue::Queue,
};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use parking_lot::Mutex;
use secrecy::SecretString;

use super::{
    Contract,
    backend::{self, RenewError, Renewed},
    pace::Pace,
};
use crate::attempt::{Attempt, Link};
use bindery_runtime::kubeconfig::{Fingerprint, ProviderAccess};

/// Idle connections kept per pool of a session.
const IDLE_MAX: usize = 64;
const FIRST_PAUSE: Duration = Duration::from_millis(250);

/// An attempt to find out, repeated until it succeeds.
pub type Dial = Attempt<Arc<Reached>, DialError>;

/// With which kubeconfig, and at which pace.
type Asked = (Fingerprint, Option<Pace>);

/// Where a kubeconfig leads.
#[derive(Clone, Debug)]
pub struct Reached {
    /// The contract.
    pub contract: Contract,
    /// The kubeconfig that was given.
    pub origin: Fingerprint,
    /// The credential that got there: the one given, or its renewal.
    pub access: Arc<ProviderAccess>,
    /// Clients with that credential.
    pub clients: Clients,
    /// The token that the clients read.
    pub token: Option<SharedToken>,
    /// The renewal, where the given credential had expired.
    pub renewed: Option<Renewed>,
}

/// Why a kubeconfig leads nowhere.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DialError {
    /// Nobody answers, or not sensibly.
    #[error("the provider at {server} cannot be reached: {message}")]
    Unreachable {
        /// The API server.
        server: String,
        /// What happened.
        message: String,
    },
    /// The token is not, or no longer, valid, and cannot be renewed.
    #[error("the provider at {server} refuses the token: {message}")]
    Unauthorized {
        /// The API server.
        server: String,
        /// What it said.
        message: String,
    },
    /// The token may not see its contract.
    #[error("the provider at {server} denies access to the contract: {message}")]
    Denied {
        /// The API server.
        server: String,
        /// What it said.
        message: String,
    },
    /// The contract does not exist.
    #[error("namespace {namespace} does not exist on the provider at {server}: the contract has ended; bind again")]
    Gone {
        /// The API server.
        server: String,
        /// The contract namespace.
        namespace: String,
    },
    /// The connection cannot be set up.
    #[error("the kubeconfig cannot be used: {message}")]
    Setup {
        /// Why.
        message: String,
    },
}

/// All that is being found out, or is known while somebody holds on to it.
#[derive(Debug)]
pub struct Dialer {
    dials: Mutex<HashMap<Asked, Weak<Dial>>>,
    backoff: Backoff,
    traffic: Meter,
}

/// The inquiries that one holder of credentials waits for. Each outcome queues its key.
#[derive(Debug)]
pub struct Dials<K> {
    running: HashMap<Fingerprint, (Option<Pace>, Arc<Dial>, Link)>,
    queue: Queue<K>,
    key: K,
}

// === impl Dialer ===

impl Dialer {
    /// A dialer that tries again at least this often. What goes over the wire to providers is counted.
    pub fn new(pause_max: Duration, traffic: Meter) -> Self {
        Self {
            traffic,
            dials: Mutex::default(),
            backoff: Backoff::new(FIRST_PAUSE.min(pause_max), pause_max),
        }
    }

    /// The attempt for a kubeconfig, started if there is none at this pace. It goes on while somebody holds it.
    pub fn dial(&self, access: &Arc<ProviderAccess>, pace: Option<Pace>) -> Arc<Dial> {
        let mut dials = self.dials.lock();
        let known = (access.fingerprint.clone(), pace);
        if let Some(dial) = dials.get(&known).and_then(Weak::upgrade) {
            return dial;
        }
        dials.retain(|_, dial| dial.strong_count() > 0);
        let target = Arc::clone(access);
        let backoff = self.backoff;
        let traffic = self.traffic.clone();
        let delay = move |attempt| pace.map_or_else(|| backoff.delay(attempt), |pace| pace.after_failure(attempt));
        let dial = Arc::new(Attempt::paced(delay, move || {
            reach(Arc::clone(&target), traffic.clone())
        }));
        dials.insert(known, Arc::downgrade(&dial));
        dial
    }
}

// === impl Dials ===

impl<K: Eq + Hash + Clone + Send + Sync + 'static> Dials<K> {
    /// None yet.
    pub fn new(queue: Queue<K>, key: K) -> Self {
        Self {
            running: HashMap::new(),
            queue,
            key,
        }
    }

    /// How asking with a kubeconfig went; starts to ask if nobody does.
    pub fn dial(
        &mut self,
        dialer: &Dialer,
        access: &Arc<ProviderAccess>,
        pace: Option<Pace>,
    ) -> Option<Result<Arc<Reached>, DialError>> {
        let known = self.running.get(&access.fingerprint);
        if known.is_none_or(|(at, ..)| *at != pace) {
            let dial = dialer.dial(access, pace);
            let link = Link::new(dial.changes(), self.queue.clone(), self.key.clone());
            self.running.insert(access.fingerprint.clone(), (pace, dial, link));
        }
        let (_, dial, _) = self.running.get(&access.fingerprint)?;
        dial.outcome()
    }

    /// Ends the inquiries with other kubeconfigs than these.
    pub fn retain(&mut self, current: &[Arc<ProviderAccess>]) {
        self.running
            .retain(|fingerprint, _| current.iter().any(|access| access.fingerprint == *fingerprint));
    }

    /// How often asking has failed in a row, with the kubeconfig that was tried most.
    pub fn failures(&self) -> u32 {
        let failures = self.running.values().map(|(_, dial, _)| dial.failures());
        failures.max().unwrap_or_default()
    }
}

async fn reach(access: Arc<ProviderAccess>, traffic: Meter) -> Result<Arc<Reached>, DialError> {
    let origin = access.fingerprint.clone();
    let setup = |error: ClientError| DialError::Setup {
        message: errors::chain(&error),
    };
    let (clients, token) = clients(&access, &traffic).map_err(setup)?;
    let refusal = match contract(&clients, &access).await {
        Ok(contract) => {
            return Ok(Arc::new(Reached {
                contract,
                origin,
                access,
                clients,
                token,
                renewed: None,
            }));
        }
        Err(error @ DialError::Unauthorized { .. }) => error,
        Err(error) => return Err(error),
    };
    let renewed = match renew(&access).await {
        Some(Ok(renewed)) => renewed,
        Some(Err(error)) => {
            let message = format!("{refusal}; renewing it failed: {error}");
            let server = access.server();
            return Err(match error {
                RenewError::Refused(_) | RenewError::Unusable(_) => DialError::Unauthorized { server, message },
                RenewError::Failed(_) => DialError::Unreachable { server, message },
            });
        }
        None => return Err(refusal),
    };
    let access = Arc::clone(&renewed.access);
    let (clients, token) = self::clients(&access, &traffic).map_err(setup)?;
    let contract = contract(&clients, &access).await?;
    if renewed.contract_uid != *contract.uid {
        return Err(DialError::Setup {
            message: "its backend renews it with a kubeconfig of another contract".to_owned(),
        });
    }
    let renewed = Some(renewed);
    Ok(Arc::new(Reached {
        contract,
        origin,
        access,
        clients,
        token,
        renewed,
    }))
}

fn clients(access: &ProviderAccess, traffic: &Meter) -> Result<(Clients, Option<SharedToken>), ClientError> {
    let token = access.token.as_ref().map(SharedToken::new).transpose()?;
    let clients = Clients::metered(&access.config, token.as_ref(), IDLE_MAX, traffic)?;
    Ok((clients, token))
}

pub(super) async fn contract(clients: &Clients, access: &ProviderAccess) -> Result<Contract, DialError> {
    let namespaces: Api<Namespace> = Api::all(clients.lease.clone());
    let namespace = namespaces
        .get(&access.namespace)
        .await
        .map_err(|error| refusal(access, &error))?;
    let uid = namespace.metadata.uid.ok_or_else(|| DialError::Unreachable {
        server: access.server(),
        message: "it answers without a UID".to_owned(),
    })?;
    Ok(Contract {
        uid: uid.into(),
        namespace: Arc::clone(&access.namespace),
    })
}

/// What an answer other than the contract means.
fn refusal(access: &ProviderAccess, error: &kube::Error) -> DialError {
    let (server, message) = (access.server(), errors::explain(error));
    match errors::code(error) {
        Some(401) => DialError::Unauthorized { server, message },
        Some(403) => DialError::Denied { server, message },
        _ if errors::is_object_gone(error, &access.namespace) => DialError::Gone {
            server,
            namespace: access.namespace.to_string(),
        },
        _ => DialError::Unreachable { server, message },
    }
}

/// A new credential from the backend, where there is one.
async fn renew(access: &ProviderAccess) -> Option<Result<Renewed, RenewError>> {
    let endpoint = access.backend.as_ref()?;
    let token = SecretString::from(endpoint.token.clone());
    let client = match backend::client(endpoint, bindery_sdk::StaticToken::new(token)) {
        Ok(client) => client,
        Err(error) => return Some(Err(RenewError::Refused(error.to_string()))),
    };
    Some(backend::renew(&client, &access.namespace).await)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::session::testing;

    #[track_caller]
    fn check(status: serde_json::Value, expect: &str) {
        let error = kube::Error::Api(Box::new(serde_json::from_value(status).unwrap()));
        let refusal = refusal(&testing::access("x", 0, 3600), &error);
        assert!(format!("{refusal:?}").starts_with(expect), "{refusal:?}");
    }

    #[test]
    fn only_the_api_servers_word_on_the_namespace_ends_a_contract() {
        let not_found = |name: &str| json!({"code": 404, "reason": "NotFound", "details": {"name": name}});
        check(not_found("kube-bind-x"), "Gone");
        check(not_found(""), "Unreachable");
        check(json!({"code": 404, "message": "404 page not found"}), "Unreachable");
        check(json!({"code": 401}), "Unauthorized");
        check(json!({"code": 403}), "Denied");
        check(json!({"code": 503}), "Unreachable");
    }
}
