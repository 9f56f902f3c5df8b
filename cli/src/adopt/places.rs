//! The provider namespaces with objects of a contract, and the consumer namespaces that they belong to.

use bindery_api::{
    annotations, names,
    v1alpha2::{APIServiceExportSpec, APIServiceNamespace, Isolation, Scope},
};
use kube::ResourceExt as _;

use crate::why::{ObjectFacts, request};

/// A namespace of the provider with objects of the contract, and where they belong on the consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The provider namespace; empty for cluster-scoped objects of the provider.
    pub(crate) there: String,
    /// The consumer's namespace; empty for cluster-scoped objects of the consumer.
    pub(crate) here: String,
    /// Whether names on the provider begin with the name of the contract.
    prefixed: bool,
}

/// Where the provider may hold objects of an exported resource.
pub(crate) fn places(
    export: &APIServiceExportSpec,
    scope: Scope,
    contract: &str,
    namespaces: &[APIServiceNamespace],
) -> Vec<Place> {
    let place = |there: &str, here: &str| Place {
        there: there.to_owned(),
        here: here.to_owned(),
        prefixed: false,
    };
    let own = |namespace: &APIServiceNamespace| namespace.status.as_ref()?.namespace.clone();
    if scope == Scope::Namespaced {
        let mapped = namespaces.iter();
        return mapped
            .filter_map(|namespace| Some(place(&own(namespace)?, &namespace.name_any())))
            .collect();
    }
    match (export.isolation, request(export, "")) {
        (Isolation::Prefixed, _) => vec![Place {
            prefixed: true,
            ..place("", "")
        }],
        (Isolation::None, _) => vec![place("", "")],
        (Isolation::Namespaced, None) => vec![place(contract, "")],
        (Isolation::Namespaced, Some(beside)) => {
            let mapped = namespaces.iter().find(|namespace| namespace.name_any() == beside);
            mapped
                .and_then(own)
                .map(|there| place(&there, ""))
                .into_iter()
                .collect()
        }
    }
}

impl Place {
    /// The name of the object on the consumer; none if the object is not of the contract.
    pub(crate) fn name(&self, contract: &str, object: &ObjectFacts) -> Option<String> {
        if !self.prefixed {
            return Some(object.name.clone());
        }
        let noted = object.annotations.get(annotations::CONSUMER_NAME).map(String::as_str);
        names::unprefixed_name(contract, &object.name, noted).map(str::to_owned)
    }
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

    /// Scope, isolation and clusterScopedNamespace; expected: places as `there:here`, and what `c-billy` is called.
    #[track_caller]
    fn check(scope: Scope, isolation: Isolation, beside: Option<&str>, expect: &[&str], name: Option<&str>) {
        let export = APIServiceExportSpec {
            isolation,
            cluster_scoped_namespace: beside.map(str::to_owned),
            ..APIServiceExportSpec::default()
        };
        let namespaces = [namespace("west", Some("c-west")), namespace("east", None)];
        let places = places(&export, scope, "c", &namespaces);
        let shown: Vec<_> = places
            .iter()
            .map(|place| format!("{}:{}", place.there, place.here))
            .collect();
        assert_eq!(shown, expect);
        let object = ObjectFacts {
            name: "c-billy".to_owned(),
            ..ObjectFacts::default()
        };
        let names = places.iter().map(|place| place.name("c", &object));
        for found in names {
            assert_eq!(found.as_deref(), name);
        }
    }

    #[test]
    fn each_isolation_has_its_places() {
        use Isolation::{Namespaced, None as Shared, Prefixed};
        let whole = Some("c-billy");
        for isolation in [Namespaced, Shared, Prefixed] {
            check(Scope::Namespaced, isolation, None, &["c-west:west"], whole);
        }
        check(Scope::Cluster, Prefixed, None, &[":"], Some("billy"));
        check(Scope::Cluster, Shared, None, &[":"], whole);
        check(Scope::Cluster, Namespaced, None, &["c:"], whole);
        check(Scope::Cluster, Namespaced, Some("west"), &["c-west:"], whole);
        check(Scope::Cluster, Namespaced, Some("east"), &[], whole);
    }

    #[test]
    fn what_has_another_prefix_is_anothers() {
        let prefixed = Place {
            there: String::new(),
            here: String::new(),
            prefixed: true,
        };
        for (name, expect) in [
            ("c-billy", Some("billy")),
            ("d-billy", None),
            ("cc-billy", None),
            ("c", None),
        ] {
            let object = ObjectFacts {
                name: name.to_owned(),
                ..ObjectFacts::default()
            };
            assert_eq!(prefixed.name("c", &object).as_deref(), expect);
        }
    }
}
