//! ContractService: who has bound what, sharing it with groups, and ending it.

use std::sync::Arc;

use bindery_api::names::{CLUSTER_BINDING, KUBE_BINDER, Uid};
use bindery_proto::v1alpha2::{
    Contract, ErrorReason, GetContractRequest, GetContractResponse, ListContractsRequest, ListContractsResponse,
    RevokeContractRequest, RevokeContractResponse, ShareContractRequest, ShareContractResponse, TenantLimit,
    UnbindContractRequest, UnbindContractResponse, WatchContractsRequest, WatchContractsResponse,
    contract_service_server::ContractService,
};
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt as _;
use tonic::{Request, Response, Status};

use crate::front::{
    Failure, Front, Outcome,
    access::ContractVerb,
    auth::Caller,
    streams::{MessageStream, require_followed},
    transport::interceptor::Call,
    wire::{
        convert::contract,
        page::Page,
        validate::{GetContract, ListContracts, RevokeContract},
    },
};
use crate::{
    contract::{identity, is_contract},
    limits::LimitName,
};

mod share;
mod unbind;
mod watch;

#[derive(Debug)]
pub(crate) struct Service(pub(crate) Arc<Front>);

#[tonic::async_trait]
impl ContractService for Service {
    type WatchContractsStream = MessageStream<WatchContractsResponse>;

    async fn list_contracts(
        &self,
        request: Request<ListContractsRequest>,
    ) -> Result<Response<ListContractsResponse>, Status> {
        let (call, message) = Call::read(request)?;
        Ok(Response::new(self.0.list_contracts(call.caller()?, message).await?))
    }

    async fn get_contract(
        &self,
        request: Request<GetContractRequest>,
    ) -> Result<Response<GetContractResponse>, Status> {
        let (call, message) = Call::read(request)?;
        Ok(Response::new(self.0.get_contract(call.caller()?, message).await?))
    }

    async fn watch_contracts(
        &self,
        request: Request<WatchContractsRequest>,
    ) -> Result<Response<Self::WatchContractsStream>, Status> {
        let (call, message) = Call::read(request)?;
        Ok(Response::new(self.0.watch_contracts(&call, message).await?))
    }

    async fn share_contract(
        &self,
        request: Request<ShareContractRequest>,
    ) -> Result<Response<ShareContractResponse>, Status> {
        let (call, message) = Call::read(request)?;
        Ok(Response::new(self.0.share_contract(&call, message).await?))
    }

    async fn revoke_contract(
        &self,
        request: Request<RevokeContractRequest>,
    ) -> Result<Response<RevokeContractResponse>, Status> {
        let (call, message) = Call::read(request)?;
        Ok(Response::new(self.0.revoke_contract(&call, message).await?))
    }

    async fn unbind_contract(
        &self,
        request: Request<UnbindContractRequest>,
    ) -> Result<Response<UnbindContractResponse>, Status> {
        let (call, message) = Call::read(request)?;
        Ok(Response::new(self.0.unbind_contract(&call, message).await?))
    }
}

impl Front {
    async fn list_contracts(&self, caller: &Caller, message: ListContracts) -> Outcome<ListContractsResponse> {
        let owned = message.owned.to_string();
        let page = Page::read(&message.page, &["contracts", &owned, &message.identity])?;
        self.require_followed_contracts()?;
        let contracts = if !message.owned && self.contracts.may(caller, ContractVerb::List, None).await? {
            self.state.caches.namespaces.list(is_contract)
        } else {
            self.contracts.owned(caller)
        };
        let is_wanted =
            |contract: &Namespace| message.identity.is_empty() || identity(contract) == Some(message.identity.as_str());
        let mut named: Vec<_> = contracts
            .into_iter()
            .filter(|contract| is_wanted(contract))
            .map(|contract| (contract.name_any(), contract))
            .collect();
        named.sort_by(|(one, _), (other, _)| one.cmp(other));
        let filled = page
            .fill(named, |found| async move { Ok(Some(self.show_contract(&found))) })
            .await?;
        Ok(ListContractsResponse {
            contracts: filled.entries,
            next_page_token: filled.next_page_token,
            caller_limits: self.caller_limits(caller),
        })
    }

    async fn get_contract(&self, caller: &Caller, message: GetContract) -> Outcome<GetContractResponse> {
        let found = self
            .contracts
            .one_by(caller, &message.contract, ContractVerb::Get)
            .await?;
        Ok(GetContractResponse {
            contract: Some(self.show_contract(&found)),
        })
    }

    async fn revoke_contract(&self, call: &Call, message: RevokeContract) -> Outcome<RevokeContractResponse> {
        call.note.add(|noted| noted.contract = message.contract.to_string());
        let found = self
            .contracts
            .one_by(call.caller()?, &message.contract, ContractVerb::Delete)
            .await?;
        require_uid(&found, message.uid.as_ref())?;
        let (revoked_count, revocation_time) = self.revoke_all(&message.contract, &message.reason).await?;
        Ok(RevokeContractResponse {
            revoked_count,
            revocation_time,
        })
    }

    /// The contract as callers see it.
    fn show_contract(&self, namespace: &Namespace) -> Contract {
        let name = namespace.name_any();
        let caches = &self.state.caches;
        let binding = caches.cluster_bindings.get(&name, CLUSTER_BINDING);
        let limits = self.state.settings.limits.of_contract(namespace);
        let used = |limit| match limit {
            LimitName::Streams => Some(self.streams.open_of(&account_of(&name))),
            _ => self.state.counts.of_contract(caches, &name, limit),
        };
        let limits = contract::limits(&limits, &LimitName::OF_CONTRACT, used);
        contract::contract(namespace, binding.as_deref(), &caches.exports.list_in(&name), limits)
    }

    /// The limits of a caller, which is a principal.
    fn caller_limits(&self, caller: &Caller) -> Vec<TenantLimit> {
        let used = |limit| match limit {
            LimitName::Streams => Some(self.streams.open_of(caller.username())),
            _ => self.state.counts.of_principal(caller.username(), limit),
        };
        contract::limits(&self.state.settings.limits, &LimitName::OF_PRINCIPAL, used)
    }

    /// Refuses a call that needs all contracts while this replica cannot follow their changes.
    fn require_followed_contracts(&self) -> Outcome<()> {
        let caches = &self.state.caches;
        require_followed("contracts", &caches.namespaces.health())?;
        require_followed("cluster bindings", &caches.cluster_bindings.health())?;
        require_followed("exports", &caches.exports.health())
    }
}

/// Username of the ServiceAccount of a contract.
fn account_of(contract: &str) -> String {
    format!("system:serviceaccount:{contract}:{KUBE_BINDER}")
}

/// Refuses a call that names a contract by another UID than it has, for the contract was made anew.
fn require_uid(contract: &Namespace, meant: Option<&Uid>) -> Outcome<()> {
    let uid = contract.uid().unwrap_or_default();
    match meant {
        Some(meant) if **meant != *uid => {
            let name = contract.name_any();
            let text = format!("contract {name} has another UID, for it was made anew; read it again");
            Err(Failure::new(ErrorReason::ObjectChanged, text)
                .with("contract", name)
                .with("uid", uid))
        }
        _ => Ok(()),
    }
}
