//! The shared namespace: it has the name of the consumer's namespace, and the claims of cluster-scoped exports without
//! isolation are served in it, for several contracts. The provider's admin makes and labels it: a user who chooses a name on
//! a consumer must not choose by that where several contracts read and write. Roles in it have the contract in their names.
//!
//! Servers of earlier versions made such namespaces without asking. No claims are served in these any more, and each is deleted
//! once it is empty.

use bindery_api::{
    Condition, Severity, annotations,
    claims::KUBERNETES_NAMESPACES,
    conditions::{READY, false_condition},
    labels,
};
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt as _;
use serde_json::json;

use super::{
    observed::Observed,
    rights::{self, RightsWithin},
    status::Published,
};
use crate::{contract, policy, rbac::claims::ClaimedPlacement, settings::Settings, template::Refusal, writes::Write};

/// The value of label `kube-bind.io/component` on a shared namespace that a server of an earlier version created.
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

/// Whether a server of an earlier version created a shared namespace. The server never changes or deletes one that an admin
/// labelled. An admin who removes label `kube-bind.io/component` has labelled it.
pub(super) fn is_made(namespace: &Namespace) -> bool {
    namespace.labels().get(labels::COMPONENT).map(String::as_str) == Some(COMPONENT)
}

/// The contracts that used a shared namespace, from the annotations of one that an earlier version created.
pub(super) fn users(namespace: &Namespace) -> impl Iterator<Item = &str> {
    let marks = namespace.annotations().keys();
    marks.filter_map(|key| key.strip_prefix(annotations::SHARED_BY)?.strip_prefix('/'))
}

/// Plans what the contract has in the shared namespace: the rights that serve claims, and their end when no export needs them, or
/// the namespace must not be shared.
pub(super) fn plan<'a>(seen: &Observed<'a>, writes: &mut Vec<Write>) -> SharedOutcome<'a> {
    let is_served = !rights::claimed(seen, ClaimedPlacement::Shared).is_empty();
    if let Some((reason, message)) = refusal(seen) {
        leave(seen, writes);
        return if is_served {
            SharedOutcome::refused(Severity::Error, reason, message)
        } else {
            SharedOutcome::of(Published::No)
        };
    }
    if !is_served {
        if may_be_needed(seen) {
            rights::plan(seen, within(seen), writes);
            return SharedOutcome::of(Published::AsBefore);
        }
        leave(seen, writes);
        return SharedOutcome::of(Published::No);
    }
    if seen.shared.namespace.is_some_and(contract::is_terminating) {
        let message = format!(
            "namespace {} of the provider is being deleted; claims are served again when it is there again, labelled {}={}",
            seen.name,
            labels::SHARED,
            annotations::TRUE
        );
        return SharedOutcome::refused(Severity::Info, "SharedNamespaceTerminating", message);
    }
    rights::plan(seen, within(seen), writes);
    if seen.shared.withheld && rights::is_lacking(seen, within(seen)) {
        let refusal = Refusal::AdmissionPolicyMissing { policy: policy::NAME };
        return SharedOutcome {
            published: Published::AsBefore,
            ..SharedOutcome::refused(Severity::Error, refusal.reason(), refusal.to_string())
        };
    }
    SharedOutcome::of(Published::Yes(seen.name))
}

/// Why claims must not be served in the shared namespace, as reason and message of a condition; `None` if they may.
fn refusal(seen: &Observed<'_>) -> Option<(&'static str, String)> {
    if let Some(message) = &seen.shared.reserved {
        return Some(("SharedNamespaceReserved", message.clone()));
    }
    let name = seen.name;
    let message = match seen.shared.namespace {
        Some(namespace) if !is_made(namespace) => return None,
        Some(_) => format!(
            "namespace {name} of the provider was made by a server of an earlier version, and no admin agreed that consumers share \
             it, so that claims are not served in it any more; copies that are in it stay there; its admin can delete them, or \
             share it again: kubectl label namespace {name} {}-",
            labels::COMPONENT
        ),
        None => format!(
            "no admin agreed that consumers share namespace {name} of the provider, so that claims are not served in it; an admin \
             can create it, if it does not exist, and share it: kubectl label namespace {name} {}={}",
            labels::SHARED,
            annotations::TRUE
        ),
    };
    Some(("SharedNamespaceNotLabelled", message))
}

/// Plans the end of what the contract has in a shared namespace in which claims must not be served. Nothing waits for it: what the
/// contract does elsewhere cannot put it off.
pub(super) fn withdraw(seen: &Observed<'_>) -> Vec<Write> {
    let mut writes = Vec::new();
    if refusal(seen).is_some() {
        leave(seen, &mut writes);
    }
    writes
}

/// Plans the end of all that the contract has in the shared namespace.
pub(super) fn leave(seen: &Observed<'_>, writes: &mut Vec<Write>) {
    rights::remove(seen, within(seen), writes);
    let Some(namespace) = seen.shared.namespace else {
        return;
    };
    let is_user = is_made(namespace) && users(namespace).any(|user| user == seen.contract);
    if is_user && !contract::is_terminating(namespace) {
        let annotation = json!({ user_annotation(seen.contract): null });
        writes.push(Write::annotate(
            "the contract does not use it any more",
            namespace,
            &annotation,
        ));
    }
}

/// The status, and the end of all rights, where an object in the shared namespace is in the way that is not the server's.
pub(super) fn foreign(seen: &Observed<'_>, name: &str, writes: &mut Vec<Write>) -> SharedOutcome<'static> {
    rights::remove(seen, within(seen), writes);
    let message =
        format!("{name} exists on the provider and is not managed by kube-bind; its admin can rename or delete it");
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

/// The annotation of a shared namespace that an earlier version created, by which a contract used it.
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
