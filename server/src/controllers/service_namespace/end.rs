//! Plans the end of a provider namespace.

use bindery_api::{
    Severity, annotations,
    conditions::{READY, false_condition},
    finalizers,
    v1alpha2::{APIServiceExport, APIServiceNamespace, GROUP, GroupResource},
};
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt as _;
use serde_json::{Map, Value, json};

use super::{
    apply::is_fresh,
    claimed::ClaimedObject,
    observed::{NamespaceLeftovers, Observed, is_ours},
    plan::record,
    rights, shared,
    status::{Published, status},
    valuable::Valuables,
};
use crate::{
    contract,
    leftovers::{Leftovers, SyncedObject},
    rbac::claims,
    template,
    writes::{self, Write},
};

/// What to do for an APIServiceNamespace.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum NamespaceStep {
    Apply(Vec<Write>),
    /// Objects of the contract remain, or rights that nothing may put off were withdrawn: look again soon.
    Drain(Vec<Write>),
    /// Objects that nobody removes keep the provider namespace: look again now and then.
    Leave(Vec<Write>),
    /// The server may not see all that is in the provider namespace: look again soon.
    Blind(Vec<Write>),
    /// Count what is left in the provider namespace, and plan again.
    Count,
    /// Delete the provider namespace.
    Delete(Box<Write>),
}

/// Adds up what is left: synced and claimed objects in the provider namespace. Objects that nobody will remove count as released: they
/// do not delay the end, and keep the namespace that they are in.
pub(super) fn count(seen: &Observed<'_>, mut leftovers: Leftovers, claimed: Vec<ClaimedObject>) -> NamespaceLeftovers {
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
    NamespaceLeftovers {
        leftovers,
        has_sources,
        ..NamespaceLeftovers::default()
    }
}

/// Whether it decides about the end of the namespace, or about what is said of it, whether valuable objects are in it.
pub(super) fn needs_look(left: &NamespaceLeftovers, namespace: &Namespace) -> bool {
    let is_known_to_stay = left.leftovers.has_released() || left.has_sources;
    let is_named = namespace.annotations().contains_key(annotations::KEPT_FOR);
    left.leftovers.count() == 0 && !(is_known_to_stay && is_named)
}

/// Plans the end of a namespace that nobody maps any more: it is deleted when no objects of the contract, no sources of claims and
/// no valuable objects are left in it.
pub(super) fn plan(seen: &Observed<'_>, object: Option<&APIServiceNamespace>) -> NamespaceStep {
    let withdrawn = shared::withdraw(seen);
    if !withdrawn.is_empty() {
        return NamespaceStep::Drain(withdrawn);
    }
    let Some(namespace) = seen.namespace.filter(|namespace| is_ours(seen, namespace)) else {
        let mut writes = Vec::new();
        shared::leave(seen, &mut writes);
        writes.extend(remove_finalizer(object));
        writes.extend(object.and_then(|object| held_itself(seen, object)));
        return NamespaceStep::Apply(writes);
    };
    if contract::is_terminating(namespace) {
        return terminating(seen, namespace, object);
    }
    let Some(left) = seen.left else {
        let existing = (seen.server_binding, seen.view_binding);
        let bindings = rights::server_bindings(existing, &namespace.name_any(), seen.server);
        return if bindings.is_empty() {
            NamespaceStep::Count
        } else {
            NamespaceStep::Apply(bindings)
        };
    };
    if left.leftovers.count() > 0 {
        if let Some(object) = object.filter(|object| is_still_needed(seen, object)) {
            return NamespaceStep::Apply(remove_finalizer(Some(object)).into_iter().collect());
        }
        let condition = false_condition(READY, Severity::Info, "Draining", left.leftovers.to_string());
        let mut writes = Vec::new();
        if let Some(object) = object {
            withdrawing(seen, namespace, &mut writes);
            writes.extend(status(seen, object, None, Published::AsBefore, condition));
        }
        return NamespaceStep::Drain(writes);
    }
    let is_valuable = |valuables: &Valuables| !valuables.objects.is_empty();
    if left.leftovers.has_released() || left.has_sources || left.valuables.as_ref().is_some_and(is_valuable) {
        return NamespaceStep::Leave(leave(seen, namespace, object, left));
    }
    let Some(valuables) = &left.valuables else {
        return NamespaceStep::Count;
    };
    if let Some(message) = valuables.explain_unseen(&namespace.name_any()) {
        let bindings = [seen.server_binding, seen.view_binding];
        let is_settling = bindings
            .into_iter()
            .flatten()
            .any(|binding| is_fresh(binding, seen.now));
        return NamespaceStep::Blind(if is_settling { Vec::new() } else { blind(seen, &message) });
    }
    NamespaceStep::Delete(Box::new(Write::delete(
        "nobody maps it, and nothing is left in it",
        namespace,
    )))
}

/// Plans the rights of exports that were made since the objects that are left were written: the konnector can remove these only by an
/// export that there is.
fn withdrawing(seen: &Observed<'_>, namespace: &Namespace, writes: &mut Vec<Write>) {
    let name = namespace.name_any();
    let within = rights::within(seen, &name);
    if seen.contract_stays && rights::is_lacking(seen, within) {
        writes.extend(record(seen, namespace));
        rights::plan(seen, within, writes);
    }
}

/// Whether the konnector said that it needs the provider namespace although the APIServiceNamespace is being deleted, and an export of
/// that konnector stays. Where all of them end, so do their copies, and the provider namespace after those.
fn is_still_needed(seen: &Observed<'_>, object: &APIServiceNamespace) -> bool {
    let is_owner = |export: &APIServiceExport| {
        let uid = export.metadata.uid.as_deref();
        object
            .owner_references()
            .iter()
            .any(|owner| Some(owner.uid.as_str()) == uid)
    };
    let mut exports = seen.exports.iter();
    seen.contract_stays
        && object.annotations().contains_key(annotations::STILL_NEEDED)
        && exports.any(|export| export.metadata.deletion_timestamp.is_none() && is_owner(export))
}

/// Waits for the end of a namespace that is being deleted, and says what it waits for where Kubernetes says that finalizers hold it.
fn terminating(seen: &Observed<'_>, namespace: &Namespace, object: Option<&APIServiceNamespace>) -> NamespaceStep {
    let conditions = namespace
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    let mut held = conditions.filter(|one| one.type_ == "NamespaceFinalizersRemaining" && one.status == "True");
    let (Some(object), Some(held)) = (object, held.next()) else {
        return NamespaceStep::Apply(Vec::new());
    };
    let Some(left) = seen.left else {
        return NamespaceStep::Count;
    };
    let name = namespace.name_any();
    let message = left.leftovers.explain_held().unwrap_or_else(|| {
        // Of a resource whose objects the server may not list there any more.
        format!(
            "namespace {name} of the provider is being deleted: {}; if no program removes them any more, an admin of the provider can \
             remove them from the objects of these kinds in it: kubectl describe namespace {name}",
            held.message.as_deref().unwrap_or("finalizers remain")
        )
    });
    NamespaceStep::Drain(held_by_finalizers(seen, object, message).into_iter().collect())
}

/// The status of an APIServiceNamespace that has only finalizers of others left.
fn held_itself(seen: &Observed<'_>, object: &APIServiceNamespace) -> Option<Write> {
    if writes::without_finalizer(object, finalizers::NAMESPACE).is_some() {
        return None;
    }
    let resource = GroupResource::new(GROUP, "apiservicenamespaces");
    let itself = SyncedObject::of(resource, seen.contract, &object.metadata, seen.contract);
    let objects = vec![itself];
    held_by_finalizers(seen, object, Leftovers { objects }.explain_held()?)
}

fn held_by_finalizers(seen: &Observed<'_>, object: &APIServiceNamespace, message: String) -> Option<Write> {
    let condition = false_condition(READY, Severity::Warning, "HeldByFinalizers", message);
    status(seen, object, None, Published::AsBefore, condition)
}

/// Gives up a namespace without deleting it, for released objects and those of the provider's own stay in it. What keeps it is
/// named in an annotation of the namespace, for the APIServiceNamespace ends.
fn leave(
    seen: &Observed<'_>,
    namespace: &Namespace,
    object: Option<&APIServiceNamespace>,
    left: &NamespaceLeftovers,
) -> Vec<Write> {
    let mut writes = Vec::new();
    let mut missing = Map::new();
    if !namespace.annotations().contains_key(annotations::RELEASED) {
        missing.insert(annotations::RELEASED.to_owned(), seen.now.to_string().into());
    }
    let kept_for = left.kept_for();
    if kept_for.is_some() && namespace.annotations().get(annotations::KEPT_FOR) != kept_for.as_ref() {
        missing.insert(annotations::KEPT_FOR.to_owned(), kept_for.into());
    }
    if !missing.is_empty() {
        let annotations = Value::Object(missing);
        writes.push(Write::annotate("objects that stay keep it", namespace, &annotations));
    }
    rights::remove(seen, rights::within(seen, ""), &mut writes);
    shared::leave(seen, &mut writes);
    writes.extend(remove_finalizer(object));
    writes
}

/// Says that a namespace is kept because the server may not see what is in it: in the status of the APIServiceNamespace, which
/// stays until the server sees it, or, if that is gone, in an annotation of the namespace.
pub(super) fn blind(seen: &Observed<'_>, message: &str) -> Vec<Write> {
    if let Some(object) = seen.object {
        let condition = false_condition(
            READY,
            Severity::Error,
            template::SERVER_LACKS_RIGHTS,
            message.to_owned(),
        );
        let status = status(seen, object, None, Published::AsBefore, condition);
        return status.into_iter().collect();
    }
    let untold = seen.namespace.filter(|namespace| {
        let known = namespace.annotations().get(annotations::KEPT_FOR);
        known.map(String::as_str) != Some(message)
    });
    let annotation = json!({ annotations::KEPT_FOR: message });
    let write = untold.map(|namespace| Write::annotate("the server may not see what is in it", namespace, &annotation));
    write.into_iter().collect()
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
