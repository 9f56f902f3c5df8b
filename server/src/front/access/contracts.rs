//! Access to contracts: which ones a caller may act on, as an owner, as a member of an owner group, or by the provider's RBAC.

use std::sync::Arc;

use bindery_api::{
    names::{self, ContractName},
    v1alpha2::GROUP,
};
use bindery_proto::v1alpha2::ErrorReason;
use k8s_openapi::api::{authorization::v1::ResourceAttributes, core::v1::Namespace};
use kube::ResourceExt as _;

use crate::{
    contract, credentials,
    front::{
        Failure, Outcome,
        access::Reviews,
        auth::{Caller, Kind},
    },
    state::State,
};

/// Finds the contracts that a caller may act on.
#[derive(Clone, Debug)]
pub(crate) struct ContractAccess {
    state: State,
    reviews: Reviews,
}

/// A verb of RBAC that lets a caller act on contracts which it does not own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContractVerb {
    /// `get` on its ClusterBinding: see one contract.
    Get,
    /// `list` on ClusterBindings: see all contracts.
    List,
    /// `watch` on ClusterBindings: follow all contracts.
    Watch,
    /// `delete` on its ClusterBinding: revoke and unbind one contract.
    Delete,
    /// `patch` on its Namespace, which holds the owners: share one contract with any group.
    Share,
}

impl ContractAccess {
    /// Looks contracts up in the caches of `state`, and rights by `reviews`.
    pub(crate) fn new(state: State, reviews: Reviews) -> Self {
        Self { state, reviews }
    }

    /// The contract of that name, for a principal that owns it or that RBAC lets act on it. To others it is denied in the same words
    /// whether it exists or not.
    pub(crate) async fn one_by(
        &self,
        caller: &Caller,
        named: &ContractName,
        verb: ContractVerb,
    ) -> Outcome<Arc<Namespace>> {
        let denied = match self.owned_by_name(caller, named) {
            Ok(owned) => return Ok(owned),
            Err(denied) => denied,
        };
        if !self.may(caller, verb, Some(named)).await? {
            return Err(denied);
        }
        self.state.contract(named).ok_or_else(|| not_found(named))
    }

    /// Whether RBAC lets the caller act on the contract of that name, or on all contracts.
    pub(crate) async fn may(&self, caller: &Caller, verb: ContractVerb, named: Option<&str>) -> Outcome<bool> {
        let attributes = verb.attributes(named);
        let grant = self
            .reviews
            .grant(&caller.identity, attributes, "review the right on contracts")
            .await?;
        Ok(grant.is_some())
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
            .filter(|contract| contract::may_use(contract, &principal, &caller.identity.groups))
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

    /// All contracts that the caller or one of its groups owns.
    pub(crate) fn owned(&self, caller: &Caller) -> Vec<Arc<Namespace>> {
        let principal = caller.principal();
        let groups = &caller.identity.groups;
        self.state
            .caches
            .namespaces
            .list(|namespace| contract::is_contract(namespace) && contract::may_use(namespace, &principal, groups))
    }
}

impl ContractVerb {
    /// The question to RBAC, about the contract of that name or about all contracts.
    fn attributes(self, named: Option<&str>) -> ResourceAttributes {
        let verb = match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Delete => "delete",
            Self::Share => "patch",
        };
        let verb = Some(verb.to_owned());
        let namespace = named.map(ToOwned::to_owned);
        if self == Self::Share {
            return ResourceAttributes {
                verb,
                version: Some("v1".to_owned()),
                resource: Some("namespaces".to_owned()),
                name: namespace.clone(),
                namespace,
                ..ResourceAttributes::default()
            };
        }
        ResourceAttributes {
            verb,
            group: Some(GROUP.to_owned()),
            resource: Some("clusterbindings".to_owned()),
            name: named.map(|_| names::CLUSTER_BINDING.to_owned()),
            namespace,
            ..ResourceAttributes::default()
        }
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
    fn rbac_is_asked_about_one_contract_or_about_all() {
        let asked = |verb: ContractVerb, named| {
            let asked = verb.attributes(named);
            [asked.verb, asked.resource, asked.namespace, asked.name].map(Option::unwrap_or_default)
        };
        for (verb, named, expect) in [
            (ContractVerb::Get, Some("a"), ["get", "clusterbindings", "a", "cluster"]),
            (
                ContractVerb::Delete,
                Some("a"),
                ["delete", "clusterbindings", "a", "cluster"],
            ),
            (ContractVerb::List, None, ["list", "clusterbindings", "", ""]),
            (ContractVerb::Watch, None, ["watch", "clusterbindings", "", ""]),
            (ContractVerb::Share, Some("a"), ["patch", "namespaces", "a", "a"]),
        ] {
            assert_eq!(asked(verb, named), expect);
        }
    }

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
