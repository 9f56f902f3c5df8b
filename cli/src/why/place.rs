//! Where the counterpart of an object belongs on the provider.

use std::sync::Arc;

use bindery_api::{
    placement::{ClaimedPlacement, Placement},
    v1alpha2::APIServiceNamespace,
};
use serde::Serialize;

/// A place on the provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Place {
    /// Under this name, in this namespace; empty for a cluster-scoped object.
    At { namespace: String, name: String },
    /// The provider has to make a namespace first; its own words on that, where it has any.
    Unmapped { namespace: String, why: String },
}

/// What stands for a namespace of the consumer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mapped {
    /// The contract's own.
    pub(crate) own: Option<String>,
    /// The one that consumers share.
    pub(crate) shared: Option<String>,
    /// Why there is none.
    pub(crate) why: String,
}

impl Mapped {
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

/// Where the copy of an object of a bound API belongs. `mapped` is what stands for the consumer namespace that the placement
/// requests.
pub(crate) fn place(
    placement: &Placement,
    contract: &Arc<str>,
    (namespace, name): (&str, &str),
    mapped: &Mapped,
) -> Place {
    let name = &*placement.copy_name(contract, name);
    match placement.request(&namespace.into()) {
        Some(requested) => in_mapped(mapped.own.as_deref(), &requested, name, mapped),
        None => Place::At {
            namespace: placement.fixed(contract).unwrap_or_default().to_string(),
            name: name.to_owned(),
        },
    }
}

/// Where the counterpart of a claimed object belongs.
pub(crate) fn claimed_place(placement: ClaimedPlacement, (namespace, name): (&str, &str), mapped: &Mapped) -> Place {
    let place = match placement {
        ClaimedPlacement::Mapped => &mapped.own,
        ClaimedPlacement::Shared => &mapped.shared,
    };
    in_mapped(place.as_deref(), namespace, name, mapped)
}

fn in_mapped(namespace: Option<&str>, asked: &str, name: &str, mapped: &Mapped) -> Place {
    match namespace {
        Some(namespace) => Place::At {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        },
        None => Place::Unmapped {
            namespace: asked.to_owned(),
            why: mapped.why.clone(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapped() -> Mapped {
        Mapped {
            own: Some("kube-bind-x-west".to_owned()),
            shared: Some("west".to_owned()),
            why: String::new(),
        }
    }

    #[track_caller]
    fn check(placement: &Placement, namespace: &str, expect: &str) {
        let Place::At { namespace, name } = place(placement, &"kube-bind-x".into(), (namespace, "billy"), &mapped())
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
            Place::At { namespace, .. } => namespace,
            unmapped @ Place::Unmapped { .. } => panic!("{unmapped:?}"),
        };
        assert_eq!(at(ClaimedPlacement::Shared), "west");
        assert_eq!(at(ClaimedPlacement::Mapped), "kube-bind-x-west");
        let unshared = Mapped {
            shared: None,
            ..mapped()
        };
        assert!(matches!(
            claimed_place(ClaimedPlacement::Shared, ("west", "a"), &unshared),
            Place::Unmapped { .. }
        ));
    }

    #[test]
    fn what_is_not_mapped_says_why() {
        let missing = place(&Placement::Mapped, &"x".into(), ("west", "billy"), &Mapped::of(None));
        let Place::Unmapped { namespace, why } = missing else {
            panic!("no place");
        };
        assert_eq!(namespace, "west");
        assert!(why.contains("has not asked"), "{why}");
    }
}
