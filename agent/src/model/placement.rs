//! Where copies go: the two-way mapping between an object of the consumer and its copy on the provider.
//!
//! The namespace of a copy may have to be asked for by an APIServiceNamespace, which `places` and `keep` see to; its name
//! follows from the object's alone.

use std::{borrow::Cow, sync::Arc};

use bindery_api::{
    annotations, names,
    v1alpha2::{APIServiceExportSpec, Isolation, Scope},
};

use crate::model::object::Meta;

/// The strategy of one bound resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// A namespaced object goes into the namespace that its own one is mapped to.
    Mapped,
    /// An object goes into the namespace of its own one's name, which consumers share.
    Shared,
    /// A cluster-scoped object keeps its name, which consumers share.
    None,
    /// A cluster-scoped object gets the contract's name in front of its own.
    Prefixed,
    /// A cluster-scoped object goes into the contract namespace.
    Contract,
    /// A cluster-scoped object goes into the namespace that this one is mapped to.
    Beside(Arc<str>),
}

impl Placement {
    /// How an export places a resource of this scope.
    pub fn of(export: &APIServiceExportSpec, scope: Scope) -> Self {
        match (scope, export.isolation, export.cluster_scoped_namespace.as_deref()) {
            (Scope::Namespaced, ..) => Self::Mapped,
            (Scope::Cluster, Isolation::None, _) => Self::None,
            (Scope::Cluster, Isolation::Prefixed, _) => Self::Prefixed,
            (Scope::Cluster, Isolation::Namespaced, None | Some("")) => Self::Contract,
            (Scope::Cluster, Isolation::Namespaced, Some(namespace)) => Self::Beside(namespace.into()),
        }
    }

    /// The provider namespace of all copies, where that is known from the start; empty for cluster-scoped copies.
    pub(crate) fn fixed(&self, contract: &Arc<str>) -> Option<Arc<str>> {
        match self {
            Self::Mapped | Self::Shared | Self::Beside(_) => None,
            Self::None | Self::Prefixed => Some("".into()),
            Self::Contract => Some(Arc::clone(contract)),
        }
    }

    /// The APIServiceNamespace that maps the objects of a consumer namespace, empty for cluster-scoped ones.
    pub(crate) fn request(&self, consumer_namespace: &Arc<str>) -> Option<Arc<str>> {
        match self {
            Self::Mapped | Self::Shared => Some(Arc::clone(consumer_namespace)),
            Self::Beside(namespace) => Some(Arc::clone(namespace)),
            Self::None | Self::Prefixed | Self::Contract => None,
        }
    }

    /// The consumer namespace whose objects an APIServiceNamespace maps.
    pub(crate) fn requested_by(&self, request: &Arc<str>) -> Option<Arc<str>> {
        match self {
            Self::Mapped | Self::Shared => Some(Arc::clone(request)),
            Self::Beside(namespace) => (namespace == request).then(|| "".into()),
            Self::None | Self::Prefixed | Self::Contract => None,
        }
    }

    /// The name of an object's copy.
    pub(crate) fn copy_name<'a>(&self, contract: &str, name: &'a str) -> Cow<'a, str> {
        match self {
            Self::Prefixed => Cow::Owned(names::prefixed_name(contract, name)),
            Self::Mapped | Self::Shared | Self::None | Self::Contract | Self::Beside(_) => Cow::Borrowed(name),
        }
    }

    /// The name of the object that a copy in one of our places was made of; `None` if the name is not one of ours.
    pub(crate) fn source_name(&self, contract: &str, copy: &Meta) -> Option<Arc<str>> {
        match self {
            Self::Prefixed => {
                let noted = copy.annotations.get(annotations::CONSUMER_NAME);
                names::unprefixed_name(contract, &copy.name, noted).map(Into::into)
            }
            Self::Mapped | Self::Shared | Self::None | Self::Contract | Self::Beside(_) => Some(Arc::clone(&copy.name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(scope: Scope, isolation: Isolation, beside: Option<&str>, expect: &Placement) {
        let export = APIServiceExportSpec {
            isolation,
            cluster_scoped_namespace: beside.map(str::to_owned),
            ..APIServiceExportSpec::default()
        };
        assert_eq!(&Placement::of(&export, scope), expect);
    }

    #[test]
    fn only_cluster_scoped_resources_are_placed_by_isolation() {
        for isolation in [Isolation::None, Isolation::Prefixed, Isolation::Namespaced] {
            check(Scope::Namespaced, isolation, Some("west"), &Placement::Mapped);
        }
        check(Scope::Cluster, Isolation::None, None, &Placement::None);
        check(Scope::Cluster, Isolation::Prefixed, None, &Placement::Prefixed);
        check(Scope::Cluster, Isolation::Namespaced, None, &Placement::Contract);
        let beside = Placement::Beside("west".into());
        check(Scope::Cluster, Isolation::Namespaced, Some("west"), &beside);
    }

    #[test]
    fn a_namespace_is_asked_for_where_none_is_given() {
        let contract: Arc<str> = "kube-bind-x".into();
        let asked = |placement: &Placement, namespace: &str| {
            let request = placement.request(&namespace.into());
            let back = request.as_ref().and_then(|request| placement.requested_by(request));
            let fixed = placement.fixed(&contract);
            assert!(request.is_some() != fixed.is_some(), "{placement:?}");
            assert!(back.is_none_or(|back| *back == *namespace), "{placement:?}");
            request.or(fixed).unwrap_or_default().to_string()
        };
        assert_eq!(asked(&Placement::Mapped, "west"), "west");
        assert_eq!(asked(&Placement::Shared, "west"), "west");
        assert_eq!(asked(&Placement::Beside("west".into()), ""), "west");
        assert_eq!(asked(&Placement::Contract, ""), "kube-bind-x");
        assert_eq!(asked(&Placement::None, ""), "");
        assert_eq!(asked(&Placement::Prefixed, ""), "");
    }

    proptest! {
        #[test]
        fn a_copy_leads_back_to_its_source(name in "[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?") {
            for placement in [
                Placement::Mapped, Placement::Shared, Placement::None, Placement::Prefixed, Placement::Contract,
                Placement::Beside("west".into()),
            ] {
                let copy = placement.copy_name("kube-bind-x", &name);
                let annotations = [(annotations::CONSUMER_NAME, name.as_str())].into_iter().collect();
                let meta = Meta { name: (*copy).into(), annotations, ..Meta::default() };
                let source = placement.source_name("kube-bind-x", &meta);
                prop_assert_eq!(source.as_deref(), Some(name.as_str()));
            }
        }
    }
}
