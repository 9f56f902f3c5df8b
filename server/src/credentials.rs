//! Credentials of contracts: tokens of ServiceAccount `kube-binder`, each bound to an anchor, whose deletion revokes it.
//!
//! An anchor is an empty Secret of the contract namespace, which all tokens of one day share, so that minting a token stores
//! nothing. Any replica can mint. Revoking writes its record first, and minting reads the record last: so a token is either
//! minted before the record, and its anchor is found and deleted, or it is not handed out. The names of anchors that are made
//! after a revocation has ended contain its id, so that no revoked anchor is used again. Each renewal records its token before it
//! hands it out; see [`renewal`].

use std::time::Duration;

use bindery_api::{
    annotations,
    backend::Backend,
    labels, meta, names,
    revocation::last_ended,
    v1alpha2::{BindableResourcesRequest, ClusterBinding},
};
use bindery_proto::v1alpha2::ErrorReason;
use bindery_runtime::errors;
use jiff::Timestamp;
use k8s_openapi::api::{
    authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec},
    core::v1::{Secret, ServiceAccount},
    rbac::v1::RoleBinding,
};
use kube::{
    Api, Resource as _, ResourceExt as _,
    api::{ListParams, PostParams},
};
use secrecy::SecretString;
use serde_json::json;

use crate::{
    contract,
    metrics::AskedBy,
    rbac,
    state::State,
    writes::{Write, WriteError},
};

mod anchor;
mod kubeconfig;
pub mod renewal;
mod token;

pub use bindery_api::revocation::{Revocation, revocation};
use renewal::{HolderProof, IssuedToken, RenewalRecord, RenewalRefusal};
use token::Token;

/// Number of attempts to write a ClusterBinding, to which the heartbeats of the consumer are written too.
const ROUNDS: usize = 8;
/// Reason of the event about a ClusterBinding whose renewal was locked.
const LOCKED: &str = "RenewalLocked";
/// Why renewal is locked, for people.
const REUSED: &str =
    "a renewal token was used again after a newer one was in use, so a second party may hold a copy of the credential";

/// Mints, revokes and reinstates the credentials of contracts.
#[derive(Clone, Debug)]
pub struct Issuer {
    state: State,
}

/// What a konnector shows to have its credential renewed.
#[derive(Clone, Debug)]
pub struct Renewal {
    /// The token that it calls with.
    pub token: IssuedToken,
    /// The records of the contract's holder that it sends, separated by spaces.
    pub holder: String,
}

/// A new credential.
#[derive(Debug)]
pub struct Minted {
    /// The kubeconfig, YAML.
    pub kubeconfig: SecretString,
    /// UID of the contract Namespace.
    pub contract_uid: String,
    /// Id of the token in the API server's audit log.
    pub credential_id: String,
    /// Granted lifetime of the token for the Kubernetes API.
    pub expires_in: Duration,
    /// Time after which the konnector should renew the credential.
    pub renew_after: Duration,
    /// When it expires, by the API server's clock.
    pub expire_time: Timestamp,
}

/// The outcome of a revocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revoked {
    /// Number of deleted anchors.
    pub anchors: usize,
    /// Time of the revocation; of the first one, if the credentials were revoked already.
    pub time: Timestamp,
}

/// Why no credential was minted or revoked.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    /// There is no such contract.
    #[error("contract {contract} does not exist")]
    ContractNotFound {
        /// Its name.
        contract: String,
    },
    /// Its credentials are revoked.
    #[error("the credentials of contract {contract} are revoked; its owner can bind again")]
    Revoked {
        /// Its name.
        contract: String,
    },
    /// The credentials were revoked and reinstated while this one was minted.
    #[error("the credentials of contract {contract} were revoked meanwhile; try again")]
    Overtaken {
        /// Its name.
        contract: String,
    },
    /// Renewal is locked, until an owner binds again.
    #[error(
        "the renewal of the credentials of contract {contract} is locked since {since}: a token was used again after a newer one was in \
         use, so a second party may hold a copy; find out who, then its owner can bind again: kubectl bind renew NAME"
    )]
    Locked {
        /// Its name.
        contract: String,
        /// When it was locked.
        since: Timestamp,
    },
    /// The token ended when a newer one was used.
    #[error(
        "this credential of contract {contract} ended when a newer one was used; use the newest one, or have its owner bind again: \
         kubectl bind renew NAME"
    )]
    Ended {
        /// Its name.
        contract: String,
    },
    /// Another konnector holds the contract.
    #[error(
        "another konnector holds contract {contract}, and this one's record is older; kubectl bind accept on the consumer lets one \
         of them go on"
    )]
    OtherHolder {
        /// Its name.
        contract: String,
    },
    /// The chain of renewals is older than the provider allows.
    #[error(
        "the credentials of contract {contract} were renewed since {began}, for longer than this provider allows \
         (--renewal-max-age={}s); its owner can bind again: kubectl bind renew NAME",
        max_age.as_secs()
    )]
    TooOld {
        /// Its name.
        contract: String,
        /// When an owner bound last.
        began: Timestamp,
        /// The longest age.
        max_age: Duration,
    },
    /// The API server granted a token that cannot be read.
    #[error("the API server granted a token that is no JWT with an expiry")]
    TokenUnreadable,
    /// The kubeconfig could not be written.
    #[error("cannot write the kubeconfig of contract {contract}")]
    Kubeconfig {
        /// Its name.
        contract: String,
    },
    /// The API server refused a request, or did not answer.
    #[error("cannot issue credentials for contract {contract}: {source}")]
    Write {
        /// Its name.
        contract: String,
        /// The refusal.
        source: WriteError,
    },
}

// === impl IssueError ===

impl IssueError {
    /// Whether who asked may not have a credential at present; otherwise something failed that should work.
    pub(crate) const fn is_refusal(&self) -> bool {
        match self {
            Self::ContractNotFound { .. }
            | Self::Revoked { .. }
            | Self::Overtaken { .. }
            | Self::Locked { .. }
            | Self::Ended { .. }
            | Self::OtherHolder { .. }
            | Self::TooOld { .. } => true,
            Self::TokenUnreadable | Self::Kubeconfig { .. } | Self::Write { .. } => false,
        }
    }
}

// === impl Issuer ===

impl Issuer {
    /// An issuer for all contracts of the provider.
    pub fn new(state: State) -> Self {
        Self { state }
    }

    /// Mints a credential for an owner. The caller of this function has authorised the call.
    pub async fn mint(&self, contract: &str) -> Result<Minted, IssueError> {
        let issued = self.issue(contract, None).await;
        self.state.metrics.credential(AskedBy::Owner, &issued);
        issued
    }

    /// Mints a credential for a konnector, whose token is verified. Locks renewal if the token ended and the konnector holds the
    /// contract.
    pub async fn renew(&self, contract: &str, renewal: &Renewal) -> Result<Minted, IssueError> {
        let issued = self.issue(contract, Some(renewal)).await;
        self.state.metrics.credential(AskedBy::Konnector, &issued);
        issued
    }

    async fn issue(&self, contract: &str, renewal: Option<&Renewal>) -> Result<Minted, IssueError> {
        let contract_uid = self.contract_uid(contract)?;
        let before = self.cluster_binding(contract).await?;
        refuse_revoked(contract, before.as_ref())?;
        self.refuse_ended(contract, before.as_ref(), renewal).await?;
        let last_revocation = before.as_ref().and_then(last_ended);
        let settings = &self.state.settings;
        let anchor = self.anchor(contract, last_revocation).await.map_err(failed(contract))?;
        let api_server = self.token(contract, &anchor, None, settings.token_lifetime);
        let renewal_token = self.token(
            contract,
            &anchor,
            Some(&settings.grpc.address),
            settings.renewal_lifetime,
        );
        let (api_server, renewal_token) = tokio::try_join!(api_server, renewal_token)?;
        let last = api_server.expire_time.max(renewal_token.expire_time);
        self.extend(&anchor, last).await.map_err(failed(contract))?;
        self.record(contract, before.as_ref(), renewal, &renewal_token.issued())
            .await?;

        let ca = self.state.grpc_ca.current();
        let backend = Backend {
            address: settings.grpc.address.clone(),
            ca_data: ca.map(|pem| kubeconfig::base64(pem.as_bytes())),
            token: renewal_token.secret().to_owned(),
        };
        let kubeconfig =
            kubeconfig::render(contract, &settings.kubernetes, api_server.secret(), &backend).ok_or_else(|| {
                IssueError::Kubeconfig {
                    contract: contract.to_owned(),
                }
            })?;
        tracing::info!(contract, credential = api_server.id, "credential made");
        Ok(Minted {
            kubeconfig,
            contract_uid,
            credential_id: api_server.id.clone(),
            expires_in: api_server.lifetime,
            renew_after: api_server.lifetime * 2 / 3,
            expire_time: api_server.expire_time,
        })
    }

    /// Refuses an owner while renewal is locked, and a konnector whose token must not be renewed.
    async fn refuse_ended(
        &self,
        contract: &str,
        binding: Option<&ClusterBinding>,
        renewal: Option<&Renewal>,
    ) -> Result<(), IssueError> {
        match renewal {
            None => refuse_locked(contract, binding),
            Some(renewal) => self.used(contract, binding, renewal).await.map(drop),
        }
    }

    /// Records a new renewal token before it is handed out, in the version of the ClusterBinding in which it may be. `before` is what
    /// was read before the token was made: a revocation since then shows by its new version.
    async fn record(
        &self,
        contract: &str,
        before: Option<&ClusterBinding>,
        renewal: Option<&Renewal>,
        token: &IssuedToken,
    ) -> Result<(), IssueError> {
        let last_revocation = before.and_then(last_ended);
        let mut seen = match renewal {
            Some(_) => before.cloned(),
            None => self.cluster_binding(contract).await?,
        };
        let mut round = 1;
        loop {
            refuse_revoked(contract, seen.as_ref())?;
            if seen.as_ref().and_then(last_ended) != last_revocation {
                return Err(IssueError::Overtaken {
                    contract: contract.to_owned(),
                });
            }
            let record = if let Some(renewal) = renewal {
                self.used(contract, seen.as_ref(), renewal).await?.granted(token)
            } else {
                refuse_locked(contract, seen.as_ref())?;
                let record = seen.as_ref().and_then(renewal::renewal);
                record.unwrap_or_default().granted_to_owner(token)
            };
            let Some(binding) = &seen else {
                return Ok(());
            };
            let write = Write::annotate("a renewal token is granted", binding, &record.annotation());
            match write.apply(&self.state.clients.write).await {
                Ok(_) => return Ok(()),
                Err(error) if error.is_stale() && round < ROUNDS => round += 1,
                Err(error) => return Err(failed(contract)(error)),
            }
            seen = self.cluster_binding(contract).await?;
        }
    }

    /// The record of the contract after the use of a token. Locks renewal if the token ended and the konnector holds the contract.
    async fn used(
        &self,
        contract: &str,
        binding: Option<&ClusterBinding>,
        renewal: &Renewal,
    ) -> Result<RenewalRecord, IssueError> {
        let mut seen = binding.cloned();
        let mut round = 1;
        loop {
            let max_age = self.state.settings.renewal_max_age;
            let proof = HolderProof::of(&renewal.holder, seen.as_ref());
            let record = seen.as_ref().and_then(renewal::renewal);
            let now = self.state.clients.clock.now_or_local();
            let used = renewal::use_token(record.as_ref(), &renewal.token, proof, max_age, now);
            let refusal = match used {
                Ok(used) => return Ok(used),
                Err(refusal) => refusal,
            };
            let contract = contract.to_owned();
            match (refusal, record, &seen) {
                (RenewalRefusal::Reused, Some(record), Some(binding)) => {
                    match self.lock(&contract, binding, record).await {
                        Ok(since) => return Err(IssueError::Locked { contract, since }),
                        Err(IssueError::Write { source, .. }) if source.is_stale() && round < ROUNDS => round += 1,
                        Err(error) => return Err(error),
                    }
                }
                (RenewalRefusal::Locked(since), ..) => return Err(IssueError::Locked { contract, since }),
                (RenewalRefusal::OtherHolder, ..) => return Err(IssueError::OtherHolder { contract }),
                (RenewalRefusal::TooOld(began), ..) => {
                    let max_age = max_age.unwrap_or_default();
                    return Err(IssueError::TooOld {
                        contract,
                        began,
                        max_age,
                    });
                }
                (RenewalRefusal::Ended | RenewalRefusal::Reused, ..) => return Err(IssueError::Ended { contract }),
            }
            seen = self.cluster_binding(&contract).await?;
        }
    }

    /// Locks the renewal of a contract, in the version of the ClusterBinding that was seen, and says so. Returns since when.
    async fn lock(
        &self,
        contract: &str,
        binding: &ClusterBinding,
        record: RenewalRecord,
    ) -> Result<Timestamp, IssueError> {
        let lock = self.revocation(contract, Some(REUSED)).await?;
        let since = lock.time;
        let write = Write::annotate("renewal is locked", binding, &record.locked(lock).annotation());
        write.apply(&self.state.clients.write).await.map_err(failed(contract))?;
        self.state.metrics.renewal_locks.inc();
        let message = format!("{REUSED}; no credential of the contract is renewed until an owner binds again");
        self.state.recorder.warn(&binding.object_ref(&()), LOCKED, message);
        tracing::warn!(
            contract,
            "renewal locked: a token that ended was used by the contract's holder"
        );
        Ok(since)
    }

    /// A record that the credentials of a contract are revoked, or their renewal locked, from now on.
    async fn revocation(&self, contract: &str, reason: Option<&str>) -> Result<Revocation, IssueError> {
        let requests = self.requests().list(&ListParams::default()).await;
        let requests = requests.map_err(failed(contract))?.items;
        let namespace = self.state.contract(contract);
        Ok(Revocation::new(
            format!("{:016x}", rand::random::<u64>()),
            whole_seconds(Timestamp::now()),
            reason,
            namespace.as_deref().and_then(contract::identity),
            &requests,
            &self.state.settings.namespace,
        ))
    }

    /// Revokes all credentials of a contract. No new ones are minted until [`Issuer::reinstate`].
    pub async fn revoke(&self, contract: &str, reason: Option<&str>) -> Result<Revoked, IssueError> {
        self.contract_uid(contract)?;
        let api = self.cluster_bindings(contract);
        let binding = api.get(names::CLUSTER_BINDING).await.map_err(failed(contract))?;
        // The controller of contracts sweeps, too, as soon as it sees the revocation.
        let known = self.anchors(contract).await.map_err(failed(contract))?.len();
        let time = if let Some(before) = revocation(&binding) {
            before.time
        } else {
            let revocation = self.revocation(contract, reason).await?;
            let write = Write::patch("credentials are revoked", &binding, revocation.patch(&binding)).of_any_version();
            write.apply(&self.state.clients.write).await.map_err(failed(contract))?;
            revocation.time
        };
        let swept = self.sweep(contract).await.map_err(failed(contract))?;
        let anchors = swept.max(known);
        tracing::warn!(contract, anchors, "credentials revoked");
        Ok(Revoked { anchors, time })
    }

    /// Deletes the anchors of a revoked contract, then its RoleBinding; while that exists, the sweep is known to be unfinished.
    /// Does nothing if the revocation has ended, for the anchors and the RoleBinding are new then.
    pub async fn sweep(&self, contract: &str) -> Result<usize, WriteError> {
        let bindings: Api<RoleBinding> = Api::namespaced(self.state.clients.write.clone(), contract);
        let anchors = self.anchors(contract).await?;
        let binder = bindings.get_opt(names::KUBE_BINDER).await?;
        // Read after the anchors, which are therefore older than the revocation.
        let binding = self.cluster_bindings(contract).get_opt(names::CLUSTER_BINDING).await?;
        if binding.as_ref().and_then(revocation).is_none() {
            return Ok(0);
        }
        for anchor in &anchors {
            Write::delete("credentials are revoked", anchor)
                .apply(&self.state.clients.write)
                .await?;
        }
        if let Some(binder) = binder {
            Write::delete("credentials are revoked", &binder)
                .apply(&self.state.clients.write)
                .await?;
        }
        Ok(anchors.len())
    }

    /// Ends the revocation or the lock of renewal with this id, or the current ones, when an owner binds again. Credentials from
    /// before stay revoked, or are not renewed any more.
    pub async fn reinstate(&self, contract: &str, id: Option<&str>) -> Result<(), IssueError> {
        self.contract_uid(contract)?;
        self.unlock(contract, id).await.map_err(failed(contract))?;
        if !self.end_revocation(contract, id).await.map_err(failed(contract))? {
            return Ok(());
        }
        // Here, and not only in the controller, so that the new kubeconfig works at once.
        let write = Write::create(
            "credentials are reinstated",
            &rbac::kube_binder(contract),
            &[labels::CONTRACT],
        );
        write.apply(&self.state.clients.write).await.map_err(failed(contract))?;
        tracing::info!(contract, "credentials reinstated");
        Ok(())
    }

    /// Ends the lock of renewal, if there is one.
    async fn unlock(&self, contract: &str, id: Option<&str>) -> Result<(), WriteError> {
        let api = self.cluster_bindings(contract);
        let mut round = 1;
        loop {
            let binding = api.get(names::CLUSTER_BINDING).await?;
            let is_meant = |lock: &Revocation| id.is_none_or(|id| id == lock.id);
            let record = renewal::renewal(&binding);
            let Some(record) = record.filter(|record| record.lock.as_ref().is_some_and(is_meant)) else {
                return Ok(());
            };
            let record = record.unlocked(self.state.clients.clock.now_or_local());
            let write = Write::annotate("renewal is unlocked", &binding, &record.annotation());
            match write.apply(&self.state.clients.write).await {
                Ok(_) => {
                    tracing::info!(contract, "renewal unlocked");
                    return Ok(());
                }
                Err(error) if error.is_stale() && round < ROUNDS => round += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Ends the record of a revocation; false if there was none.
    async fn end_revocation(&self, contract: &str, id: Option<&str>) -> Result<bool, WriteError> {
        let api = self.cluster_bindings(contract);
        let mut round = 1;
        loop {
            let binding = api.get(names::CLUSTER_BINDING).await?;
            let Some(revocation) = revocation(&binding).filter(|found| id.is_none_or(|id| id == found.id)) else {
                return Ok(false);
            };
            // The sweep of the revocation may be unfinished, and no old credential may become valid again.
            self.sweep(contract).await?;
            let write = Write::patch("credentials are reinstated", &binding, revocation.end_patch(&binding));
            match write.apply(&self.state.clients.write).await {
                Ok(_) => return Ok(true),
                Err(error) if error.is_stale() && round < ROUNDS => round += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Deletes the anchors whose last token has expired. `now` is the time of the API server, which issued the tokens.
    pub async fn collect(&self, contract: &str, now: Timestamp) -> Result<usize, WriteError> {
        let mut deleted = 0;
        for anchor in self.anchors(contract).await? {
            if anchor::is_spent(&anchor, now) {
                let write = Write::delete("its tokens have expired", &anchor);
                write.apply(&self.state.clients.write).await?;
                deleted += 1;
            }
        }
        Ok(deleted)
    }

    fn contract_uid(&self, contract: &str) -> Result<String, IssueError> {
        let namespace = self.state.contract(contract);
        namespace
            .filter(|namespace| !contract::is_terminating(namespace))
            .and_then(|namespace| namespace.uid())
            .ok_or_else(|| IssueError::ContractNotFound {
                contract: contract.to_owned(),
            })
    }

    async fn anchor(&self, contract: &str, last_revocation: Option<&str>) -> Result<Secret, WriteError> {
        let wanted = anchor::new(
            contract,
            last_revocation,
            self.state.clients.clock.now_or_local(),
            &self.state.settings,
        );
        let existing = self.secrets(contract).get_opt(&wanted.name_any()).await?;
        match existing {
            Some(existing) if meta::is_anchor(&existing.metadata) => Ok(existing),
            Some(existing) => Err(WriteError::foreign(&existing)),
            None => {
                let write = Write::create(
                    "tokens are bound to it",
                    &wanted,
                    &[labels::CONTRACT, labels::COMPONENT],
                );
                write.apply_as(&self.state.clients.write).await
            }
        }
    }

    async fn token(
        &self,
        contract: &str,
        anchor: &Secret,
        audience: Option<&str>,
        lifetime: Duration,
    ) -> Result<Token, IssueError> {
        let request = TokenRequest {
            spec: TokenRequestSpec {
                audiences: audience.map(ToOwned::to_owned).into_iter().collect(),
                bound_object_ref: Some(BoundObjectReference {
                    api_version: Some("v1".to_owned()),
                    kind: Some("Secret".to_owned()),
                    name: anchor.metadata.name.clone(),
                    uid: anchor.metadata.uid.clone(),
                }),
                expiration_seconds: i64::try_from(lifetime.as_secs()).ok(),
            },
            ..TokenRequest::default()
        };
        let accounts: Api<ServiceAccount> = Api::namespaced(self.state.clients.write.clone(), contract);
        let granted = accounts
            .create_token_request(names::KUBE_BINDER, &PostParams::default(), &request)
            .await
            .map_err(failed(contract))?;
        let granted = granted.status.map(|status| status.token).unwrap_or_default();
        Token::read(granted).ok_or(IssueError::TokenUnreadable)
    }

    /// Records on the anchor when its last token expires.
    async fn extend(&self, anchor: &Secret, until: Timestamp) -> Result<(), WriteError> {
        if anchor::expires_by(anchor).is_some_and(|known| known >= until) {
            return Ok(());
        }
        let annotation = json!({ annotations::TOKENS_EXPIRE_BY: until.to_string() });
        let write = Write::annotate("a token lives longer", anchor, &annotation).of_any_version();
        write.apply(&self.state.clients.write).await?;
        Ok(())
    }

    async fn anchors(&self, contract: &str) -> Result<Vec<Secret>, WriteError> {
        let params = ListParams::default().labels(&format!("{}={}", labels::COMPONENT, labels::TOKEN_ANCHOR));
        Ok(self.secrets(contract).list(&params).await?.items)
    }

    fn secrets(&self, contract: &str) -> Api<Secret> {
        Api::namespaced(self.state.clients.write.clone(), contract)
    }

    fn requests(&self) -> Api<BindableResourcesRequest> {
        Api::all(self.state.clients.write.clone())
    }

    async fn cluster_binding(&self, contract: &str) -> Result<Option<ClusterBinding>, IssueError> {
        let found = self.cluster_bindings(contract).get_opt(names::CLUSTER_BINDING).await;
        found.map_err(failed(contract))
    }

    fn cluster_bindings(&self, contract: &str) -> Api<ClusterBinding> {
        Api::namespaced(self.state.clients.write.clone(), contract)
    }
}

fn refuse_revoked(contract: &str, binding: Option<&ClusterBinding>) -> Result<(), IssueError> {
    match binding.and_then(revocation) {
        None => Ok(()),
        Some(_) => Err(IssueError::Revoked {
            contract: contract.to_owned(),
        }),
    }
}

fn refuse_locked(contract: &str, binding: Option<&ClusterBinding>) -> Result<(), IssueError> {
    match binding.and_then(renewal::lock) {
        None => Ok(()),
        Some(lock) => Err(IssueError::Locked {
            contract: contract.to_owned(),
            since: lock.time,
        }),
    }
}

/// Adds the name of the contract to an error of the API server.
fn failed<E: Into<WriteError>>(contract: &str) -> impl Fn(E) -> IssueError {
    move |error| IssueError::Write {
        contract: contract.to_owned(),
        source: error.into(),
    }
}

/// The time in whole seconds, as Kubernetes writes times.
fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

// === impl IssueError ===

impl IssueError {
    /// The reason in the status of a gRPC call.
    pub fn error_reason(&self) -> ErrorReason {
        match self {
            Self::ContractNotFound { .. } => ErrorReason::ContractNotFound,
            Self::Revoked { .. } => ErrorReason::RenewalStopped,
            Self::Locked { .. } | Self::TooOld { .. } => ErrorReason::RenewalLocked,
            Self::Ended { .. } => ErrorReason::CredentialRevoked,
            Self::Overtaken { .. } | Self::OtherHolder { .. } => ErrorReason::ObjectChanged,
            Self::Write {
                source: WriteError::Api(error),
                ..
            } if errors::is_transient(error) => ErrorReason::ApiServerUnreachable,
            Self::TokenUnreadable | Self::Kubeconfig { .. } | Self::Write { .. } => ErrorReason::Internal,
        }
    }
}
