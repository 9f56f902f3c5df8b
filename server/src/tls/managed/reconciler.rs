//! Reads and writes the Secret with the CA and the serving certificate, and serves what it holds.

use std::{sync::Arc, time::Duration};

use bindery_api::labels;
use bindery_runtime::{cache::Cache, client::Clients, errors, watch::Source};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api,
    api::{ObjectMeta, PostParams},
};
use rustls_pki_types::{PrivateKeyDer, pem::PemObject as _};
use secrecy::ExposeSecret as _;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{
    ManagedTls, Serving, access,
    decide::{Change, decide},
    issue::{IssueError, KeyIssuer},
    plan::{self, Policy},
    secret::{self, SecretFault},
};
use crate::{
    tls::{CaBundle, Certificate, ServingCertificate},
    writes::FIELD_MANAGER,
};

/// Number of attempts to write the Secret, which other replicas write too.
const ROUNDS: usize = 10;
/// Pause after the Secret could not be read, written or used.
const RETRY: Duration = Duration::from_secs(15);

/// The Secret with the certificates that the server makes, and their lifetimes and names.
#[derive(Clone, Debug)]
pub struct ManagedSettings {
    /// Namespace of the Secret.
    pub namespace: String,
    /// Name of the Secret.
    pub name: String,
    /// Lifetimes and names of the certificates.
    pub policy: Policy,
}

/// Renews the certificates in the Secret, and serves them through the cells that the rest of the server reads.
#[derive(Debug)]
pub struct Reconciler {
    settings: ManagedSettings,
    clients: Clients,
    api: Api<Secret>,
    /// What the Secret held when it was last read or written.
    last_served: Option<ManagedTls>,
    serving: Arc<ServingCertificate>,
    ca: CaBundle,
}

/// Why there is no serving certificate, or why it cannot be renewed.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// The Secret holds something else.
    #[error("Secret {secret} cannot be used: {fault}; choose another name with --tls-secret")]
    Foreign {
        /// Namespace and name of the Secret.
        secret: String,
        /// What is wrong with it.
        fault: SecretFault,
    },
    /// The Secret was damaged.
    #[error(
        "Secret {secret} cannot be used: {fault}; restore it from a backup, or delete it. A server that runs writes back what it \
         serves; if none runs, a new CA is made, which every konnector learns by binding again"
    )]
    Damaged {
        /// Namespace and name of the Secret.
        secret: String,
        /// What is wrong with it.
        fault: SecretFault,
    },
    /// The server could not renew its certificates when they are due.
    #[error(
        "the server may not {} Secret {namespace}/{name}; in namespace {namespace}, give it the verbs get, list, watch and update on \
         Secret {name}, and create on secrets, as deploy/server/own-namespace.yaml does for the default names",
        verbs.join(", ")
    )]
    Rights {
        /// Namespace of the Secret.
        namespace: String,
        /// Name of the Secret.
        name: String,
        /// The verbs that are missing.
        verbs: Vec<&'static str>,
    },
    /// The API server refused a request about the Secret, or did not answer.
    #[error("cannot {verb} Secret {secret}: {}", errors::explain(source))]
    Api {
        /// What was tried.
        verb: &'static str,
        /// Namespace and name of the Secret.
        secret: String,
        /// The refusal.
        source: kube::Error,
    },
    /// Other replicas changed the Secret each time that this one tried to.
    #[error("Secret {secret} changes all the time; find and stop the program besides the server that writes it")]
    Contended {
        /// Namespace and name of the Secret.
        secret: String,
    },
    /// A certificate cannot be made.
    #[error(transparent)]
    Issue(#[from] IssueError),
    /// What was made or read cannot be served.
    #[error("cannot serve the certificate of Secret {secret}: {source}")]
    Serve {
        /// Namespace and name of the Secret.
        secret: String,
        /// Why.
        source: rustls::Error,
    },
}

impl Reconciler {
    /// Reads the Secret, and writes it first if need be. Fails if the server may not read, follow and write it.
    pub async fn start(
        settings: ManagedSettings,
        clients: Clients,
        serving: Arc<ServingCertificate>,
        ca: CaBundle,
    ) -> Result<Self, ReconcileError> {
        let mut reconciler = Self {
            api: Api::namespaced(clients.write.clone(), &settings.namespace),
            settings,
            clients,
            last_served: None,
            serving,
            ca,
        };
        // Otherwise a missing right would show only when the certificate is to be renewed.
        reconciler.check_rights().await?;
        reconciler.reconcile().await?;
        Ok(reconciler)
    }

    /// Asks the API server for all rights that the server needs until its end.
    async fn check_rights(&self) -> Result<(), ReconcileError> {
        let ManagedSettings { namespace, name, .. } = &self.settings;
        let missing = access::missing_verbs(&self.clients.write, namespace, name).await;
        let missing = missing.map_err(|source| self.refused("ask for the rights on", source))?;
        if missing.is_empty() {
            return Ok(());
        }
        Err(ReconcileError::Rights {
            namespace: namespace.clone(),
            name: name.clone(),
            verbs: missing,
        })
    }

    /// Follows the Secret and the time until `stop` is cancelled. After a failure the server goes on with what it serves.
    pub async fn run(mut self, stop: CancellationToken) {
        let (namespace, name) = (&self.settings.namespace, &self.settings.name);
        let source = Source::of::<Secret>(Some(namespace)).fields(format!("metadata.name={name}"));
        let secrets = Cache::<Secret>::start(self.clients.watch.clone(), source);
        let changed = Arc::new(Notify::new());
        let notify = Arc::clone(&changed);
        let _subscription = secrets.subscribe(move |_| notify.notify_one());
        let mut pause = self.requeue_after();
        loop {
            let waiting = async {
                tokio::select! {
                    () = changed.notified() => {}
                    () = tokio::time::sleep(pause) => {}
                }
            };
            if stop.run_until_cancelled(waiting).await.is_none() {
                return;
            }
            pause = match self.reconcile().await {
                Ok(()) => self.requeue_after(),
                Err(error) => {
                    tracing::error!(%error, "the former certificate and CA stay in use");
                    RETRY
                }
            };
        }
    }

    /// The time until the next step is due, unless the Secret changes.
    fn requeue_after(&self) -> Duration {
        let last_served = self.last_served.as_ref();
        last_served.map_or(RETRY, |state| {
            plan::requeue_after(state, &self.settings.policy, self.clients.clock.now_or_local())
        })
    }

    /// Reads the Secret, changes it if need be, and serves what it holds afterwards.
    async fn reconcile(&mut self) -> Result<(), ReconcileError> {
        for _ in 0..ROUNDS {
            let name = &self.settings.name;
            let existing = self
                .api
                .get_opt(name)
                .await
                .map_err(|source| self.refused("read", source))?;
            let stored = existing.as_ref().map(secret::decode).transpose();
            let stored = stored.map_err(|fault| self.fault(fault))?.flatten();
            // That of the API server, whose answer was just read: a clock that is ahead drops CAs that clients still trust.
            let now = self.clients.clock.now_or_local();
            let policy = &self.settings.policy;
            let change = decide(stored.as_ref(), self.last_served.as_ref(), policy, &KeyIssuer, now)?;
            let (state, reasons) = match (change, stored) {
                (Some(Change { state, reasons }), _) => (state, reasons),
                (None, Some(stored))
                    if existing
                        .as_ref()
                        .is_some_and(|secret| !secret::has_bundle(secret, &stored)) =>
                {
                    (stored, vec!["ca.crt lacked a CA"])
                }
                (None, Some(stored)) => return self.serve(stored),
                // Never: where nothing is stored, there is a change.
                (None, None) => return Ok(()),
            };
            if self.write(existing, &state).await? {
                tracing::info!(
                    secret = self.secret(),
                    reason = reasons.join("; "),
                    "certificates stored"
                );
                return self.serve(state);
            }
        }
        Err(ReconcileError::Contended { secret: self.secret() })
    }

    /// Writes the Secret, unless it was changed or deleted after it was read. Returns whether it was written.
    async fn write(&self, existing: Option<Secret>, state: &ManagedTls) -> Result<bool, ReconcileError> {
        let params = PostParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PostParams::default()
        };
        let name = &self.settings.name;
        let (verb, written) = match existing {
            Some(mut secret) => {
                // The resource version that was read is the precondition.
                secret.data = Some(secret::encode(state));
                ("update", self.api.replace(name, &params, &secret).await)
            }
            None => ("create", self.api.create(&params, &self.new_secret(state)).await),
        };
        match written {
            Ok(_) => Ok(true),
            Err(error) if errors::is_conflict(&error) || errors::is_already_exists(&error) => Ok(false),
            Err(error) if verb == "update" && errors::is_object_gone(&error, name) => Ok(false),
            Err(source) => Err(self.refused(verb, source)),
        }
    }

    fn new_secret(&self, state: &ManagedTls) -> Secret {
        Secret {
            metadata: ObjectMeta {
                name: Some(self.settings.name.clone()),
                namespace: Some(self.settings.namespace.clone()),
                labels: Some([(labels::MANAGED_BY.to_owned(), FIELD_MANAGER.to_owned())].into()),
                ..ObjectMeta::default()
            },
            type_: Some("Opaque".to_owned()),
            data: Some(secret::encode(state)),
            ..Secret::default()
        }
    }

    /// Serves a state from now on.
    fn serve(&mut self, state: ManagedTls) -> Result<(), ReconcileError> {
        let failed = |source| ReconcileError::Serve {
            secret: self.secret(),
            source,
        };
        let ca_not_after = state.signing.certificate.validity.not_after;
        // Before the certificate, so that each credential that is minted meanwhile holds the CA that signed it.
        self.ca.set(&state.bundle(), Some(ca_not_after));
        if let Some(Serving { certificate, key }) = &state.serving {
            let key = PrivateKeyDer::from_pem_slice(key.expose_secret().as_bytes());
            let key = key.map_err(|error| failed(rustls::Error::General(error.to_string())))?;
            let chain = vec![certificate.der.clone()];
            let set = self.serving.set(chain, key, certificate.validity.not_after);
            set.map_err(failed)?;
        }
        self.log_change(&state);
        self.last_served = Some(state);
        Ok(())
    }

    /// Logs what clients notice of a new state.
    fn log_change(&self, state: &ManagedTls) {
        let secret = self.secret();
        let before = self.last_served.as_ref();
        let serving = state.serving.as_ref().map(|serving| &serving.certificate);
        if let Some(serving) = serving
            && before
                .and_then(|before| before.serving.as_ref())
                .map(|before| &before.certificate)
                != Some(serving)
        {
            tracing::info!(secret, not_after = %serving.validity.not_after, "serving certificate replaced");
        }
        let Some(before) = before else {
            return;
        };
        if before.bundle() != state.bundle() {
            let authorities = state.authorities().count();
            let not_after = state.signing.certificate.validity.not_after;
            tracing::info!(secret, authorities, %not_after, "CAs changed");
        }
        let next = state.next.as_ref().map(|next| &next.certificate);
        let is_unknown = |ca: &&Certificate| !before.trusts(ca) && next != Some(*ca);
        for ca in state.authorities().filter(is_unknown) {
            let (fingerprint, not_after) = (ca.fingerprint(), ca.validity.not_after);
            tracing::warn!(
                secret,
                fingerprint,
                %not_after,
                "clients get a CA from now on that this replica did not know; unless the Secret was restored, another program may \
                 have written it: then replace the CA"
            );
        }
    }

    fn secret(&self) -> String {
        format!("{}/{}", self.settings.namespace, self.settings.name)
    }

    fn fault(&self, fault: SecretFault) -> ReconcileError {
        let secret = self.secret();
        match fault {
            SecretFault::Foreign { .. } => ReconcileError::Foreign { secret, fault },
            SecretFault::Damaged { .. } => ReconcileError::Damaged { secret, fault },
        }
    }

    fn refused(&self, verb: &'static str, source: kube::Error) -> ReconcileError {
        let secret = self.secret();
        ReconcileError::Api { verb, secret, source }
    }
}
