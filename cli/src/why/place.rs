//! Where the counterpart of an object belongs on the provider.

use bindery_api::{
    names,
    v1alpha2::{APIServiceExportSpec, APIServiceNamespace, Isolation},
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

/// Which namespace of the consumer has to be mapped for an object of a bound API; none if none has to.
pub(crate) fn request<'a>(export: &'a APIServiceExportSpec, namespace: &'a str) -> Option<&'a str> {
    if !namespace.is_empty() {
        return Some(namespace);
    }
    let beside = export
        .cluster_scoped_namespace
        .as_deref()
        .filter(|beside| !beside.is_empty());
    beside.filter(|_| export.isolation == Isolation::Namespaced)
}

/// Where the copy of an object of a bound API belongs. `mapped` is what stands for the namespace that [`request`] names.
pub(crate) fn place(
    export: &APIServiceExportSpec,
    contract: &str,
    (namespace, name): (&str, &str),
    mapped: &Mapped,
) -> Place {
    let at = |namespace: &str, name: String| Place::At {
        namespace: namespace.to_owned(),
        name,
    };
    match (request(export, namespace), export.isolation) {
        (Some(asked), _) => in_mapped(mapped.own.as_deref(), asked, name, mapped),
        (None, Isolation::Prefixed) => at("", names::prefixed_name(contract, name)),
        (None, Isolation::None) => at("", name.to_owned()),
        (None, Isolation::Namespaced) => at(contract, name.to_owned()),
    }
}

/// Where the counterpart of a claimed object belongs. `shared` says that consumers of the export share names.
pub(crate) fn claimed_place(shared: bool, (namespace, name): (&str, &str), mapped: &Mapped) -> Place {
    let place = if shared { &mapped.shared } else { &mapped.own };
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

    fn export(isolation: Isolation, beside: Option<&str>) -> APIServiceExportSpec {
        APIServiceExportSpec {
            isolation,
            cluster_scoped_namespace: beside.map(str::to_owned),
            ..APIServiceExportSpec::default()
        }
    }

    fn mapped() -> Mapped {
        Mapped {
            own: Some("kube-bind-x-west".to_owned()),
            shared: Some("west".to_owned()),
            why: String::new(),
        }
    }

    /// Isolation, clusterScopedNamespace, namespace of the object; expected: what is asked for, and the place.
    #[track_caller]
    fn check(isolation: Isolation, beside: Option<&str>, namespace: &str, expect: (Option<&str>, &str)) {
        let export = export(isolation, beside);
        assert_eq!(request(&export, namespace), expect.0);
        let Place::At { namespace, name } = place(&export, "kube-bind-x", (namespace, "billy"), &mapped()) else {
            panic!("a place");
        };
        assert_eq!(format!("{namespace}/{name}"), expect.1);
    }

    #[test]
    fn each_isolation_has_its_place() {
        use Isolation::{Namespaced, None as Shared, Prefixed};
        for isolation in [Namespaced, Shared, Prefixed] {
            check(
                isolation,
                Some("east"),
                "west",
                (Some("west"), "kube-bind-x-west/billy"),
            );
        }
        check(Prefixed, None, "", (None, "/kube-bind-x-billy"));
        check(Shared, None, "", (None, "/billy"));
        check(Namespaced, None, "", (None, "kube-bind-x/billy"));
        check(Namespaced, Some(""), "", (None, "kube-bind-x/billy"));
        check(Namespaced, Some("west"), "", (Some("west"), "kube-bind-x-west/billy"));
    }

    #[test]
    fn claimed_objects_share_a_namespace_where_names_are_shared() {
        let at = |shared| match claimed_place(shared, ("west", "a"), &mapped()) {
            Place::At { namespace, .. } => namespace,
            unmapped @ Place::Unmapped { .. } => panic!("{unmapped:?}"),
        };
        assert_eq!(at(true), "west");
        assert_eq!(at(false), "kube-bind-x-west");
        let unshared = Mapped {
            shared: None,
            ..mapped()
        };
        assert!(matches!(
            claimed_place(true, ("west", "a"), &unshared),
            Place::Unmapped { .. }
        ));
    }

    #[test]
    fn what_is_not_mapped_says_why() {
        let missing = place(
            &export(Isolation::None, None),
            "x",
            ("west", "billy"),
            &Mapped::of(None),
        );
        let Place::Unmapped { namespace, why } = missing else {
            panic!("no place");
        };
        assert_eq!(namespace, "west");
        assert!(why.contains("has not asked"), "{why}");
    }
}
