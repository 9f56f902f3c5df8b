//! The provider namespaces with objects of a contract, and the consumer namespaces that they belong to.

use std::sync::Arc;

use bindery_api::{placement::Placement, v1alpha2::APIServiceNamespace};
use kube::ResourceExt as _;

/// A provider namespace and the consumer namespace whose objects have their copies there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamespacePair {
    /// The provider namespace; empty for cluster-scoped copies.
    pub(crate) provider: Arc<str>,
    /// The consumer namespace; empty for cluster-scoped objects.
    pub(crate) consumer: Arc<str>,
}

/// Where copies of an exported resource may be on the provider. `requests` are all APIServiceNamespaces of the contract.
pub(crate) fn namespace_pairs(
    placement: &Placement,
    contract: &Arc<str>,
    requests: &[APIServiceNamespace],
) -> Vec<NamespacePair> {
    if let Some(provider) = placement.fixed(contract) {
        return vec![NamespacePair {
            provider,
            consumer: "".into(),
        }];
    }
    let assigned = requests.iter().filter_map(|request| {
        Some(NamespacePair {
            provider: request.status.as_ref()?.namespace.as_deref()?.into(),
            consumer: placement.requested_by(&request.name_any().into())?,
        })
    });
    assigned.collect()
}

#[cfg(test)]
mod tests {
    use bindery_api::v1alpha2::{APIServiceNamespaceSpec, APIServiceNamespaceStatus};

    use super::*;

    fn namespace(name: &str, there: Option<&str>) -> APIServiceNamespace {
        let mut namespace = APIServiceNamespace::new(name, APIServiceNamespaceSpec::default());
        namespace.status = Some(APIServiceNamespaceStatus {
            namespace: there.map(str::to_owned),
            ..APIServiceNamespaceStatus::default()
        });
        namespace
    }

    /// Expected: pairs as `provider:consumer`.
    #[track_caller]
    fn check(placement: &Placement, expect: &[&str]) {
        let requests = [namespace("west", Some("c-west")), namespace("east", None)];
        let pairs = namespace_pairs(placement, &"c".into(), &requests);
        let pairs: Vec<_> = pairs
            .iter()
            .map(|pair| format!("{}:{}", pair.provider, pair.consumer))
            .collect();
        assert_eq!(pairs, expect);
    }

    #[test]
    fn each_placement_has_its_namespaces() {
        check(&Placement::Mapped, &["c-west:west"]);
        check(&Placement::Prefixed, &[":"]);
        check(&Placement::None, &[":"]);
        check(&Placement::Contract, &["c:"]);
        check(&Placement::Beside("west".into()), &["c-west:"]);
        check(&Placement::Beside("east".into()), &[]);
    }
}
