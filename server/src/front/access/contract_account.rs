//! Checks of the ServiceAccount of a contract by the API server, where the caches are not recent enough.

use std::fmt;

use bindery_proto::v1alpha2::ErrorReason;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::Api;

use crate::{
    contract,
    front::{
        Failure, Outcome,
        auth::{BoundTo, Presented},
    },
    limits::{LimitName, Limits},
    state::State,
};

/// What the interceptor asks the server about itself and its contracts.
pub(crate) trait Backend: fmt::Debug + Send + Sync + 'static {
    /// Whether each cache has seen a complete list.
    fn is_ready(&self) -> bool;

    /// Whether a namespace of this name can be a contract's.
    fn may_be_contract(&self, namespace: &str) -> bool;

    /// Refuses the ServiceAccount of a contract that does not exist, and, if a token is given, a token that is revoked.
    fn confirm<'a>(&'a self, contract: &'a str, token: Option<&'a Presented>) -> BoxFuture<'a, Outcome<()>>;

    /// The limits of the account of a contract, or of a principal.
    fn limits(&self, _contract: Option<&str>) -> Limits {
        Limits::default()
    }

    /// Counts a refusal by a limit.
    fn count_refusal(&self, _name: LimitName) {}
}

impl Backend for State {
    fn is_ready(&self) -> bool {
        self.is_synced()
    }

    fn may_be_contract(&self, namespace: &str) -> bool {
        // The account of a contract that the cache has not seen yet must not count as a principal.
        namespace.starts_with(&self.settings.namespace_prefix) || self.contract(namespace).is_some()
    }

    fn limits(&self, contract: Option<&str>) -> Limits {
        let limits = self.settings.limits;
        contract.map_or(limits, |contract| limits.of(&self.caches, contract))
    }

    fn count_refusal(&self, name: LimitName) {
        self.refusals.count(name);
    }

    fn confirm<'a>(&'a self, contract: &'a str, token: Option<&'a Presented>) -> BoxFuture<'a, Outcome<()>> {
        Box::pin(async move {
            if self.contract(contract).is_none() {
                return Err(unknown(contract, self.find(contract).await?.as_ref()));
            }
            let Some(token) = token else {
                return Ok(());
            };
            let bound = token.claims().secret();
            let anchor = match bound {
                Some(bound) => self.anchor(contract, &bound.name).await?,
                None => None,
            };
            if is_bound(bound, anchor.as_ref()) {
                return Ok(());
            }
            let message = format!("the credential of contract {contract} is revoked; its owner can bind again");
            Err(Failure::new(ErrorReason::CredentialRevoked, message).with("contract", contract))
        })
    }
}

impl State {
    async fn find(&self, name: &str) -> Outcome<Option<Namespace>> {
        let namespaces: Api<Namespace> = Api::all(self.clients.write.clone());
        let found = namespaces.get_opt(name).await;
        found.map_err(|error| Failure::of_kube("find the contract", &error))
    }

    async fn anchor(&self, contract: &str, name: &str) -> Outcome<Option<Secret>> {
        let secrets: Api<Secret> = Api::namespaced(self.clients.write.clone(), contract);
        let found = secrets.get_opt(name).await;
        found.map_err(|error| Failure::of_kube("check whether the credential is revoked", &error))
    }
}

/// The failure for a contract that the cache lacks: it does not exist, or is too new for the cache.
fn unknown(name: &str, found: Option<&Namespace>) -> Failure {
    let failure = if found.is_some_and(contract::is_contract) {
        let text = format!("this replica has not seen contract {name} yet; try again");
        Failure::new(ErrorReason::CacheNotReady, text)
    } else {
        Failure::new(ErrorReason::ContractNotFound, format!("contract {name} does not exist"))
    };
    failure.with("contract", name)
}

/// Whether the anchor Secret that a token is bound to still exists. A token without one was not issued by this server, and could
/// not be revoked.
fn is_bound(bound: Option<&BoundTo>, anchor: Option<&Secret>) -> bool {
    bound.zip(anchor).is_some_and(|(bound, anchor)| {
        anchor.metadata.uid.as_ref() == Some(&bound.uid) && anchor.metadata.deletion_timestamp.is_none()
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use bindery_api::labels;
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    #[track_caller]
    fn check(bound: Option<&str>, anchor: Option<(&str, bool)>, expect: bool) {
        let bound = bound.map(|uid| BoundTo {
            name: "anchor".to_owned(),
            uid: uid.to_owned(),
        });
        let anchor = anchor.map(|(uid, terminating)| {
            let mut secret = Secret::default();
            secret.metadata.uid = Some(uid.to_owned());
            secret.metadata.deletion_timestamp = terminating.then_some(Time(Timestamp::UNIX_EPOCH));
            secret
        });
        assert_eq!(is_bound(bound.as_ref(), anchor.as_ref()), expect);
    }

    #[test]
    fn a_token_is_valid_while_its_anchor_exists() {
        check(Some("1"), Some(("1", false)), true);
        check(Some("1"), Some(("1", true)), false);
        check(Some("1"), Some(("2", false)), false);
        check(Some("1"), None, false);
        check(None, None, false);
    }

    #[test]
    fn a_contract_that_is_too_new_for_the_cache_is_told_from_a_missing_one() {
        let mut namespace = Namespace::default();
        namespace.metadata.name = Some("kube-bind-a".to_owned());
        let reason = |found: Option<&Namespace>| unknown("kube-bind-a", found).reason();
        assert_eq!(reason(None), ErrorReason::ContractNotFound);
        assert_eq!(reason(Some(&namespace)), ErrorReason::ContractNotFound);
        let label = (labels::CONTRACT.to_owned(), "kube-bind-a".to_owned());
        namespace.metadata.labels = Some(BTreeMap::from([label]));
        assert_eq!(reason(Some(&namespace)), ErrorReason::CacheNotReady);
    }
}
