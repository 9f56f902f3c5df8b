//! Credentials of contracts: tokens of ServiceAccount `kube-binder`, each bound to an anchor, whose deletion revokes it.
//!
//! An anchor is an empty Secret of the contract namespace, which all tokens of one day share, so that minting a token stores
//! nothing. Any replica can mint. Revoking writes its record first, and minting reads the record last: so a token is either
//! minted before the record, and its anchor is found and deleted, or it is not handed out. The names of anchors that are made
//! after a revocation has ended contain its id, so that no revoked anchor is used again.

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
    Api, ResourceExt as _,
    api::{ListParams, PostParams},
};
use secrecy::SecretString;
use serde_json::json;

use crate::{
    contract, rbac,
    state::State,
    writes::{Write, WriteError},
};

mod anchor;
mod kubeconfig;
mod token;

pub use bindery_api::revocation::{Revocation, revocation};
use token::Token;

/// Number of attempts to write a ClusterBinding, to which the heartbeats of the consumer are written too.
const ROUNDS: usize = 8;

/// Mints, revokes and reinstates the credentials of contracts.
#[derive(Clone, Debug)]
pub struct Issuer {
    state: State,
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

// === impl Issuer ===

impl Issuer {
    /// An issuer for all contracts of the provider.
    pub fn new(state: State) -> Self {
        Self { state }
    }

    /// Mints a credential. The caller of this function has authorised the call.
    pub async fn mint(&self, contract: &str) -> Result<Minted, IssueError> {
        let contract_uid = self.contract_uid(contract)?;
        let bindings = self.cluster_bindings(contract);
        let before = bindings.get_opt(names::CLUSTER_BINDING).await;
        let before = before.map_err(failed(contract))?;
        refuse_revoked(contract, before.as_ref())?;
        let last_revocation = before.as_ref().and_then(last_ended);
        let settings = &self.state.settings;
        let anchor = self.anchor(contract, last_revocation).await.map_err(failed(contract))?;
        let api_server = self.token(contract, &anchor, None, settings.token_lifetime);
        let renewal = self.token(
            contract,
            &anchor,
            Some(&settings.grpc.address),
            settings.renewal_lifetime,
        );
        let (api_server, renewal) = tokio::try_join!(api_server, renewal)?;
        let last = api_server.expire_time.max(renewal.expire_time);
        self.extend(&anchor, last).await.map_err(failed(contract))?;
        let after = bindings.get_opt(names::CLUSTER_BINDING).await;
        let after = after.map_err(failed(contract))?;
        refuse_revoked(contract, after.as_ref())?;
        if after.as_ref().and_then(last_ended) != last_revocation {
            return Err(IssueError::Overtaken {
                contract: contract.to_owned(),
            });
        }

        let ca = self.state.grpc_ca.current();
        let backend = Backend {
            address: settings.grpc.address.clone(),
            ca_data: ca.map(|pem| kubeconfig::base64(pem.as_bytes())),
            token: renewal.secret().to_owned(),
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

    /// Revokes all credentials of a contract. No new ones are minted until [`Issuer::reinstate`].
    pub async fn revoke(&self, contract: &str, reason: Option<&str>) -> Result<Revoked, IssueError> {
        self.contract_uid(contract)?;
        let api = self.cluster_bindings(contract);
        let binding = api.get(names::CLUSTER_BINDING).await.map_err(failed(contract))?;
        let time = if let Some(before) = revocation(&binding) {
            before.time
        } else {
            let requests = self.requests().list(&ListParams::default()).await;
            let requests = requests.map_err(failed(contract))?.items;
            let namespace = self.state.contract(contract);
            let identity = namespace.as_deref().and_then(contract::identity);
            let revocation = Revocation::new(
                format!("{:016x}", rand::random::<u64>()),
                whole_seconds(Timestamp::now()),
                reason,
                identity,
                &requests,
                &self.state.settings.namespace,
            );
            let write = Write::patch("credentials are revoked", &binding, revocation.patch(&binding)).of_any_version();
            write.apply(&self.state.clients.write).await.map_err(failed(contract))?;
            revocation.time
        };
        let anchors = self.sweep(contract).await.map_err(failed(contract))?;
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

    /// Ends the revocation with this id, or the current one, when an owner binds again. Credentials from before stay revoked.
    pub async fn reinstate(&self, contract: &str, id: Option<&str>) -> Result<(), IssueError> {
        self.contract_uid(contract)?;
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
            Self::Overtaken { .. } => ErrorReason::ObjectChanged,
            Self::Write {
                source: WriteError::Api(error),
                ..
            } if errors::is_transient(error) => ErrorReason::ApiServerUnreachable,
            Self::TokenUnreadable | Self::Kubeconfig { .. } | Self::Write { .. } => ErrorReason::Internal,
        }
    }
}
