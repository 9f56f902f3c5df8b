//! Keeps apart what several konnectors of one cluster serve. With `--only-own-bindings` each konnector serves the bindings and bundles whose
//! kubeconfig Secret is in its namespace.
//!
//! Two konnectors must not serve one contract: each would give back the provider namespaces that it does not need itself, with
//! the other's copies in them.

use std::sync::Arc;

use bindery_api::v1alpha2::{APIServiceBinding, APIServiceBindingBundle, ClusterSecretKeyRef};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::access::{ContractAccess, SecretProblem};
use crate::{
    consumer::Consumer,
    contract::{Contract, is_unverified},
    session::connect::ContractConnection,
};

/// Tells what belongs to other konnectors of this cluster.
#[derive(Clone, Debug)]
pub struct OtherKonnectors {
    consumer: Consumer,
    /// Whether bindings and bundles of other namespaces belong to other konnectors.
    only_own: bool,
}

impl OtherKonnectors {
    /// `only_own` leaves bindings and bundles of other namespaces to other konnectors.
    pub fn new(consumer: Consumer, only_own: bool) -> Self {
        Self { consumer, only_own }
    }

    /// Whether this konnector serves the binding.
    pub fn serves_binding(&self, binding: &APIServiceBinding) -> bool {
        self.serves(&binding.spec.kubeconfig_secret_ref)
    }

    /// Whether this konnector serves the bundle.
    pub fn serves_bundle(&self, bundle: &APIServiceBindingBundle) -> bool {
        self.serves(&bundle.spec.kubeconfig_secret_ref)
    }

    fn serves(&self, reference: &ClusterSecretKeyRef) -> bool {
        !self.only_own || is_own(&self.consumer.namespace, reference)
    }

    /// Refuses a contract that another konnector serves. `reference` is the Secret by which the contract was reached.
    pub fn refuse_foreign(
        &self,
        access: ContractAccess<Arc<ContractConnection>>,
        reference: &ClusterSecretKeyRef,
    ) -> ContractAccess<Arc<ContractConnection>> {
        let ContractAccess::Reached(reached) = &access else {
            return access;
        };
        match self.namespace_of(&Reached::of(reached)) {
            None => access,
            Some(namespace) => ContractAccess::Problem(SecretProblem::ServedElsewhere {
                at: Box::new(reference.clone()),
                contract: reached.contract.namespace.to_string(),
                namespace,
            }),
        }
    }

    /// The namespace of another konnector that serves a contract.
    fn namespace_of(&self, reached: &Reached<'_>) -> Option<String> {
        if !self.only_own {
            return None;
        }
        let bindings = self.consumer.bindings.list(|binding| {
            let status = binding.status.as_ref();
            reached.may_be(
                binding.contract_uid(),
                status.and_then(|status| status.provider_namespace.as_deref()),
            )
        });
        let bundles = self.consumer.bundles.list(|bundle| {
            let status = bundle.status.as_ref();
            reached.may_be(
                bundle.contract_uid(),
                status.and_then(|status| status.provider_namespace.as_deref()),
            )
        });
        let bindings = bindings
            .iter()
            .map(|binding| Pinned::new(&binding.metadata, &binding.spec.kubeconfig_secret_ref));
        let bundles = bundles
            .iter()
            .map(|bundle| Pinned::new(&bundle.metadata, &bundle.spec.kubeconfig_secret_ref));
        foreign(&self.consumer.namespace, bindings.chain(bundles))
    }
}

/// A contract that was reached, and the identity that it has for those who may not read its UID.
#[derive(Debug)]
struct Reached<'a> {
    contract: &'a Contract,
    unverified: Contract,
}

impl<'a> Reached<'a> {
    fn of(reached: &'a ContractConnection) -> Self {
        Self {
            contract: &reached.contract,
            unverified: Contract::unverified(&reached.access),
        }
    }

    /// Whether a binding or bundle with this pin may be served by the contract. `namespace` is the contract namespace in its status, which is
    /// all that a UID has in common with a contract whose UID may not be read.
    fn may_be(&self, pinned: Option<&str>, namespace: Option<&str>) -> bool {
        let Some(pinned) = pinned else {
            return false;
        };
        let is_same_name = || namespace == Some(&*self.contract.namespace);
        *pinned == *self.contract.uid
            || *pinned == *self.unverified.uid
            || (is_unverified(&self.contract.uid) && !is_unverified(pinned) && is_same_name())
    }
}

/// A binding or bundle that is pinned to a contract. All konnectors of a cluster order them alike: the oldest comes first.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Pinned<'a> {
    created: Option<Timestamp>,
    uid: Option<&'a str>,
    /// The namespace of its konnector.
    namespace: &'a str,
}

impl<'a> Pinned<'a> {
    fn new(metadata: &'a ObjectMeta, reference: &'a ClusterSecretKeyRef) -> Self {
        Self {
            created: metadata.creation_timestamp.as_ref().map(|time| time.0),
            uid: metadata.uid.as_deref(),
            namespace: &reference.namespace,
        }
    }
}

fn is_own(namespace: &str, reference: &ClusterSecretKeyRef) -> bool {
    reference.namespace == namespace
}

/// The namespace of the konnector that serves a contract, if it is not that of this konnector. Two konnectors that reach one
/// contract at the same time both pin it before either sees the other's pin. Then the one with the oldest binding or bundle
/// keeps the contract, and the other one refuses it.
fn foreign<'a>(namespace: &str, pinned: impl Iterator<Item = Pinned<'a>>) -> Option<String> {
    let keeper = pinned.min()?.namespace;
    (keeper != namespace).then(|| keeper.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::kubeconfigs;

    /// `pinned` is the time of creation in seconds, the UID and the namespace of each.
    #[track_caller]
    fn check(pinned: &[(i64, &str, &str)], expect: &[(&str, Option<&str>)]) {
        for (namespace, foreign_namespace) in expect {
            let pinned = pinned.iter().map(|(created, uid, namespace)| Pinned {
                created: Timestamp::from_second(*created).ok(),
                uid: Some(uid),
                namespace,
            });
            assert_eq!(foreign(namespace, pinned).as_deref(), *foreign_namespace, "{namespace}");
        }
    }

    #[test]
    fn a_contract_belongs_to_the_konnector_of_its_secrets() {
        check(&[], &[("east", None), ("west", None)]);
        check(
            &[(1, "a", "east"), (2, "b", "east")],
            &[("east", None), ("west", Some("east"))],
        );
    }

    #[test]
    fn of_several_konnectors_that_pinned_a_contract_the_one_with_the_oldest_binding_keeps_it() {
        let keeps_west = [("east", Some("west")), ("west", None), ("north", Some("west"))];
        check(&[(2, "a", "east"), (1, "b", "west")], &keeps_west);
        check(&[(1, "b", "west"), (2, "a", "east"), (3, "c", "north")], &keeps_west);
        check(&[(1, "b", "east"), (1, "a", "west")], &keeps_west);
    }

    #[test]
    fn a_contract_that_cannot_be_verified_may_be_any_at_its_place() {
        let access = kubeconfigs::access("x", 0, 3600);
        let unverified = Contract::unverified(&access);
        let verified = Contract {
            uid: "a".into(),
            namespace: Arc::clone(&access.namespace),
        };
        let check = |contract: &Contract, pinned: Option<&str>, namespace: &str, expect: bool| {
            let reached = Reached {
                contract,
                unverified: unverified.clone(),
            };
            assert_eq!(
                reached.may_be(pinned, Some(namespace)),
                expect,
                "{pinned:?} {namespace}"
            );
        };
        let (here, elsewhere) = (&*access.namespace, "elsewhere");
        check(&verified, Some("a"), elsewhere, true);
        check(&verified, Some("b"), here, false);
        check(&verified, Some(&unverified.uid), here, true);
        check(&verified, Some("unverified-b"), here, false);
        check(&verified, None, here, false);
        check(&unverified, Some("a"), here, true);
        check(&unverified, Some("a"), elsewhere, false);
        check(&unverified, Some(&unverified.uid), here, true);
        check(&unverified, Some("unverified-b"), here, false);
        check(&unverified, None, here, false);
    }
}
