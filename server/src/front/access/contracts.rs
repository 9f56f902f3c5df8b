//! Which contracts a caller may act on.

use std::sync::Arc;

use bindery_api::names;
use bindery_proto::v1alpha2::ErrorReason;
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt as _;

use crate::{
    contract, credentials,
    front::{
        auth::{Caller, Kind},
        error::{Failure, Outcome},
    },
    state::State,
};

/// Finds the contracts of callers.
#[derive(Clone, Debug)]
pub struct ContractAccess {
    state: State,
}

impl ContractAccess {
    /// Looks into the caches of this state.
    pub fn new(state: State) -> Self {
        Self { state }
    }

    /// The one contract that a call is about: the one it names, else the only one that the caller has.
    pub fn one(&self, caller: &Caller, named: &str) -> Outcome<Arc<Namespace>> {
        match &caller.kind {
            Kind::Contract { namespace } => self.own(namespace, named),
            Kind::Principal if named.is_empty() => only(self.owned(caller)),
            Kind::Principal => {
                let principal = caller.principal();
                let contract = self.state.contract(named);
                contract
                    .filter(|contract| contract::is_owned_by(contract, &principal))
                    .ok_or_else(|| denied(named))
            }
        }
    }

    /// All contracts of a caller, or the one that is named.
    pub fn all(&self, caller: &Caller, named: &str) -> Outcome<Vec<Arc<Namespace>>> {
        if named.is_empty() && caller.kind == Kind::Principal {
            return Ok(self.owned(caller));
        }
        Ok(vec![self.one(caller, named)?])
    }

    /// Whether a caller that was let in may still act on the contract, which must be the same one.
    pub fn still(&self, caller: &Caller, contract: &Namespace) -> Outcome<()> {
        let name = contract.name_any();
        let now = self.one(caller, &name)?;
        if now.metadata.uid == contract.metadata.uid {
            return Ok(());
        }
        Err(not_found(&name))
    }

    fn own(&self, own: &str, named: &str) -> Outcome<Arc<Namespace>> {
        if !named.is_empty() && named != own {
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
            let message = format!("you own {} contracts; name the one that is meant", others + 1);
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
