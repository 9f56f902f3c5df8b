//! The credential of a session, in one cell that all its requests read, so that a newer one takes effect at once.

use std::{collections::VecDeque, sync::Arc};

use bindery_runtime::{
    client::SharedToken,
    kubeconfig::{Fingerprint, ProviderAccess},
};
use futures::future::ready;
use jiff::Timestamp;
use parking_lot::Mutex;
use secrecy::SecretString;
use tokio::{sync::watch, time::Instant};

use super::{
    backend::{self, BackendError},
    client_certificate::{ClientCertificate, ClientCertificateFiles},
    network::Network,
    renewal_schedule::RenewalSchedule,
};

/// The count of remembered kubeconfigs. It exceeds the kubeconfigs that bindings of one contract have and that renewals bring.
const RECENT_MAX: usize = 64;

/// The credential of a session. Clones share the same cell.
#[derive(Clone, Debug)]
pub struct SessionCredential {
    cell: Arc<CredentialCell>,
}

/// The state that all clones of a credential share.
struct CredentialCell {
    token: Option<SharedToken>,
    held: watch::Sender<HeldCredential>,
    client: Mutex<Option<(BackendRoute, bindery_sdk::Client)>>,
    client_certificate: ClientCertificateFiles,
    network: Network,
    /// Kubeconfigs that were held.
    taken: Mutex<RecentFingerprints>,
    /// The newest kubeconfig that was held.
    newest: Mutex<Arc<ProviderAccess>>,
    /// Kubeconfigs that the provider refused, also over another connection.
    refused: Arc<Mutex<RecentFingerprints>>,
}

/// How a backend is reached, apart from the token. Another route needs another client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendRoute {
    address: String,
    authority: Option<String>,
    client_certificate: Option<Fingerprint>,
}

/// The latest kubeconfigs with some property, in the order of their addition.
#[derive(Default)]
struct RecentFingerprints(VecDeque<Fingerprint>);

/// The credential that a session holds, and its state.
#[derive(Clone, Debug)]
pub struct HeldCredential {
    /// The parsed kubeconfig.
    pub access: Arc<ProviderAccess>,
    /// When to renew the credential.
    pub schedule: RenewalSchedule,
    /// Whether the API server refused the credential with 401.
    pub refused: bool,
    /// State of its renewal.
    pub renewal: RenewalState,
}

/// State of the renewal of a credential.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RenewalState {
    /// No renewal has failed.
    #[default]
    Well,
    /// The renewal failed and is retried.
    Failing {
        /// Why the renewal failed.
        message: String,
        /// Count of failures in a row.
        count: u32,
    },
    /// The backend refuses to renew the credential.
    Denied {
        /// Why the backend refuses.
        message: String,
    },
    /// The backend has locked the renewal of the contract: somebody else may hold a copy of the credential.
    Locked {
        /// Why the backend has locked it.
        message: String,
    },
}

impl RenewalState {
    /// Why the backend refuses to renew the credential, if it does.
    pub fn refusal(&self) -> Option<&str> {
        match self {
            Self::Denied { message } | Self::Locked { message } => Some(message),
            Self::Well | Self::Failing { .. } => None,
        }
    }
}

impl RecentFingerprints {
    /// Adds a fingerprint, in place of the oldest one if there are too many.
    fn note(&mut self, fingerprint: &Fingerprint) {
        if self.has(fingerprint) {
            return;
        }
        if self.0.len() == RECENT_MAX {
            self.0.pop_front();
        }
        self.0.push_back(fingerprint.clone());
    }

    /// Whether a fingerprint is remembered.
    fn has(&self, fingerprint: &Fingerprint) -> bool {
        self.0.contains(fingerprint)
    }

    /// Removes a fingerprint.
    fn forget(&mut self, fingerprint: &Fingerprint) {
        self.0.retain(|known| known != fingerprint);
    }
}

impl std::fmt::Debug for CredentialCell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CredentialCell")
            .field("held", &*self.held.borrow())
            .finish_non_exhaustive()
    }
}

impl SessionCredential {
    /// A cell that holds this credential. `token` is the cell that the clients read.
    pub fn new(
        access: Arc<ProviderAccess>,
        schedule: RenewalSchedule,
        token: Option<SharedToken>,
        client_certificate: ClientCertificateFiles,
        network: Network,
    ) -> Self {
        Self::start(access, schedule, token, client_certificate, network, Arc::default())
    }

    /// A cell for another connection to the same contract. It does not take credentials that were refused here.
    #[must_use]
    pub fn succeed(&self, access: Arc<ProviderAccess>, schedule: RenewalSchedule, token: Option<SharedToken>) -> Self {
        let client_certificate = self.cell.client_certificate.clone();
        Self::start(
            access,
            schedule,
            token,
            client_certificate,
            self.cell.network.clone(),
            Arc::clone(&self.cell.refused),
        )
    }

    /// A cell that does not take the refused credentials.
    fn start(
        access: Arc<ProviderAccess>,
        schedule: RenewalSchedule,
        token: Option<SharedToken>,
        client_certificate: ClientCertificateFiles,
        network: Network,
        refused: Arc<Mutex<RecentFingerprints>>,
    ) -> Self {
        let mut first = RecentFingerprints::default();
        first.note(&access.fingerprint);
        let newest = Mutex::new(Arc::clone(&access));
        let held = HeldCredential {
            access,
            schedule,
            refused: false,
            renewal: RenewalState::Well,
        };
        Self {
            cell: Arc::new(CredentialCell {
                token,
                held: watch::Sender::new(held),
                client: Mutex::new(None),
                client_certificate,
                network,
                taken: Mutex::new(first),
                newest,
                refused,
            }),
        }
    }

    /// The credential that is held now.
    pub fn held(&self) -> HeldCredential {
        self.cell.held.borrow().clone()
    }

    /// Notifies of every change.
    pub fn changes(&self) -> watch::Receiver<HeldCredential> {
        self.cell.held.subscribe()
    }

    /// Takes a credential of the same contract and connection if it is newer than the one held, or if that one was refused and is not
    /// renewed: the renewal of a newer one ends older ones. A credential that was refused itself is not taken. Returns true if it was
    /// taken.
    pub fn offer(&self, access: &Arc<ProviderAccess>, schedule: RenewalSchedule) -> bool {
        self.cell.held.send_if_modified(|held| {
            let same = held.access.fingerprint == access.fingerprint;
            let is_lost = held.refused && (held.access.backend.is_none() || held.renewal.refusal().is_some());
            let better = access.lifetime.is_newer_than(&held.access.lifetime) || is_lost;
            let usable = access.endpoint == held.access.endpoint && !self.was_refused(&access.fingerprint);
            if same || !better || !usable || !self.set_token(access) {
                return false;
            }
            self.cell.taken.lock().note(&access.fingerprint);
            let mut newest = self.cell.newest.lock();
            if access.lifetime.is_newer_than(&newest.lifetime) {
                *newest = Arc::clone(access);
            }
            drop(newest);
            *held = HeldCredential {
                access: Arc::clone(access),
                schedule,
                refused: false,
                renewal: RenewalState::Well,
            };
            true
        })
    }

    /// Whether no newer credential than the one that is held was held before.
    pub fn is_newest(&self) -> bool {
        // Not while `newest` is locked: `offer` takes the two locks in the other order.
        let held = self.held().access;
        !self.cell.newest.lock().lifetime.is_newer_than(&held.lifetime)
    }

    /// The token cell that the clients read.
    pub fn token(&self) -> Option<&SharedToken> {
        self.cell.token.as_ref()
    }

    /// Whether a kubeconfig is held or was held lately.
    pub fn has_held(&self, fingerprint: &Fingerprint) -> bool {
        self.cell.taken.lock().has(fingerprint)
    }

    /// Whether a kubeconfig was refused lately.
    pub fn was_refused(&self, fingerprint: &Fingerprint) -> bool {
        self.cell.refused.lock().has(fingerprint)
    }

    /// Sets the token that requests send. Returns false if it is not a valid token.
    fn set_token(&self, access: &ProviderAccess) -> bool {
        match (&self.cell.token, &access.token) {
            (Some(cell), Some(token)) => cell.set(token).is_ok(),
            (None, None) => true,
            _ => false,
        }
    }

    /// Waits until a request is refused for its token, which may have been replaced since. With a client certificate it
    /// waits forever, since those are refused with the connection.
    pub async fn refusal(&self) {
        match &self.cell.token {
            Some(token) => token.refused().await,
            None => std::future::pending().await,
        }
    }

    /// Notes that the API server refused a credential.
    pub fn refuse(&self, access: &ProviderAccess) {
        self.cell.refused.lock().note(&access.fingerprint);
        self.cell.held.send_if_modified(|held| {
            let meant = held.access.fingerprint == access.fingerprint;
            meant && !std::mem::replace(&mut held.refused, true)
        });
    }

    /// Notes that the API server accepts a credential that it refused before, as one that has just started may. A credential
    /// that the backend refuses to renew stays refused.
    pub fn restore(&self, access: &ProviderAccess) {
        self.cell.held.send_if_modified(|held| {
            let meant = held.refused && held.access.fingerprint == access.fingerprint;
            if !meant || held.renewal.refusal().is_some() {
                return false;
            }
            self.cell.refused.lock().forget(&access.fingerprint);
            held.refused = false;
            true
        });
    }

    /// Notifies of a change although nothing changed, since time has passed.
    pub fn touch(&self) {
        self.cell.held.send_modify(|_| {});
    }

    /// Sets the state of the renewal.
    pub fn set_renewal(&self, renewal: RenewalState) {
        let held = &self.cell.held;
        held.send_if_modified(|held| {
            let before = std::mem::replace(&mut held.renewal, renewal);
            before != held.renewal
        });
    }

    /// Returns a client for the backend that sends the token held at the time of each call, and the route that the client takes.
    pub fn backend(&self) -> Result<(BackendRoute, bindery_sdk::Client), BackendError> {
        let backend = self.cell.held.borrow().access.backend.clone();
        let backend = backend.ok_or(BackendError::Missing)?;
        let certificate = self.cell.client_certificate.read()?;
        let route = BackendRoute {
            address: backend.address.clone(),
            authority: backend.ca_data.clone(),
            client_certificate: certificate.as_ref().map(ClientCertificate::fingerprint),
        };
        let mut known = self.cell.client.lock();
        if let Some((known, client)) = &*known
            && *known == route
        {
            return Ok((route, client.clone()));
        }
        let held = self.changes();
        let tokens = bindery_sdk::token_fn(move || {
            let token = held
                .borrow()
                .access
                .backend
                .as_ref()
                .map(|backend| backend.token.clone());
            ready(Ok(SecretString::from(token.unwrap_or_default())))
        });
        let client = backend::client(&backend, &self.cell.network, tokens, certificate)?;
        *known = Some((route.clone(), client.clone()));
        Ok((route, client))
    }
}

impl HeldCredential {
    /// Why the credential has expired for good; `None` while it works or may still be renewed.
    pub fn expired(&self, now: Instant) -> Option<String> {
        let gone = self.refused || self.schedule.is_over(now);
        if !gone {
            return None;
        }
        match (self.renewal.refusal(), &self.access.backend) {
            (Some(message), _) => Some(format!("the backend does not renew it: {message}")),
            (None, None) => Some("its provider has no backend to renew it".to_owned()),
            _ => None,
        }
    }
}

/// Returns when to renew a credential that was read from a Secret.
pub fn schedule_of(access: &ProviderAccess, now: Timestamp) -> RenewalSchedule {
    RenewalSchedule::estimated(Instant::now(), access.lifetime.total(), access.lifetime.age(now))
}

#[cfg(test)]
mod tests {
    use base64::{Engine as _, engine::general_purpose::STANDARD};

    use super::*;
    use crate::session::{backend::RenewError, kubeconfigs};

    #[tokio::test]
    async fn a_newer_credential_replaces_an_older_one_for_good() {
        let at = Timestamp::from_second(5000).unwrap();
        let offer = |credential: &SessionCredential, access: &Arc<ProviderAccess>| {
            credential.offer(access, schedule_of(access, at))
        };
        let (old, new) = (
            kubeconfigs::access("x", 1000, 3600),
            kubeconfigs::access("x", 4000, 3600),
        );
        let other = kubeconfigs::access("x", 900, 3600);
        let token = SharedToken::new(old.token.as_ref().unwrap()).unwrap();
        let credential = SessionCredential::new(
            Arc::clone(&old),
            schedule_of(&old, at),
            Some(token),
            ClientCertificateFiles::default(),
            Network::default(),
        );
        assert!(offer(&credential, &new));
        assert!(!offer(&credential, &new), "the same again");
        assert!(!offer(&credential, &old));
        assert_eq!(credential.held().access.fingerprint, new.fingerprint);
        credential.refuse(&old);
        assert!(!credential.held().refused, "another one was refused");
        credential.refuse(&new);
        assert!(credential.held().refused);
        assert!(!offer(&credential, &other), "the newer one may still be renewed");
        credential.set_renewal(RenewalState::Denied { message: String::new() });
        assert!(credential.is_newest());
        assert!(offer(&credential, &other), "any is better than one that is lost");
        assert!(!credential.held().refused && !credential.is_newest());
        credential.refuse(&other);
        credential.set_renewal(RenewalState::Denied { message: String::new() });
        for refused in [&old, &new, &other] {
            assert!(!offer(&credential, refused), "it was refused before");
        }
        assert!(credential.has_held(&old.fingerprint) && credential.has_held(&other.fingerprint));
        let elsewhere = kubeconfigs::access("y", 9000, 3600);
        assert!(
            !offer(&credential, &elsewhere),
            "another connection is another session's"
        );
        let successor = credential.succeed(Arc::clone(&elsewhere), schedule_of(&elsewhere, at), None);
        assert!(successor.was_refused(&old.fingerprint) && !successor.has_held(&old.fingerprint));
    }

    #[tokio::test]
    async fn a_renewed_credential_brings_the_cas_of_the_backend() {
        let at = Timestamp::from_second(5000).unwrap();
        let made = || {
            rcgen::generate_simple_self_signed(["ca".to_owned()])
                .unwrap()
                .cert
                .pem()
        };
        let (former, next) = (made(), made());
        let of = |issued, ca: &str| {
            let mut access = ProviderAccess::clone(&kubeconfigs::access("x", issued, 3600));
            access.backend.as_mut().unwrap().ca_data = Some(STANDARD.encode(ca));
            Arc::new(access)
        };
        let old = of(1000, &former);
        let token = SharedToken::new(old.token.as_ref().unwrap()).unwrap();
        let files = ClientCertificateFiles::default();
        let credential = SessionCredential::new(
            Arc::clone(&old),
            schedule_of(&old, at),
            Some(token),
            files,
            Network::default(),
        );
        let route = || credential.backend().map(|(route, _)| route);
        let before = route();
        assert!(before.is_ok() && before == route());
        // No other connection to the Kubernetes API is needed, so the session goes on.
        let new = of(4000, &(former + &next));
        assert!(credential.offer(&new, schedule_of(&new, at)));
        assert!(route().is_ok() && before != route(), "another client, with both CAs");
        let broken = of(7000, "nonsense");
        assert!(credential.offer(&broken, schedule_of(&broken, at)));
        let error = route().expect_err("no client");
        assert!(matches!(&error, BackendError::Unusable(_)), "{error}");
        assert!(
            matches!(RenewError::from(error), RenewError::Refused(_)),
            "no retry mends it"
        );
    }

    #[tokio::test]
    async fn a_renewed_client_certificate_is_presented_without_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let [certificate, key] = ["tls.crt", "tls.key"].map(|name| folder.path().join(name));
        let write_certificate = || {
            let made = rcgen::generate_simple_self_signed(["client".to_owned()]).unwrap();
            std::fs::write(&certificate, made.cert.pem()).unwrap();
            made.signing_key.serialize_pem()
        };
        let write = || std::fs::write(&key, write_certificate()).unwrap();
        write();
        let files = ClientCertificateFiles::new(Some(certificate.clone()), Some(key.clone()));
        let at = Timestamp::from_second(1000).unwrap();
        let access = kubeconfigs::access("x", 1000, 3600);
        let credential = SessionCredential::new(
            Arc::clone(&access),
            schedule_of(&access, at),
            None,
            files,
            Network::default(),
        );
        let route = || credential.backend().map(|(route, _)| route);
        let before = route();
        assert!(before.is_ok() && before == route());
        write();
        assert!(route().is_ok() && before != route());
        // The files are read between the writes of the one and the other.
        let check_passing = || {
            let error = route().expect_err("half a certificate is none");
            assert!(matches!(&error, BackendError::ClientCertificate(_)), "{error}");
            assert!(
                matches!(RenewError::from(error), RenewError::Failed(_)),
                "it is tried again"
            );
        };
        let its_key = write_certificate();
        check_passing();
        std::fs::remove_file(&key).unwrap();
        check_passing();
        std::fs::write(&key, its_key).unwrap();
        assert!(route().is_ok());
    }

    #[tokio::test]
    async fn an_accepted_credential_is_used_again_unless_it_was_revoked() {
        let at = Timestamp::from_second(1000).unwrap();
        let access = kubeconfigs::access("x", 1000, 3600);
        let credential = SessionCredential::new(
            Arc::clone(&access),
            schedule_of(&access, at),
            None,
            ClientCertificateFiles::default(),
            Network::default(),
        );
        credential.refuse(&access);
        credential.restore(&kubeconfigs::access("x", 2000, 3600));
        assert!(credential.held().refused, "another one was taken");
        credential.restore(&access);
        assert!(!credential.held().refused && !credential.was_refused(&access.fingerprint));
        credential.refuse(&access);
        credential.set_renewal(RenewalState::Denied {
            message: "revoked".to_owned(),
        });
        credential.restore(&access);
        assert!(credential.held().refused && credential.was_refused(&access.fingerprint));
    }

    #[test]
    fn only_the_latest_fingerprints_are_remembered() {
        let fingerprint = |number: usize| Fingerprint::of([number.to_be_bytes().as_slice()]);
        let mut recent = RecentFingerprints::default();
        for number in 0..=RECENT_MAX {
            recent.note(&fingerprint(number));
            recent.note(&fingerprint(number));
        }
        assert!(!recent.has(&fingerprint(0)) && recent.has(&fingerprint(1)));
        assert_eq!(recent.0.len(), RECENT_MAX);
    }

    #[tokio::test]
    async fn a_credential_expires_for_good_when_no_backend_renews_it() {
        let at = Timestamp::from_second(1000).unwrap();
        let access = kubeconfigs::access("x", 1000, 3600);
        let credential = SessionCredential::new(
            Arc::clone(&access),
            schedule_of(&access, at),
            None,
            ClientCertificateFiles::default(),
            Network::default(),
        );
        let expired = |credential: &SessionCredential| credential.held().expired(Instant::now()).is_some();
        assert!(!expired(&credential));
        credential.refuse(&access);
        assert!(!expired(&credential), "the backend may renew");
        credential.set_renewal(RenewalState::Failing {
            message: "no route".to_owned(),
            count: 9,
        });
        assert!(!expired(&credential));
        credential.set_renewal(RenewalState::Denied {
            message: "revoked".to_owned(),
        });
        assert!(expired(&credential));
    }
}
