//! CredentialService: renewing and revoking the credentials of a contract.

use std::sync::Arc;

use bindery_api::names::ContractName;
use bindery_proto::v1alpha2::{
    RenewKubeconfigRequest, RenewKubeconfigResponse, RevokeCredentialsRequest, RevokeCredentialsResponse,
    credential_service_server::CredentialService,
};
use kube::ResourceExt as _;
use prost_types::Timestamp;
use tonic::{Request, Response, Status};

use crate::credentials::{
    IssueError, Renewal,
    renewal::{IssuedToken, TokenDigest},
};
use crate::front::{
    Failure, Front, Outcome,
    transport::interceptor::Call,
    wire::{
        convert::{meta, response},
        validate::{RenewKubeconfig, RevokeCredentials},
    },
};

#[derive(Debug)]
pub(crate) struct Service(pub(crate) Arc<Front>);

#[tonic::async_trait]
impl CredentialService for Service {
    async fn renew_kubeconfig(
        &self,
        request: Request<RenewKubeconfigRequest>,
    ) -> Result<Response<RenewKubeconfigResponse>, Status> {
        let (call, message) = Call::read(request)?;
        Ok(Response::new(self.0.renew(&call, message).await?))
    }

    async fn revoke_credentials(
        &self,
        request: Request<RevokeCredentialsRequest>,
    ) -> Result<Response<RevokeCredentialsResponse>, Status> {
        let (call, message) = Call::read(request)?;
        Ok(Response::new(self.0.revoke(&call, message).await?))
    }
}

impl Front {
    async fn renew(&self, call: &Call, message: RenewKubeconfig) -> Outcome<RenewKubeconfigResponse> {
        call.note.add(|noted| noted.contract = named(message.contract.as_ref()));
        let contract = self
            .contracts
            .one(call.caller()?, message.contract.as_ref())?
            .name_any();
        call.note.add(|noted| noted.contract.clone_from(&contract));
        let minted = match used_token(call)? {
            Some(token) => {
                let holder = message.holder;
                self.issuer.renew(&contract, &Renewal { token, holder }).await?
            }
            None => self.issuer.mint(&contract).await?,
        };
        Ok(RenewKubeconfigResponse {
            kubeconfig: Some(response::kubeconfig(&minted)),
            contract,
        })
    }

    async fn revoke(&self, call: &Call, message: RevokeCredentials) -> Outcome<RevokeCredentialsResponse> {
        call.note.add(|noted| noted.contract = message.contract.to_string());
        let contract = self.contracts.one(call.caller()?, Some(&message.contract))?.name_any();
        let (revoked_count, revocation_time) = self.revoke_all(&contract, &message.reason).await?;
        Ok(RevokeCredentialsResponse {
            revoked_count,
            revocation_time,
        })
    }

    /// Revokes all credentials of a contract. Returns the number of deleted anchors, and when that was.
    pub(super) async fn revoke_all(&self, contract: &str, reason: &str) -> Outcome<(i32, Option<Timestamp>)> {
        let reason = Some(reason).filter(|reason| !reason.is_empty());
        let revoked = self.issuer.revoke(contract, reason).await?;
        let count = i32::try_from(revoked.anchors).unwrap_or(i32::MAX);
        Ok((count, Some(meta::timestamp(revoked.time))))
    }
}

/// The renewal token that a call of a contract's ServiceAccount is made with; none for a principal.
fn used_token(call: &Call) -> Outcome<Option<IssuedToken>> {
    let is_konnector = call.caller()?.contract().is_some();
    let token = call.token().filter(|_| is_konnector);
    Ok(token.map(|token| IssuedToken {
        digest: TokenDigest::new(token.digest()),
        issued: token.claims().issued_at().unwrap_or_default(),
    }))
}

/// The contract that a call names, which the caller may have no right on; empty if it names none.
pub(super) fn named(contract: Option<&ContractName>) -> String {
    contract.map(ToString::to_string).unwrap_or_default()
}

impl From<IssueError> for Failure {
    fn from(error: IssueError) -> Self {
        match &error {
            IssueError::Write { contract, source } => {
                Self::of_write("issue credentials", source).with("contract", contract)
            }
            IssueError::ContractNotFound { contract }
            | IssueError::Revoked { contract }
            | IssueError::Overtaken { contract }
            | IssueError::Locked { contract, .. }
            | IssueError::Ended { contract }
            | IssueError::OtherHolder { contract }
            | IssueError::TooOld { contract, .. } => {
                Self::new(error.error_reason(), error.to_string()).with("contract", contract)
            }
            IssueError::TokenUnreadable | IssueError::Kubeconfig { .. } => Self::internal(&error),
        }
    }
}
