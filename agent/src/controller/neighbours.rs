//! Other konnectors of the same cluster. With `--only-own-bindings` each konnector serves the bindings and bundles whose
//! kubeconfig Secret is in its namespace.
//!
//! Two konnectors must not serve one contract: each would give back the provider namespaces that it does not need itself, with
//! the other's copies in them.

use std::sync::Arc;

use bindery_api::v1alpha2::{APIServiceBinding, APIServiceBindingBundle, ClusterSecretKeyRef};

use super::access::{ContractAccess, SecretProblem};
use crate::{consumer::Consumer, session::connect::ContractConnection};

/// Which bindings and bundles this konnector serves.
#[derive(Clone, Debug)]
pub struct Neighbours {
    consumer: Consumer,
    /// Whether bindings and bundles of other namespaces belong to other konnectors.
    only_own: bool,
}

impl Neighbours {
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
    pub fn judge(
        &self,
        access: ContractAccess<Arc<ContractConnection>>,
        reference: &ClusterSecretKeyRef,
    ) -> ContractAccess<Arc<ContractConnection>> {
        let ContractAccess::Reached(reached) = &access else {
            return access;
        };
        match self.namespace_of(&reached.contract.uid) {
            None => access,
            Some(namespace) => ContractAccess::Problem(SecretProblem::ServedElsewhere {
                at: Box::new(reference.clone()),
                contract: reached.contract.namespace.to_string(),
                namespace,
            }),
        }
    }

    /// The namespace of another konnector that serves a contract.
    fn namespace_of(&self, contract_uid: &str) -> Option<String> {
        if !self.only_own {
            return None;
        }
        let bindings = self
            .consumer
            .bindings
            .list(|binding| binding.contract_uid() == Some(contract_uid));
        let bundles = self
            .consumer
            .bundles
            .list(|bundle| bundle.contract_uid() == Some(contract_uid));
        let bindings = bindings.iter().map(|binding| &binding.spec.kubeconfig_secret_ref);
        let bundles = bundles.iter().map(|bundle| &bundle.spec.kubeconfig_secret_ref);
        foreign(&self.consumer.namespace, bindings.chain(bundles))
    }
}

fn is_own(namespace: &str, reference: &ClusterSecretKeyRef) -> bool {
    reference.namespace == namespace
}

/// The first namespace of these that is not the konnector's, in the order of their names.
fn foreign<'a>(namespace: &str, references: impl Iterator<Item = &'a ClusterSecretKeyRef>) -> Option<String> {
    let others = references.filter(|reference| !is_own(namespace, reference));
    others.map(|reference| reference.namespace.clone()).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_contract_belongs_to_the_namespace_of_its_secrets() {
        let of = |namespaces: &[&str]| {
            let references: Vec<_> = namespaces
                .iter()
                .map(|namespace| ClusterSecretKeyRef {
                    name: "kubeconfig".to_owned(),
                    key: "kubeconfig".to_owned(),
                    namespace: (*namespace).to_owned(),
                })
                .collect();
            foreign("here", references.iter())
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&["here", "here"]), None);
        assert_eq!(of(&["there", "here", "elsewhere"]).as_deref(), Some("elsewhere"));
    }
}
