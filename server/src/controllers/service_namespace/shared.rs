//! The namespace of the consumer's own name, in which the claims of cluster-scoped exports without isolation are served.
//! Contracts share it: the server makes it, or its admin labelled one for it. The names of the roles in it hold the contract
//! too, and a namespace that the server made carries the contracts that use it, so that it can go after the last.

use std::{collections::BTreeMap, sync::Arc};

use bindery_api::{
    Condition, Severity, annotations,
    conditions::{READY, false_condition},
    labels,
};
use k8s_openapi::api::{
    core::v1::Namespace,
    rbac::v1::{Role, RoleBinding},
};
use kube::{ResourceExt as _, api::ObjectMeta};
use serde_json::json;

use super::{
    claimed,
    plan::{Observed, Op, Published},
    rights::{self, Within},
};
use crate::{contract, rbac::claims::Served, remaining, settings::Settings, writes};

/// The component by which a namespace is known as made by the server for contracts to share.
const COMPONENT: &str = "shared-namespace";
/// Namespaces of Kubernetes itself.
const RESERVED: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

pub(super) struct Seen<'a> {
    /// The namespace, if it is there for contracts to share.
    pub(super) namespace: Option<&'a Namespace>,
    /// Roles in it that carry a contract's mark.
    pub(super) roles: &'a [Arc<Role>],
    /// Role bindings in it that do.
    pub(super) bindings: &'a [Arc<RoleBinding>],
    /// The server's own binding in it.
    pub(super) sight: Option<&'a RoleBinding>,
    /// Names of the exports for which the admission policy was proved.
    pub(super) proved: &'a [String],
    /// Why no consumer's namespace of this name is shared.
    pub(super) reserved: Option<String>,
}

/// What the APIServiceNamespace says of its shared namespace.
#[derive(Debug)]
pub(super) struct Outcome<'a> {
    pub(super) published: Published<'a>,
    pub(super) problem: Option<Condition>,
}

/// Why contracts may not share a namespace of that name, if so. `is_contract` knows the contracts' own namespaces.
pub(super) fn reserved(name: &str, settings: &Settings, is_contract: impl Fn(&str) -> bool) -> Option<String> {
    let owner = if RESERVED.contains(&name) {
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

/// Whether a name is that of a provider namespace which a contract has or may have, also under another prefix.
fn is_under(name: &str, is_contract: impl Fn(&str) -> bool) -> bool {
    name.match_indices('-').any(|(at, _)| is_contract(&name[..at]))
}

/// Whether the server made a shared namespace. One that an admin labelled is never changed or deleted.
pub(super) fn is_made(namespace: &Namespace) -> bool {
    namespace.labels().get(labels::COMPONENT).map(String::as_str) == Some(COMPONENT)
}

/// Whether contracts may share a namespace.
pub(super) fn is_shared(namespace: &Namespace) -> bool {
    namespace.labels().get(labels::SHARED).map(String::as_str) == Some(annotations::TRUE)
}

/// The contracts that use a shared namespace which the server made.
pub(super) fn users(namespace: &Namespace) -> impl Iterator<Item = &str> {
    let marks = namespace.annotations().keys();
    marks.filter_map(|key| key.strip_prefix(annotations::SHARED_BY)?.strip_prefix('/'))
}

/// Whether a contract uses a shared namespace that the server made.
pub(super) fn is_used_by(namespace: &Namespace, contract: &str) -> bool {
    is_made(namespace) && users(namespace).any(|user| user == contract)
}

/// Serves the claims of the exports that stay, and leaves the namespace when no export is left that needs it.
pub(super) fn plan<'a>(seen: &Observed<'a>, ops: &mut Vec<Op>) -> Outcome<'a> {
    let is_served = !rights::claimed(seen, Served::Shared).is_empty();
    if !is_served {
        if is_awaited(seen) {
            rights::plan(seen, within(seen), ops);
            return Outcome::of(Published::AsBefore);
        }
        leave(seen, ops);
        return Outcome::of(Published::No);
    }
    if let Some(message) = &seen.shared.reserved {
        leave(seen, ops);
        return Outcome::refused(Severity::Error, "SharedNamespaceReserved", message.clone());
    }
    match seen.shared.namespace {
        None => ops.push(Op::CreateNamespace(Box::new(new_namespace(seen)))),
        Some(namespace) if contract::is_terminating(namespace) => {
            let message = format!(
                "namespace {} of the provider is being deleted; claims are served again when it has gone",
                seen.name
            );
            return Outcome::refused(Severity::Info, "SharedNamespaceTerminating", message);
        }
        Some(namespace) => ops.extend(join(seen, namespace)),
    }
    let is_admins = seen.shared.namespace.is_some_and(|namespace| !is_made(namespace));
    if !is_admins {
        ops.extend(
            rights::sight(seen.shared.sight, seen.name, seen.server)
                .into_iter()
                .map(Op::from),
        );
    }
    rights::plan(seen, within(seen), ops);
    Outcome::of(Published::Yes(seen.name))
}

/// Takes back what the contract has in the namespace.
pub(super) fn leave(seen: &Observed<'_>, ops: &mut Vec<Op>) {
    rights::remove(seen, within(seen), ops);
    let Some(namespace) = seen.shared.namespace else {
        return;
    };
    if is_used_by(namespace, seen.contract) && !contract::is_terminating(namespace) {
        let mut metadata = writes::seen(namespace);
        metadata["annotations"] = json!({ user_mark(seen.contract): null });
        ops.push(Op::PatchNamespace {
            name: seen.name.to_owned(),
            patch: json!({ "metadata": metadata }),
        });
    }
}

/// What the status says where something of somebody else's is in the way.
pub(super) fn foreign(seen: &Observed<'_>, name: &str, ops: &mut Vec<Op>) -> Outcome<'static> {
    rights::remove(seen, within(seen), ops);
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
    Outcome::refused(Severity::Error, "ForeignSharedNamespace", message)
}

/// Whether an export may need the namespace still or again: one that is deleting, is made anew, has no schema yet, or waits
/// for the proof of the admission policy.
fn is_awaited(seen: &Observed<'_>) -> bool {
    let mut exports = seen.exports.iter();
    !seen.awaited.is_empty()
        || exports.any(|export| {
            let is_unknown = !seen.scopes.know(&export.spec);
            let is_served = rights::is_served(seen, export, Served::Shared);
            !export.spec.permission_claims.is_empty() && (is_unknown || is_served)
        })
}

fn within<'a>(seen: &Observed<'a>) -> Within<'a> {
    Within {
        namespace: seen.name,
        served: Served::Shared,
        roles: seen.shared.roles,
        bindings: seen.shared.bindings,
    }
}

/// Puts contract and claims on record, before rights are given: until the contract has left, the namespace stays.
fn join(seen: &Observed<'_>, namespace: &Namespace) -> Option<Op> {
    if !is_made(namespace) {
        return None;
    }
    let before = claimed::recorded(namespace);
    let mut after = before.clone();
    after.extend(rights::claimed(seen, Served::Shared));
    let joined = users(namespace).any(|user| user == seen.contract);
    if joined && after == before {
        return None;
    }
    let mut metadata = writes::seen(namespace);
    metadata["annotations"] = json!({
        user_mark(seen.contract): annotations::TRUE,
        annotations::GRANTED_CLAIMS: remaining::granted_record(&after),
    });
    Some(Op::PatchNamespace {
        name: seen.name.to_owned(),
        patch: json!({ "metadata": metadata }),
    })
}

fn new_namespace(seen: &Observed<'_>) -> Namespace {
    let claims = remaining::granted_record(&rights::claimed(seen, Served::Shared));
    Namespace {
        metadata: ObjectMeta {
            name: Some(seen.name.to_owned()),
            labels: Some(BTreeMap::from([
                (labels::SHARED.to_owned(), annotations::TRUE.to_owned()),
                (labels::COMPONENT.to_owned(), COMPONENT.to_owned()),
            ])),
            annotations: Some(BTreeMap::from([
                (user_mark(seen.contract), annotations::TRUE.to_owned()),
                (annotations::GRANTED_CLAIMS.to_owned(), claims),
            ])),
            ..ObjectMeta::default()
        },
        ..Namespace::default()
    }
}

fn user_mark(contract: &str) -> String {
    format!("{}/{contract}", annotations::SHARED_BY)
}

// === impl Outcome ===

impl<'a> Outcome<'a> {
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
