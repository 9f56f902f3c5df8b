//! Plans the end of a provider namespace.

use bindery_api::{
    Severity, annotations,
    conditions::{READY, false_condition},
    finalizers,
    v1alpha2::APIServiceNamespace,
};
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt as _;
use serde_json::json;

use super::{
    claimed::{ClaimedObject, needs_server_binding},
    observed::{NamespaceLeftovers, Observed, is_ours},
    rights, shared,
    status::{Published, status},
};
use crate::{
    contract,
    leftovers::{GrantRecord, Leftovers, SyncedObject, recorded},
    rbac::claims,
    writes::{self, Write},
};

/// What to do for an APIServiceNamespace.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum NamespaceStep {
    Apply(Vec<Write>),
    /// Objects of the contract remain: look again soon.
    Drain(Vec<Write>),
    /// Objects that nobody removes keep the provider namespace: look again now and then.
    Leave(Vec<Write>),
    /// Count what is left in the provider namespace, and plan again.
    Count,
    /// Delete the provider namespace.
    Delete(Box<Write>),
}

/// Adds up what is left: synced and claimed objects in the provider namespace, and the contract's copies in the shared one.
/// Objects that nobody will remove count as released: they do not delay the end, and keep the namespace that they are in.
pub(super) fn count(
    seen: &Observed<'_>,
    mut leftovers: Leftovers,
    claimed: Vec<ClaimedObject>,
    shared: Vec<ClaimedObject>,
) -> NamespaceLeftovers {
    let exports = seen.exports;
    let is_pending = !seen.pending_exports.is_empty();
    let is_ours = |claimed: &ClaimedObject| claimed.copy_for.as_deref() == Some(seen.contract);
    // The konnector withdraws copies of what an export claims, and objects that an export offers; it has no rights on others.
    let is_withdrawn = |claimed: &ClaimedObject| {
        let resource = &claimed.object.resource;
        let mut exports = exports.iter();
        is_pending || exports.any(|export| claims::claimed(export).any(|claimed| claimed == resource))
    };
    let is_offered = |object: &SyncedObject| {
        let mut resources = exports.iter().flat_map(|export| &export.spec.resources);
        is_pending || resources.any(|offered| offered.group_resource == object.resource)
    };
    for object in &mut leftovers.objects {
        object.released |= !is_offered(object);
    }
    let has_sources = claimed.iter().any(|claimed| !is_ours(claimed));
    let copies = claimed.into_iter().filter(is_ours);
    leftovers.objects.extend(copies.map(|claimed| SyncedObject {
        released: claimed.object.released || !is_withdrawn(&claimed),
        ..claimed.object
    }));
    // In the shared namespace only objects with the contract's annotation or name can be the contract's.
    let prefix = format!("{}-", seen.contract);
    let copies = shared.into_iter().filter(|claimed| {
        let is_its = is_ours(claimed) || claimed.object.name.starts_with(&prefix);
        is_its && is_withdrawn(claimed)
    });
    leftovers.objects.extend(copies.map(|claimed| SyncedObject {
        released: false,
        ..claimed.object
    }));
    NamespaceLeftovers { leftovers, has_sources }
}

/// Plans the end of a namespace that nobody maps any more: it is deleted when neither objects of the contract nor sources of
/// claims are left in it.
pub(super) fn plan(seen: &Observed<'_>, object: Option<&APIServiceNamespace>) -> NamespaceStep {
    let Some(namespace) = seen.namespace.filter(|namespace| is_ours(seen, namespace)) else {
        let mut writes = Vec::new();
        shared::leave(seen, &mut writes);
        writes.extend(remove_finalizer(object));
        return NamespaceStep::Apply(writes);
    };
    if contract::is_terminating(namespace) {
        return NamespaceStep::Apply(Vec::new());
    }
    let Some(left) = seen.left else {
        let server_binding = if needs_server_binding(&recorded(namespace, GrantRecord::Claims)) {
            rights::server_binding(seen.server_binding, &namespace.name_any(), seen.server)
        } else {
            Vec::new()
        };
        return if server_binding.is_empty() {
            NamespaceStep::Count
        } else {
            NamespaceStep::Apply(server_binding)
        };
    };
    if left.leftovers.count() > 0 {
        let condition = false_condition(READY, Severity::Info, "Draining", left.leftovers.to_string());
        let status = object.and_then(|object| status(seen, object, None, Published::AsBefore, condition));
        return NamespaceStep::Drain(status.into_iter().collect());
    }
    if left.leftovers.has_released() || left.has_sources {
        return NamespaceStep::Leave(leave(seen, namespace, object));
    }
    NamespaceStep::Delete(Box::new(Write::delete(
        "nobody maps it, and nothing is left in it",
        namespace,
    )))
}

/// Gives up a namespace without deleting it, for released objects and those of the provider's own stay in it.
fn leave(seen: &Observed<'_>, namespace: &Namespace, object: Option<&APIServiceNamespace>) -> Vec<Write> {
    let mut writes = Vec::new();
    if !namespace.annotations().contains_key(annotations::RELEASED) {
        let annotation = json!({ annotations::RELEASED: seen.now.to_string() });
        writes.push(Write::annotate("objects that stay keep it", namespace, &annotation));
    }
    rights::remove(seen, rights::within(seen, ""), &mut writes);
    shared::leave(seen, &mut writes);
    writes.extend(remove_finalizer(object));
    writes
}

fn remove_finalizer(object: Option<&APIServiceNamespace>) -> Option<Write> {
    let object = object?;
    let remaining = writes::without_finalizer(object, finalizers::NAMESPACE)?;
    Some(Write::finalizers(
        "its provider namespace was given up",
        object,
        &remaining,
    ))
}
