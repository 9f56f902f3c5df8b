//! The status of an APIServiceNamespace.

use bindery_api::{Condition, Conditions as _, v1alpha2::APIServiceNamespace};
use serde_json::json;

use super::observed::Observed;
use crate::writes::Write;

/// What becomes of `status.sharedNamespace`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Published<'a> {
    AsBefore,
    No,
    Yes(&'a str),
}

/// Writes the status with this condition, and with the provider namespace if that is assigned now. The write has no resource
/// version as precondition, since only the server writes this status.
pub(super) fn status(
    seen: &Observed<'_>,
    object: &APIServiceNamespace,
    assign: Option<&str>,
    shared: Published<'_>,
    ready: Condition,
) -> Option<Write> {
    let before = object.status.clone().unwrap_or_default();
    let mut status = before.clone();
    if let Some(name) = assign {
        status.namespace = Some(name.to_owned());
    }
    match shared {
        Published::AsBefore => {}
        Published::No => status.shared_namespace = None,
        Published::Yes(name) => status.shared_namespace = Some(name.to_owned()),
    }
    status.set_condition(ready, seen.now);
    if status == before {
        return None;
    }
    let mut said = json!({ "namespace": status.namespace, "conditions": status.conditions });
    if status.shared_namespace != before.shared_namespace {
        said["sharedNamespace"] = json!(status.shared_namespace);
    }
    Some(Write::status("the state of the namespace changed", object, &said).of_any_version())
}
