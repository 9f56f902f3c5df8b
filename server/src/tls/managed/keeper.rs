//! Reads and writes the Secret with the CA and the serving certificate, and serves what it holds.

use std::{sync::Arc, time::Duration};

use bindery_api::labels;
use bindery_runtime::{cache::Cache, client::Clients, errors, watch::Source};
use jiff::Timestamp;
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
    ManagedTls, Serving,
    issue::{self, IssueError, Maker},
    plan::{self, Policy, Step},
    secret::{self, SecretFault},
};
use crate::{
    tls::{CaBundle, ServingCertificate},
    writes::FIELD_MANAGER,
};

/// Number of attempts to write the Secret, which other replicas write too.
const ROUNDS: usize = 10;
/// Pause after the Secret could not be read, written or used.
const RETRY: Duration = Duration::from_secs(15);

/// Which Secret holds the certificates, and the policy by which they are made.
#[derive(Clone, Debug)]
pub struct ManagedSettings {
    /// Namespace of the Secret.
    pub namespace: String,
    /// Name of the Secret.
    pub name: String,
    /// The lifetimes and names of certificates.
    pub policy: Policy,
}

/// Keeps the Secret, and the cells that the rest of the server reads, up to date.
#[derive(Debug)]
pub struct Keeper {
    settings: ManagedSettings,
    clients: Clients,
    api: Api<Secret>,
    /// What the Secret held when it was last read or written.
    memory: Option<ManagedTls>,
    serving: Arc<ServingCertificate>,
    ca: CaBundle,
}

/// Why there is no serving certificate, or why it cannot be renewed.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// The Secret holds something else, or was damaged.
    #[error(
        "Secret {secret} cannot be used: {fault}; delete it, or name another with --tls-secret. A server that runs writes \
         back what it serves; if none runs, a new CA is made, which every konnector learns by binding again"
    )]
    Fault {
        /// Namespace and name of the Secret.
        secret: String,
        /// What is wrong with it.
        fault: SecretFault,
    },
    /// The API server refused a request about the Secret, or did not answer.
    #[error(
        "cannot {verb} Secret {secret}: {}{}",
        errors::explain(source),
        if errors::is_forbidden(source) { "; apply deploy/server/own-namespace.yaml, which gives the right" } else { "" }
    )]
    Api {
        /// What was tried.
        verb: &'static str,
        /// Namespace and name of the Secret.
        secret: String,
        /// The refusal.
        source: kube::Error,
    },
    /// Other replicas changed the Secret each time that this one tried to.
    #[error("Secret {secret} changes all the time; look for somebody else who writes to it")]
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

impl Keeper {
    /// Reads the Secret, and writes it first if need be.
    pub async fn start(
        settings: ManagedSettings,
        clients: Clients,
        serving: Arc<ServingCertificate>,
        ca: CaBundle,
    ) -> Result<Self, KeepError> {
        let mut keeper = Self {
            api: Api::namespaced(clients.write.clone(), &settings.namespace),
            settings,
            clients,
            memory: None,
            serving,
            ca,
        };
        keeper.reconcile().await?;
        Ok(keeper)
    }

    /// Follows the Secret and the time until `stop` is cancelled. After a failure the server goes on with what it serves.
    pub async fn run(mut self, stop: CancellationToken) {
        let (namespace, name) = (&self.settings.namespace, &self.settings.name);
        let source = Source::of::<Secret>(Some(namespace)).fields(format!("metadata.name={name}"));
        let secrets = Cache::<Secret>::start(self.clients.watch.clone(), source);
        let changed = Arc::new(Notify::new());
        let notify = Arc::clone(&changed);
        let _subscription = secrets.subscribe(move |_| notify.notify_one());
        let mut pause = self.pause();
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
                Ok(()) => self.pause(),
                Err(error) => {
                    tracing::error!(%error, "the former certificate and CA stay in use");
                    RETRY
                }
            };
        }
    }

    /// Returns the time until the next decision, unless the Secret changes before.
    fn pause(&self) -> Duration {
        let memory = self.memory.as_ref();
        memory.map_or(RETRY, |state| {
            plan::look_again(state, &self.settings.policy, Timestamp::now())
        })
    }

    /// Reads the Secret, changes it if need be, and serves what it holds afterwards.
    async fn reconcile(&mut self) -> Result<(), KeepError> {
        for _ in 0..ROUNDS {
            let name = &self.settings.name;
            let existing = self
                .api
                .get_opt(name)
                .await
                .map_err(|source| self.refused("read", source))?;
            let stored = existing.as_ref().map(secret::decode).transpose();
            let stored = stored.map_err(|fault| self.fault(fault))?.flatten();
            let now = Timestamp::now();
            let Some((state, reason)) = self.decide(stored.as_ref(), now)? else {
                // The API server has nothing else, so there is a state.
                return stored.map_or(Ok(()), |state| self.serve(state));
            };
            if self.write(existing, &state).await? {
                tracing::info!(secret = self.secret(), reason, "certificates stored");
                return self.serve(state);
            }
        }
        Err(KeepError::Contended { secret: self.secret() })
    }

    /// Decides what to store, and says why; nothing if what is stored is good.
    fn decide(&self, stored: Option<&ManagedTls>, now: Timestamp) -> Result<Option<(ManagedTls, String)>, IssueError> {
        let policy = &self.settings.policy;
        let (base, mut reasons) = match (stored, &self.memory) {
            (Some(stored), Some(memory)) => match plan::keep_trust(stored, memory) {
                Some(kept) => (kept, vec!["the Secret lacked a CA that clients trust"]),
                None => (stored.clone(), Vec::new()),
            },
            (Some(stored), None) => (stored.clone(), Vec::new()),
            (None, Some(memory)) => (memory.clone(), vec!["the Secret was gone"]),
            (None, None) => (issue::begin(policy, &Maker, now)?, vec!["there was no CA"]),
        };
        let steps = plan::plan(&base, policy, now);
        if steps.is_empty() && reasons.is_empty() {
            return Ok(None);
        }
        reasons.extend(steps.iter().map(Step::reason));
        let state = issue::apply(base, &steps, policy, &Maker, now)?;
        Ok(Some((state, reasons.join("; "))))
    }

    /// Writes the Secret, unless somebody else has written it meanwhile. Returns whether it was written.
    async fn write(&self, existing: Option<Secret>, state: &ManagedTls) -> Result<bool, KeepError> {
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
    fn serve(&mut self, state: ManagedTls) -> Result<(), KeepError> {
        let failed = |source| KeepError::Serve {
            secret: self.secret(),
            source,
        };
        if let Some(Serving { certificate, key }) = &state.serving {
            let key = PrivateKeyDer::from_pem_slice(key.expose_secret().as_bytes());
            let key = key.map_err(|error| failed(rustls::Error::General(error.to_string())))?;
            let chain = vec![certificate.der.clone()];
            let set = self.serving.set(chain, key, certificate.validity.not_after);
            set.map_err(failed)?;
            self.tell(&state, certificate.validity.not_after);
        }
        self.ca
            .set(&state.bundle(), Some(state.signing.certificate.validity.not_after));
        self.memory = Some(state);
        Ok(())
    }

    /// Logs what clients notice of a new state.
    fn tell(&self, state: &ManagedTls, not_after: Timestamp) {
        let secret = self.secret();
        let before = self.memory.as_ref();
        let certificate = |state: &ManagedTls| state.serving.as_ref().map(|serving| serving.certificate.der.clone());
        if before.and_then(certificate) != certificate(state) {
            tracing::info!(secret, %not_after, "serving certificate replaced");
        }
        if before.is_some_and(|before| before.bundle() != state.bundle()) {
            let authorities = state.authorities().count();
            let not_after = state.signing.certificate.validity.not_after;
            tracing::info!(secret, authorities, %not_after, "CAs changed");
        }
    }

    fn secret(&self) -> String {
        format!("{}/{}", self.settings.namespace, self.settings.name)
    }

    fn fault(&self, fault: SecretFault) -> KeepError {
        let secret = self.secret();
        KeepError::Fault { secret, fault }
    }

    fn refused(&self, verb: &'static str, source: kube::Error) -> KeepError {
        let secret = self.secret();
        KeepError::Api { verb, secret, source }
    }
}
