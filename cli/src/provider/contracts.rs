//! Contracts as the backend shows them to owners, and to those whom the provider's RBAC lets see all.

use bindery_proto::v1alpha2::{
    Contract, ListContractsRequest, RevokeContractRequest, RevokeCredentialsResponse, ShareContractRequest,
};

use bindery_sdk::Code;

use super::{Provider, ProviderError};

impl Provider<'_> {
    /// Lists the contracts that the caller may see.
    pub(crate) async fn contracts(&self, request: ListContractsRequest) -> Result<Vec<Contract>, ProviderError> {
        let answer = self.client.list_contracts(request).await;
        answer.map_err(|source| self.failed("list contracts", None, source))
    }

    /// Shows one contract.
    pub(crate) async fn contract(&self, name: &str) -> Result<Contract, ProviderError> {
        let answer = self.client.get_contract(name).await;
        answer.map_err(|source| self.failed(format!("show contract {name}"), None, source))
    }

    /// Changes the owner groups of a contract.
    pub(crate) async fn share(&self, request: ShareContractRequest) -> Result<Contract, ProviderError> {
        let doing = format!("share contract {}", request.contract);
        let answer = self.client.share_contract(request).await;
        answer.map_err(|source| self.failed(doing, None, source))
    }

    /// Ends all credentials of a contract, as one of its owners or as an admin. A backend that does not serve contracts is asked as
    /// an owner.
    pub(crate) async fn revoke(
        &self,
        contract: &str,
        reason: &str,
    ) -> Result<RevokeCredentialsResponse, ProviderError> {
        let request = RevokeContractRequest {
            contract: contract.to_owned(),
            uid: String::new(),
            reason: reason.to_owned(),
        };
        let answer = match self.client.revoke_contract(request).await {
            Ok(answer) => Ok(RevokeCredentialsResponse {
                revoked_count: answer.revoked_count,
                revocation_time: answer.revocation_time,
            }),
            Err(error) if error.code() == Some(Code::Unimplemented) => {
                self.client.revoke_credentials(contract, reason).await
            }
            Err(error) => Err(error),
        };
        answer.map_err(|source| self.failed(format!("revoke the credentials of contract {contract}"), None, source))
    }
}
