//! The shared namespace: it has the name of the consumer's namespace, and the claims of cluster-scoped exports without
//! isolation are served in it, for several contracts. The server creates it, or an admin labels one. Roles in it have the
//! contract in their names. One that the server created names in its annotations the contracts that use it, and is deleted
//! after the last has left.

use std::collections::BTreeMap;

use bindery_api::{
    Condition, Severity, annotations,
    claims::KUBERNETES_NAMESPACES,
    conditions::{READY, false_condition},
    labels,
};
use k8s_openapi::api::core::v1::Namespace;
use kube::{ResourceExt as _, api::ObjectMeta};
use serde_json::json;

use super::{
    observed::Observed,
    rights::{self, RightsWithin},
    status::Published,
};
use crate::{
    contract,
    leftovers::{GrantRecord, recorded},
    rbac::claims::ClaimedPlacement,
    settings::Settings,
    writes::Write,
};

/// The value of label `kube-bind.io/component` on a shared namespace that the server created.
const COMPONENT: &str = "shared-namespace";

/// What the status of an APIServiceNamespace says about its shared namespace.
#[derive(Debug)]
pub(super) struct SharedOutcome<'a> {
    pub(super) published: Published<'a>,
    pub(super) problem: Option<Condition>,
}

/// Why contracts must not share a namespace of that name; `None` if they may. `is_contract` tells whether a name is that of a
/// contract namespace.
pub(super) fn reserved(name: &str, settings: &Settings, is_contract: impl Fn(&str) -> bool) -> Option<String> {
    let owner = if name == "default" || KUBERNETES_NAMESPACES.contains(&name) {
        "Kubernetes itself"
    } else if name == settings.namespace {
        "the server itself"
    } else if name.starts_with(&settings.namespace_prefix) || is_contract(name) || is_under(name, is_contract) {
        "the contracts"
    } else {
        return None;
    };
    Some(format!(
        "namespace {name} of the provider belongs to {owner} and is not shared; use another namespace for what is claimed"
    ))
}

/// Whether a name begins with the name of a contract and a dash, as provider namespaces of contracts do.
fn is_under(name: &str, is_contract: impl Fn(&str) -> bool) -> bool {
    name.match_indices('-').any(|(at, _)| is_contract(&name[..at]))
}

/// Whether the server created a shared namespace. It never changes or deletes one that an admin labelled.
pub(super) fn is_made(namespace: &Namespace) -> bool {
    namespace.labels().get(labels::COMPONENT).map(String::as_str) == Some(COMPONENT)
}

/// The contracts that use a shared namespace, from the annotations of one that the server created.
pub(super) fn users(namespace: &Namespace) -> impl Iterator<Item = &str> {
    let marks = namespace.annotations().keys();
    marks.filter_map(|key| key.strip_prefix(annotations::SHARED_BY)?.strip_prefix('/'))
}

/// Whether a contract uses this shared namespace, and the server created that.
pub(super) fn is_used_by(namespace: &Namespace, contract: &str) -> bool {
    is_made(namespace) && users(namespace).any(|user| user == contract)
}

/// Plans what the contract has in the shared namespace: the rights that serve claims, and their end when no export needs them.
pub(super) fn plan<'a>(seen: &Observed<'a>, writes: &mut Vec<Write>) -> SharedOutcome<'a> {
    let is_served = !rights::claimed(seen, ClaimedPlacement::Shared).is_empty();
    if !is_served {
        if may_be_needed(seen) {
            rights::plan(seen, within(seen), writes);
            return SharedOutcome::of(Published::AsBefore);
        }
        leave(seen, writes);
        return SharedOutcome::of(Published::No);
    }
    if let Some(message) = &seen.shared.reserved {
        leave(seen, writes);
        return SharedOutcome::refused(Severity::Error, "SharedNamespaceReserved", message.clone());
    }
    match seen.shared.namespace {
        None => writes.push(Write::create(
            "claims are served in it",
            &new_namespace(seen),
            &[labels::SHARED],
        )),
        Some(namespace) if contract::is_terminating(namespace) => {
            let message = format!(
                "namespace {} of the provider is being deleted; claims are served again when it is gone",
                seen.name
            );
            return SharedOutcome::refused(Severity::Info, "SharedNamespaceTerminating", message);
        }
        Some(namespace) => writes.extend(join(seen, namespace)),
    }
    let is_admins = seen.shared.namespace.is_some_and(|namespace| !is_made(namespace));
    if !is_admins {
        writes.extend(rights::server_binding(
            seen.shared.server_binding,
            seen.name,
            seen.server,
        ));
    }
    rights::plan(seen, within(seen), writes);
    SharedOutcome::of(Published::Yes(seen.name))
}

/// Plans the end of all that the contract has in the shared namespace.
pub(super) fn leave(seen: &Observed<'_>, writes: &mut Vec<Write>) {
    rights::remove(seen, within(seen), writes);
    let Some(namespace) = seen.shared.namespace else {
        return;
    };
    if is_used_by(namespace, seen.contract) && !contract::is_terminating(namespace) {
        let annotation = json!({ user_annotation(seen.contract): null });
        writes.push(Write::annotate(
            "the contract does not use it any more",
            namespace,
            &annotation,
        ));
    }
}

/// The status, and the end of all rights, where an object that is not the server's is in the way: the namespace itself, or an
/// object in it.
pub(super) fn foreign(seen: &Observed<'_>, name: &str, writes: &mut Vec<Write>) -> SharedOutcome<'static> {
    rights::remove(seen, within(seen), writes);
    let message = if name == seen.name {
        format!(
            "namespace {name} exists on the provider and is not shared, so that claims are not served in it; its admin can \
             label it {}={}",
            labels::SHARED,
            annotations::TRUE
        )
    } else {
        format!("{name} exists on the provider and is not managed by kube-bind; its admin can rename or delete it")
    };
    SharedOutcome::refused(Severity::Error, "ForeignSharedNamespace", message)
}

/// Whether an export may need the shared namespace still or again: it is being deleted, is made anew, has no schema yet, or
/// waits for the proof of the admission policy.
fn may_be_needed(seen: &Observed<'_>) -> bool {
    let mut exports = seen.exports.iter();
    !seen.pending_exports.is_empty()
        || exports.any(|export| {
            let is_unknown = !seen.scopes.know(&export.spec);
            let is_served = rights::is_served(seen, export, ClaimedPlacement::Shared);
            !export.spec.permission_claims.is_empty() && (is_unknown || is_served)
        })
}

fn within<'a>(seen: &Observed<'a>) -> RightsWithin<'a> {
    RightsWithin {
        namespace: seen.name,
        served: ClaimedPlacement::Shared,
        roles: seen.shared.roles,
        bindings: seen.shared.bindings,
    }
}

/// Records the contract and its claims in the annotations of a namespace that the server created, before rights are granted.
/// The namespace is not deleted until the contract has left it.
fn join(seen: &Observed<'_>, namespace: &Namespace) -> Option<Write> {
    if !is_made(namespace) {
        return None;
    }
    let before = recorded(namespace, GrantRecord::Claims);
    let mut after = before.clone();
    after.extend(rights::claimed(seen, ClaimedPlacement::Shared));
    let joined = users(namespace).any(|user| user == seen.contract);
    if joined && after == before {
        return None;
    }
    let annotations = json!({
        user_annotation(seen.contract): annotations::TRUE,
        annotations::GRANTED_CLAIMS: GrantRecord::value(&after),
    });
    Some(Write::annotate("the contract uses it", namespace, &annotations))
}

fn new_namespace(seen: &Observed<'_>) -> Namespace {
    let claims = GrantRecord::value(&rights::claimed(seen, ClaimedPlacement::Shared));
    Namespace {
        metadata: ObjectMeta {
            name: Some(seen.name.to_owned()),
            labels: Some(BTreeMap::from([
                (labels::SHARED.to_owned(), annotations::TRUE.to_owned()),
                (labels::COMPONENT.to_owned(), COMPONENT.to_owned()),
            ])),
            annotations: Some(BTreeMap::from([
                (user_annotation(seen.contract), annotations::TRUE.to_owned()),
                (annotations::GRANTED_CLAIMS.to_owned(), claims),
            ])),
            ..ObjectMeta::default()
        },
        ..Namespace::default()
    }
}

/// The annotation of a shared namespace by which a contract uses it.
fn user_annotation(contract: &str) -> String {
    format!("{}/{contract}", annotations::SHARED_BY)
}

// === impl SharedOutcome ===

impl<'a> SharedOutcome<'a> {
    fn of(published: Published<'a>) -> Self {
        Self {
            published,
            problem: None,
        }
    }

    fn refused(severity: Severity, reason: &str, message: String) -> Self {
        Self {
            published: Published::No,
            problem: Some(false_condition(READY, severity, reason, message)),
        }
    }
}

#[cfg(test)]
mod tests;
