//! Where the copies of consumer objects are on the provider: the mapping between an object and its copy, in both directions.

use std::{borrow::Cow, sync::Arc};

use crate::{
    names,
    v1alpha2::{APIServiceExportSpec, ConflictPolicy, Isolation, Scope},
};

/// How one resource places the copies of its objects on the provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// The copy of a namespaced object is in the provider namespace that the object's namespace is mapped to.
    Mapped,
    /// The copy of a namespaced object is in the provider namespace of the same name, which consumers share.
    Shared,
    /// The copy of a cluster-scoped object has the object's name. Consumers share these names.
    None,
    /// The copy of a cluster-scoped object has the contract's name in front of the object's.
    Prefixed,
    /// The copy of a cluster-scoped object is in the contract namespace.
    Contract,
    /// The copy of a cluster-scoped object is in the provider namespace that this consumer namespace is mapped to.
    Beside(Arc<str>),
}

/// Where the provider's side of claimed objects is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ClaimedPlacement {
    /// In the provider namespaces that the consumer's namespaces are mapped to.
    #[default]
    Mapped,
    /// In the provider namespaces of the same names, which consumers share.
    Shared,
}

// === impl Placement ===

impl Placement {
    /// Decides how an export places a resource that the consumer sees in this scope.
    pub fn of(export: &APIServiceExportSpec, scope: Scope) -> Self {
        match (scope, export.isolation, export.cluster_scoped_namespace.as_deref()) {
            (Scope::Namespaced, ..) => Self::Mapped,
            (Scope::Cluster, Isolation::None, _) => Self::None,
            (Scope::Cluster, Isolation::Prefixed, _) => Self::Prefixed,
            (Scope::Cluster, Isolation::Namespaced, None | Some("")) => Self::Contract,
            (Scope::Cluster, Isolation::Namespaced, Some(namespace)) => Self::Beside(namespace.into()),
        }
    }

    /// Tells whether consumers share the names of copies, so that a name does not say whose a copy is.
    pub fn names_are_shared(&self) -> bool {
        *self == Self::None
    }

    /// Tells whether consumers of an export overwrite each other's copies.
    pub fn last_wins(&self, export: &APIServiceExportSpec) -> bool {
        self.names_are_shared() && export.conflict_policy == Some(ConflictPolicy::LastWins)
    }

    /// The provider namespace of all copies, where no APIServiceNamespace has to assign it; empty for cluster-scoped copies.
    pub fn fixed(&self, contract: &Arc<str>) -> Option<Arc<str>> {
        match self {
            Self::Mapped | Self::Shared | Self::Beside(_) => None,
            Self::None | Self::Prefixed => Some("".into()),
            Self::Contract => Some(Arc::clone(contract)),
        }
    }

    /// The name of the APIServiceNamespace that maps the objects of a consumer namespace, which is empty for cluster-scoped
    /// objects.
    pub fn request(&self, consumer_namespace: &Arc<str>) -> Option<Arc<str>> {
        match self {
            Self::Mapped | Self::Shared => Some(Arc::clone(consumer_namespace)),
            Self::Beside(namespace) => Some(Arc::clone(namespace)),
            Self::None | Self::Prefixed | Self::Contract => None,
        }
    }

    /// The consumer namespace whose objects an APIServiceNamespace of this name maps; empty for cluster-scoped objects.
    pub fn requested_by(&self, request: &Arc<str>) -> Option<Arc<str>> {
        match self {
            Self::Mapped | Self::Shared => Some(Arc::clone(request)),
            Self::Beside(namespace) => (namespace == request).then(|| "".into()),
            Self::None | Self::Prefixed | Self::Contract => None,
        }
    }

    /// The name of the copy of an object of this name.
    pub fn copy_name<'a>(&self, contract: &str, name: &'a str) -> Cow<'a, str> {
        match self {
            Self::Prefixed => Cow::Owned(names::prefixed_name(contract, name)),
            Self::Mapped | Self::Shared | Self::None | Self::Contract | Self::Beside(_) => Cow::Borrowed(name),
        }
    }

    /// The name of the object that a copy of this name was made of; `None` if the copy is not of the contract. `noted` is the
    /// copy's annotation [`CONSUMER_NAME`](crate::annotations::CONSUMER_NAME).
    pub fn source_name<'a>(&self, contract: &str, name: &'a str, noted: Option<&'a str>) -> Option<&'a str> {
        match self {
            Self::Prefixed => names::unprefixed_name(contract, name, noted),
            Self::Mapped | Self::Shared | Self::None | Self::Contract | Self::Beside(_) => Some(name),
        }
    }
}

// === impl ClaimedPlacement ===

impl ClaimedPlacement {
    /// Decides where an export's claims are served, by the scopes in which the consumer sees its resources. Returns `None` if the
    /// answer depends on them and there is none, or one is unknown. The resources of a template have one scope; in an export that
    /// was made otherwise, one cluster-scoped resource decides.
    pub fn of_export(isolation: Isolation, scopes: impl IntoIterator<Item = Option<Scope>>) -> Option<Self> {
        if isolation != Isolation::None {
            return Some(Self::Mapped);
        }
        let mut placement = None;
        for scope in scopes {
            placement = placement.max(Some(match scope? {
                Scope::Cluster => Self::Shared,
                Scope::Namespaced => Self::Mapped,
            }));
        }
        placement
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
        check(Scope::Cluster, Isolation::Namespaced, Some(""), &Placement::Contract);
        let beside = Placement::Beside("west".into());
        check(Scope::Cluster, Isolation::Namespaced, Some("west"), &beside);
    }

    #[test]
    fn only_claims_of_cluster_scoped_apis_without_isolation_share_namespaces() {
        let (mapped, shared) = (Some(ClaimedPlacement::Mapped), Some(ClaimedPlacement::Shared));
        let (namespaced, cluster) = (Some(Scope::Namespaced), Some(Scope::Cluster));
        for (known, expect) in [
            (&[][..], None),
            (&[None], None),
            (&[cluster, None], None),
            (&[None, namespaced], None),
            (&[namespaced], mapped),
            (&[cluster], shared),
            (&[namespaced, cluster], shared),
            (&[cluster, namespaced], shared),
        ] {
            let of_export = |isolation| ClaimedPlacement::of_export(isolation, known.iter().copied());
            assert_eq!(of_export(Isolation::None), expect, "{known:?}");
            for isolation in [Isolation::Prefixed, Isolation::Namespaced] {
                assert_eq!(of_export(isolation), mapped, "the scope does not decide: {known:?}");
            }
        }
    }

    #[test]
    fn the_last_wins_only_where_names_are_shared_and_the_export_says_so() {
        let check = |isolation, scope, policy, expect: [bool; 2]| {
            let export = APIServiceExportSpec {
                isolation,
                conflict_policy: policy,
                ..APIServiceExportSpec::default()
            };
            let placement = Placement::of(&export, scope);
            assert_eq!([placement.names_are_shared(), placement.last_wins(&export)], expect);
        };
        let last = Some(ConflictPolicy::LastWins);
        check(Isolation::None, Scope::Cluster, last, [true, true]);
        check(Isolation::None, Scope::Cluster, None, [true, false]);
        check(Isolation::None, Scope::Namespaced, last, [false, false]);
        check(Isolation::Prefixed, Scope::Cluster, last, [false, false]);
    }

    #[test]
    fn a_namespace_is_requested_where_none_is_fixed() {
        let contract: Arc<str> = "kube-bind-x".into();
        let namespace = |placement: &Placement, namespace: &str| {
            let request = placement.request(&namespace.into());
            let back = request.as_ref().and_then(|request| placement.requested_by(request));
            let fixed = placement.fixed(&contract);
            assert!(request.is_some() != fixed.is_some(), "{placement:?}");
            assert!(back.is_none_or(|back| *back == *namespace), "{placement:?}");
            request.or(fixed).unwrap_or_default().to_string()
        };
        assert_eq!(namespace(&Placement::Mapped, "west"), "west");
        assert_eq!(namespace(&Placement::Shared, "west"), "west");
        assert_eq!(namespace(&Placement::Beside("west".into()), ""), "west");
        assert_eq!(namespace(&Placement::Contract, ""), "kube-bind-x");
        assert_eq!(namespace(&Placement::None, ""), "");
        assert_eq!(namespace(&Placement::Prefixed, ""), "");
    }

    proptest! {
        #[test]
        fn the_name_of_a_copy_leads_back_to_its_source(name in "[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?") {
            for placement in [
                Placement::Mapped, Placement::Shared, Placement::None, Placement::Prefixed, Placement::Contract,
                Placement::Beside("west".into()),
            ] {
                let copy = placement.copy_name("kube-bind-x", &name);
                let source = placement.source_name("kube-bind-x", &copy, Some(&name));
                prop_assert_eq!(source, Some(name.as_str()));
            }
        }
    }
}
