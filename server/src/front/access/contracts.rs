//! Access to contracts: which ones a caller may act on.

use std::sync::Arc;

use bindery_api::names::{self, ContractName};
use bindery_proto::v1alpha2::ErrorReason;
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt as _;

use crate::{
    contract, credentials,
    front::{
        Failure, Outcome,
        auth::{Caller, Kind},
    },
    state::State,
};

/// Finds the contracts that a caller may act on.
#[derive(Clone, Debug)]
pub(crate) struct ContractAccess {
    state: State,
}

impl ContractAccess {
    /// Looks contracts up in the caches of `state`.
    pub(crate) fn new(state: State) -> Self {
        Self { state }
    }

    /// The contract that a call names, or the only contract of the caller if it names none.
    pub(crate) fn one(&self, caller: &Caller, named: Option<&ContractName>) -> Outcome<Arc<Namespace>> {
        match (&caller.kind, named) {
            (Kind::Contract { namespace }, named) => self.own(namespace, named.map(|named| &**named)),
            (Kind::Principal, None) => only(self.owned(caller)),
            (Kind::Principal, Some(named)) => self.owned_by_name(caller, named),
        }
    }

    /// The contract that a call names, or all contracts of the caller if it names none.
    pub(crate) fn all(&self, caller: &Caller, named: Option<&ContractName>) -> Outcome<Vec<Arc<Namespace>>> {
        match (&caller.kind, named) {
            (Kind::Principal, None) => Ok(self.owned(caller)),
            _ => Ok(vec![self.one(caller, named)?]),
        }
    }

    /// Refuses a caller who may not act on the contract any more, or whose contract was deleted and made anew.
    pub(crate) fn still(&self, caller: &Caller, contract: &Namespace) -> Outcome<()> {
        let name = contract.name_any();
        let now = match &caller.kind {
            Kind::Contract { namespace } => self.own(namespace, Some(&name)),
            Kind::Principal => self.owned_by_name(caller, &name),
        }?;
        if now.metadata.uid == contract.metadata.uid {
            return Ok(());
        }
        Err(not_found(&name))
    }

    fn owned_by_name(&self, caller: &Caller, name: &str) -> Outcome<Arc<Namespace>> {
        let principal = caller.principal();
        let contract = self.state.contract(name);
        contract
            .filter(|contract| contract::is_owned_by(contract, &principal))
            .ok_or_else(|| denied(name))
    }

    fn own(&self, own: &str, named: Option<&str>) -> Outcome<Arc<Namespace>> {
        if let Some(named) = named.filter(|named| *named != own) {
            return Err(denied(named));
        }
        let binding = self.state.caches.cluster_bindings.get(own, names::CLUSTER_BINDING);
        if binding.is_some_and(|binding| credentials::revocation(&binding).is_some()) {
            let message = format!("the credentials of contract {own} are revoked; its owner can bind again");
            return Err(Failure::new(ErrorReason::CredentialRevoked, message).with("contract", own));
        }
        self.state.contract(own).ok_or_else(|| not_found(own))
    }

    fn owned(&self, caller: &Caller) -> Vec<Arc<Namespace>> {
        let principal = caller.principal();
        self.state
            .caches
            .namespaces
            .list(|namespace| contract::is_contract(namespace) && contract::is_owned_by(namespace, &principal))
    }
}

fn only(mut owned: Vec<Arc<Namespace>>) -> Outcome<Arc<Namespace>> {
    match (owned.pop(), owned.len()) {
        (Some(contract), 0) => Ok(contract),
        (Some(_), others) => {
            let message = format!("you own {} contracts; name one of them", others + 1);
            Err(Failure::new(ErrorReason::ContractAmbiguous, message))
        }
        (None, _) => Err(Failure::new(
            ErrorReason::ContractNotFound,
            "you own no contract; bind a template first",
        )),
    }
}

fn denied(named: &str) -> Failure {
    let message = format!("contract {named} belongs to somebody else, or it does not exist");
    Failure::new(ErrorReason::ContractDenied, message).with("contract", named)
}

fn not_found(name: &str) -> Failure {
    Failure::new(ErrorReason::ContractNotFound, format!("contract {name} does not exist")).with("contract", name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_of_several_must_name_one() {
        let reason = |count: usize| {
            only(vec![Arc::default(); count])
                .map(|_| ())
                .map_err(|failure| failure.reason())
        };
        assert_eq!(reason(0), Err(ErrorReason::ContractNotFound));
        assert_eq!(reason(1), Ok(()));
        assert_eq!(reason(2), Err(ErrorReason::ContractAmbiguous));
    }
}
