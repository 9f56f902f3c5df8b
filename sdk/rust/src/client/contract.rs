//! Methods of ContractService: who has bound what, sharing it with groups, and ending it.

use bindery_proto::v1alpha2::{
    Contract, GetContractRequest, ListContractsRequest, RevokeContractRequest, RevokeContractResponse,
    ShareContractRequest, UnbindContractRequest, UnboundExport,
};

use super::Client;
use super::binding::server_wait;
use crate::error::Error;
use crate::method::all as methods;
use crate::page::ListStream;

impl Client {
    /// Lists all contracts that the caller may list, from `page_token` on.
    pub fn list_contracts(&self, request: ListContractsRequest) -> ListStream<Contract> {
        self.list(methods::LIST_CONTRACTS, request, |page| {
            (page.contracts, page.next_page_token)
        })
    }

    /// Returns one contract, by the name of its namespace.
    pub async fn get_contract(&self, contract: &str) -> Result<Contract, Error> {
        let request = GetContractRequest {
            contract: contract.to_owned(),
        };
        let response = self.call(methods::GET_CONTRACT, request).await?;
        response.contract.ok_or_else(|| self.missing("contract"))
    }

    /// Changes the owner groups of a contract, and returns the contract as it is then.
    pub async fn share_contract(&self, request: ShareContractRequest) -> Result<Contract, Error> {
        let response = self.call(methods::SHARE_CONTRACT, request).await?;
        response.contract.ok_or_else(|| self.missing("contract"))
    }

    /// Revokes all credentials of a contract, and stops their renewal until an owner binds again.
    pub async fn revoke_contract(&self, request: RevokeContractRequest) -> Result<RevokeContractResponse, Error> {
        self.call(methods::REVOKE_CONTRACT, request).await
    }

    /// Unbinds exports of a contract, and returns those that are still there. The call may take as long as `wait` says.
    pub async fn unbind_contract(&self, request: UnbindContractRequest) -> Result<Vec<UnboundExport>, Error> {
        let wait = server_wait(request.wait.as_ref());
        let response = self.call_waiting(methods::UNBIND_CONTRACT, request, wait).await?;
        Ok(response.exports)
    }
}
