//! Decides which APIServiceNamespaces to write: each requests the provider namespace for one consumer namespace, and
//! the backend assigns it.

use std::sync::Arc;

use bindery_api::{
    Conditions as _, Severity, annotations,
    conditions::{ConditionStatus, READY},
    labels,
    names::{self, InvalidName, NamespaceName},
    v1alpha2::APIServiceNamespace,
};
use bindery_runtime::preconditions::unchanged;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{ResourceExt as _, api::Preconditions};

use crate::model::Placement;

/// Value of the label `kube-bind.io/owner` on an APIServiceNamespace that the provider made before any consumer did.
const OWNER_PROVIDER: &str = "provider";

/// The state of one consumer namespace that the decision is made from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Observed<'a> {
    /// The consumer namespace has objects that need a provider namespace.
    pub wanted: bool,
    /// The consumer namespace exists.
    pub exists: bool,
    /// The APIServiceNamespace of the consumer namespace, if there is one.
    pub request: Option<&'a APIServiceNamespace>,
    /// The exports whose objects are in the consumer namespace.
    pub exports: &'a [OwnerReference],
}

/// One write to an APIServiceNamespace.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PlaceOp {
    /// Creates the APIServiceNamespace, with these exports as owners.
    Request { owners: Vec<OwnerReference> },
    /// Replaces the owners: these exports use the provider namespace too, so it stays when another export ends.
    Share {
        owners: Vec<OwnerReference>,
        version: Option<String>,
    },
    /// Says of an APIServiceNamespace that is being deleted that its provider namespace is still needed, by these exports: one that was
    /// bound anew is none of the owners from before.
    Need {
        owners: Vec<OwnerReference>,
        preconditions: Preconditions,
    },
    /// Gives up the provider namespace, which is no longer needed.
    GiveBack { preconditions: Preconditions },
}

/// Decides what to write; `None` if nothing.
pub(crate) fn plan(seen: &Observed<'_>) -> Option<PlaceOp> {
    let Some(request) = seen.request else {
        let owners = seen.exports.to_vec();
        return seen.wanted.then_some(PlaceOp::Request { owners });
    };
    let others = seen.exports.iter().filter(|export| !is_for(request, export));
    let is_owned = others.clone().next().is_none();
    let owners = || request.owner_references().iter().chain(others).cloned().collect();
    if request.metadata.deletion_timestamp.is_some() {
        // A new one can be created once this one is gone, and the copies of objects that live would keep it for ever.
        let is_said = is_owned && request.annotations().contains_key(annotations::STILL_NEEDED);
        return (seen.wanted && seen.exists && !is_said).then(|| PlaceOp::Need {
            owners: owners(),
            preconditions: unchanged(&request.metadata),
        });
    }
    if seen.wanted {
        return (!is_owned).then(|| PlaceOp::Share {
            owners: owners(),
            version: request.resource_version(),
        });
    }
    let ours = seen.exports.iter().any(|export| is_for(request, export));
    let provided = request
        .labels()
        .get(labels::OWNER)
        .is_some_and(|owner| owner == OWNER_PROVIDER);
    // A consumer namespace that does not exist holds no object of any export.
    (!seen.exists && ours && !provided).then(|| PlaceOp::GiveBack {
        preconditions: unchanged(&request.metadata),
    })
}

/// Whether an export is among the owners of an APIServiceNamespace.
pub(crate) fn is_for(request: &APIServiceNamespace, export: &OwnerReference) -> bool {
    request.owner_references().iter().any(|owner| owner.uid == export.uid)
}

/// The provider namespace that was assigned, also while it is being deleted, because the konnector deletes the copies
/// in it. Fails if what was assigned cannot be a namespace.
pub(crate) fn assigned(
    request: &APIServiceNamespace,
    placement: &Placement,
) -> Result<Option<Arc<str>>, InvalidNamespace> {
    let status = request.status.as_ref();
    let namespace = status.and_then(|status| match placement {
        Placement::Shared => status.shared_namespace.as_deref(),
        _ => status.namespace.as_deref(),
    });
    let Some(namespace) = namespace.filter(|namespace| !namespace.is_empty()) else {
        return Ok(None);
    };
    match namespace.parse::<NamespaceName>() {
        Ok(name) => Ok(Some(name.into())),
        Err(reason) => Err(InvalidNamespace {
            name: names::quoted(namespace),
            reason,
        }),
    }
}

/// A provider namespace that was assigned and cannot be one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the provider assigned {name}, and the name of a namespace {reason}; ask the provider's admin")]
pub(crate) struct InvalidNamespace {
    /// Its name, escaped.
    name: String,
    reason: InvalidName,
}

/// The provider namespace that a backend assigns to a consumer namespace of which the konnector may read no APIServiceNamespace. An
/// object there is a copy only if its annotations say so.
pub(crate) fn assumed(contract: &str, consumer_namespace: &str, placement: &Placement) -> Option<Arc<str>> {
    match placement {
        Placement::Mapped => Some(names::provider_namespace(contract, consumer_namespace).into()),
        _ => None,
    }
}

/// Why a consumer namespace gets no provider namespace: the backend's message, or that what it assigned cannot be one.
pub(crate) fn refusal(request: &APIServiceNamespace, placement: &Placement) -> Option<Arc<str>> {
    match assigned(request, placement) {
        Ok(None) => {}
        Ok(Some(_)) => return None,
        Err(invalid) => return Some(invalid.to_string().into()),
    }
    let ready = request.condition(READY)?;
    (ready.status == ConditionStatus::False && ready.severity == Severity::Error).then(|| ready.message.as_str().into())
}

#[cfg(test)]
mod tests {
    use bindery_api::conditions::false_condition;
    use serde_json::json;

    use super::*;

    fn owner(uid: &str) -> OwnerReference {
        OwnerReference {
            api_version: "kube-bind.io/v1alpha2".to_owned(),
            kind: "APIServiceExport".to_owned(),
            name: uid.to_owned(),
            uid: uid.to_owned(),
            ..OwnerReference::default()
        }
    }

    fn request(owners: &[&str]) -> APIServiceNamespace {
        let mut request = APIServiceNamespace::default();
        request.metadata.owner_references = Some(owners.iter().map(|uid| owner(uid)).collect());
        request
    }

    #[track_caller]
    fn check(wanted: bool, exists: bool, request: Option<&APIServiceNamespace>, expect: Option<&str>) {
        let op = plan(&Observed {
            wanted,
            exists,
            request,
            exports: &[owner("us")],
        });
        let name = op.map(|op| match op {
            PlaceOp::Request { .. } => "request".to_owned(),
            PlaceOp::Share { owners, .. } => format!("share {}", owners.len()),
            PlaceOp::Need { owners, .. } => format!("need {}", owners.len()),
            PlaceOp::GiveBack { .. } => "give back".to_owned(),
        });
        assert_eq!(name.as_deref(), expect);
    }

    #[test]
    fn a_place_is_requested_shared_and_given_back() {
        check(true, true, None, Some("request"));
        check(false, true, None, None);
        check(true, true, Some(&request(&["us"])), None);
        check(true, true, Some(&request(&["other"])), Some("share 2"));
        check(false, true, Some(&request(&["us"])), None);
        check(false, false, Some(&request(&["us"])), Some("give back"));
        check(false, false, Some(&request(&["us", "other"])), Some("give back"));
        check(false, false, Some(&request(&["other"])), None);
    }

    #[test]
    fn what_the_provider_made_or_what_is_ending_is_left() {
        let mut provided = request(&["us"]);
        provided
            .labels_mut()
            .insert(labels::OWNER.to_owned(), OWNER_PROVIDER.to_owned());
        check(false, false, Some(&provided), None);
        let mut ending = request(&["other"]);
        ending.metadata.deletion_timestamp = Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
        check(false, true, Some(&ending), None);
        check(false, false, Some(&ending), None);
    }

    #[test]
    fn of_one_that_ends_although_it_is_needed_that_is_said_once() {
        let mut ending = request(&["us"]);
        ending.metadata.deletion_timestamp = Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
        check(true, true, Some(&ending), Some("need 1"));
        check(true, false, Some(&ending), None);
        let still_needed = annotations::STILL_NEEDED.to_owned();
        ending
            .annotations_mut()
            .insert(still_needed, annotations::TRUE.to_owned());
        check(true, true, Some(&ending), None);
        // By an export that was bound anew meanwhile.
        ending.metadata.owner_references = request(&["before"]).metadata.owner_references;
        check(true, true, Some(&ending), Some("need 2"));
    }

    #[test]
    fn what_cannot_be_a_namespace_is_not_used() {
        let of = |namespace: &str| {
            let mut request = request(&[]);
            request.status.get_or_insert_default().namespace = Some(namespace.to_owned());
            assigned(&request, &Placement::Mapped)
        };
        assert_eq!(of("kube-bind-x-west").unwrap().as_deref(), Some("kube-bind-x-west"));
        assert_eq!(of(""), Ok(None));
        for bad in ["..", "a/b", "a?b=", "west.a", "a\nb", "A"] {
            assert!(of(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn only_namespaced_resources_have_a_namespace_by_default() {
        let assumed = |placement: &Placement| assumed("kube-bind-x", "team1", placement);
        assert_eq!(assumed(&Placement::Mapped).as_deref(), Some("kube-bind-x-team1"));
        assert_eq!(assumed(&Placement::Shared), None);
    }

    #[test]
    fn only_an_error_without_a_place_is_a_refusal() {
        let with = |ready: bindery_api::Condition, namespace: Option<&str>| {
            let mut request = request(&[]);
            let status = request.status.get_or_insert_default();
            status.namespace = namespace.map(str::to_owned);
            status.conditions.push(ready);
            refusal(&request, &Placement::Mapped)
        };
        let not_ready = |severity| false_condition(READY, severity, "ForeignNamespace", "it is in the way");
        assert_eq!(refusal(&request(&[]), &Placement::Mapped), None);
        assert_eq!(
            with(not_ready(Severity::Error), None).as_deref(),
            Some("it is in the way")
        );
        assert_eq!(with(not_ready(Severity::Info), None), None);
        let invalid = with(not_ready(Severity::Error), Some("../x\u{1b}")).unwrap();
        assert!(invalid.contains(r#"assigned "../x\u{1b}""#), "{invalid}");
        assert_eq!(with(not_ready(Severity::Error), Some("place")), None);
    }
}
