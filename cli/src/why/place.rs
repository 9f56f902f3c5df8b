//! Where the counterpart of an object belongs on the provider.

use std::sync::Arc;

use bindery_api::{
    placement::{ClaimedPlacement, Placement},
    v1alpha2::APIServiceNamespace,
};
use serde::Serialize;

/// Where a counterpart belongs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum CopyLocation {
    /// The counterpart belongs here. The namespace is empty for a cluster-scoped object.
    At { namespace: String, name: String },
    /// No provider namespace is assigned to this consumer namespace yet; `why` is the provider's message about that, or empty.
    Unmapped { namespace: String, why: String },
}

/// The provider namespaces that a consumer namespace is mapped to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MappedNamespaces {
    /// The namespace of this contract alone.
    pub(crate) own: Option<String>,
    /// The namespace that consumers share.
    pub(crate) shared: Option<String>,
    /// Why no namespace is assigned.
    pub(crate) why: String,
}

impl MappedNamespaces {
    pub(crate) fn of(found: Option<&APIServiceNamespace>) -> Self {
        let Some(found) = found else {
            return Self {
                why: "the konnector has not asked for one yet".to_owned(),
                ..Self::default()
            };
        };
        let status = found.status.clone().unwrap_or_default();
        let mut broken = status.conditions.iter().filter(|condition| !condition.is_true());
        let why = broken.find(|condition| !condition.message.is_empty());
        Self {
            own: status.namespace.clone(),
            shared: status.shared_namespace.clone(),
            why: why.map(|condition| condition.message.clone()).unwrap_or_default(),
        }
    }
}

/// Places the copy of an object of a bound API. `mapped` is of the consumer namespace that the placement requests.
pub(crate) fn place(
    placement: &Placement,
    contract: &Arc<str>,
    (namespace, name): (&str, &str),
    mapped: &MappedNamespaces,
) -> CopyLocation {
    let name = &*placement.copy_name(contract, name);
    match placement.request(&namespace.into()) {
        Some(requested) => in_mapped(mapped.own.as_deref(), &requested, name, mapped),
        None => CopyLocation::At {
            namespace: placement.fixed(contract).unwrap_or_default().to_string(),
            name: name.to_owned(),
        },
    }
}

/// Places the counterpart of a claimed object.
pub(crate) fn claimed_place(
    placement: ClaimedPlacement,
    (namespace, name): (&str, &str),
    mapped: &MappedNamespaces,
) -> CopyLocation {
    let place = match placement {
        ClaimedPlacement::Mapped => &mapped.own,
        ClaimedPlacement::Shared => &mapped.shared,
    };
    in_mapped(place.as_deref(), namespace, name, mapped)
}

fn in_mapped(namespace: Option<&str>, asked: &str, name: &str, mapped: &MappedNamespaces) -> CopyLocation {
    match namespace {
        Some(namespace) => CopyLocation::At {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        },
        None => CopyLocation::Unmapped {
            namespace: asked.to_owned(),
            why: mapped.why.clone(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapped() -> MappedNamespaces {
        MappedNamespaces {
            own: Some("kube-bind-x-west".to_owned()),
            shared: Some("west".to_owned()),
            why: String::new(),
        }
    }

    #[track_caller]
    fn check(placement: &Placement, namespace: &str, expect: &str) {
        let CopyLocation::At { namespace, name } =
            place(placement, &"kube-bind-x".into(), (namespace, "billy"), &mapped())
        else {
            panic!("a place");
        };
        assert_eq!(format!("{namespace}/{name}"), expect);
    }

    #[test]
    fn each_placement_leads_to_its_copy() {
        check(&Placement::Mapped, "west", "kube-bind-x-west/billy");
        check(&Placement::Prefixed, "", "/kube-bind-x-billy");
        check(&Placement::None, "", "/billy");
        check(&Placement::Contract, "", "kube-bind-x/billy");
        check(&Placement::Beside("west".into()), "", "kube-bind-x-west/billy");
    }

    #[test]
    fn claimed_objects_share_a_namespace_where_names_are_shared() {
        let at = |placement| match claimed_place(placement, ("west", "a"), &mapped()) {
            CopyLocation::At { namespace, .. } => namespace,
            unmapped @ CopyLocation::Unmapped { .. } => panic!("{unmapped:?}"),
        };
        assert_eq!(at(ClaimedPlacement::Shared), "west");
        assert_eq!(at(ClaimedPlacement::Mapped), "kube-bind-x-west");
        let unshared = MappedNamespaces {
            shared: None,
            ..mapped()
        };
        assert!(matches!(
            claimed_place(ClaimedPlacement::Shared, ("west", "a"), &unshared),
            CopyLocation::Unmapped { .. }
        ));
    }

    #[test]
    fn what_is_not_mapped_says_why() {
        let missing = place(
            &Placement::Mapped,
            &"x".into(),
            ("west", "billy"),
            &MappedNamespaces::of(None),
        );
        let CopyLocation::Unmapped { namespace, why } = missing else {
            panic!("no place");
        };
        assert_eq!(namespace, "west");
        assert!(why.contains("has not asked"), "{why}");
    }
}
