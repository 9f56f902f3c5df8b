//! The writes that bring a role and its binding to what is wanted, in a namespace or in the whole cluster.

use bindery_api::labels;

use crate::{
    rbac::{AnyBinding, AnyRole, binds_the_same},
    writes::Write,
};
use serde_json::json;

/// Creates a role, or gives an existing one the wanted rules.
pub(super) fn role<R: AnyRole>(reason: &'static str, existing: Option<&R>, wanted: &R) -> Option<Write> {
    match existing {
        None => Some(Write::create(reason, wanted, &[labels::CONTRACT])),
        Some(existing) if existing.rules() == wanted.rules() => None,
        Some(existing) => Some(Write::patch(reason, existing, json!({ "rules": wanted.rules() }))),
    }
}

/// Creates a binding. The API server lets nobody change what a binding binds, so that one which binds anything else is
/// deleted first.
pub(super) fn binding<B: AnyBinding>(reason: &'static str, existing: Option<&B>, wanted: &B) -> Vec<Write> {
    if existing.is_some_and(|existing| binds_the_same(existing, wanted)) {
        return Vec::new();
    }
    let delete = existing.map(|existing| Write::delete("it binds something else", existing));
    let create = Write::create(reason, wanted, &[labels::CONTRACT, labels::COMPONENT]);
    delete.into_iter().chain([create]).collect()
}

/// Deletes a binding and the role that it binds, as far as they exist.
pub(super) fn revoke<B: AnyBinding, R: AnyRole>(
    reason: &'static str,
    binding: Option<&B>,
    role: Option<&R>,
) -> impl Iterator<Item = Write> + use<B, R> {
    let binding = binding.map(|binding| Write::delete(reason, binding));
    binding.into_iter().chain(role.map(|role| Write::delete(reason, role)))
}
