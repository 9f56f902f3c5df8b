//! The retained copies of a binding: the list of them, and the decision about what the user orders for one.

use bindery_api::{
    annotations,
    retention::{RetentionAction, RetentionOrder},
    v1alpha2::{GroupResource, RetainedObject, RetainedObjects},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;

use super::{observed::ObservedBinding, op::BindingOp};
use crate::{bound::EndRetentionError, index::LISTED_MAX};

/// An event repeats at most this many bytes of a text that is no order.
const SHOWN_MAX: usize = 64;

/// The retained copies of a binding; `None` until all its objects are known.
pub(super) fn listed(seen: &ObservedBinding) -> Option<RetainedObjects> {
    if seen.engines.is_empty() || !is_known(seen) {
        return None;
    }
    let mut all = RetainedObjects::default();
    for engine in seen.engines.values() {
        let retained = &engine.progress.retained;
        let resource = &engine.spec.resource;
        all.count = all
            .count
            .saturating_add(i64::try_from(retained.count).unwrap_or(i64::MAX));
        all.first
            .extend(retained.first.iter().map(|(key, times)| RetainedObject {
                group_resource: GroupResource::new(&*resource.group, &*resource.plural),
                namespace: key.namespace.to_string(),
                name: key.name.to_string(),
                since: Time(times.since),
                until: times.until.map(Time),
            }));
    }
    let order = |object: &RetainedObject| {
        (
            object.group_resource.clone(),
            object.namespace.clone(),
            object.name.clone(),
        )
    };
    all.first.sort_by_cached_key(order);
    all.first.truncate(LISTED_MAX);
    Some(all)
}

/// Decides what to do about the user's order; `None` if there is none, or while not all objects are known.
pub(super) fn answer(seen: &ObservedBinding) -> Option<BindingOp> {
    let text = seen.binding.annotations().get(annotations::END_RETENTION)?;
    let Ok(order) = text.parse::<RetentionOrder>() else {
        let shown = &text[..text.floor_char_boundary(SHOWN_MAX)];
        return Some(BindingOp::RefuseRetentionOrder {
            message: format!(
                "annotation {} is {shown:?}, which is no order; run kubectl bind retained {}",
                annotations::END_RETENTION,
                seen.name()
            ),
        });
    };
    is_known(seen).then_some(BindingOp::EndRetention(order))
}

/// What the event says that answers an order that is carried out.
pub(super) fn ending(order: &RetentionOrder) -> String {
    match order.action {
        RetentionAction::Restore => format!("{} is being restored, as the user ordered", named(order)),
        RetentionAction::Discard => format!("the copy of {} is being deleted, as the user ordered", named(order)),
    }
}

/// What the event says that answers an order that cannot be carried out.
pub(super) fn refused(order: &RetentionOrder, error: EndRetentionError) -> String {
    format!("cannot {} {}: {error}", order.action.as_str(), named(order))
}

fn named(order: &RetentionOrder) -> String {
    let RetentionOrder {
        resource,
        namespace,
        name,
        ..
    } = order;
    if namespace.is_empty() {
        format!("{resource} {name}")
    } else {
        format!("{resource} {namespace}/{name}")
    }
}

fn is_known(seen: &ObservedBinding) -> bool {
    let mut engines = seen.engines.values().map(|engine| &engine.progress);
    engines.all(|progress| progress.consumer_synced && progress.provider_synced)
}

#[cfg(test)]
#[path = "tests/retained.rs"]
mod tests;
