//! What an APIServiceNamespace is missing, and how it ends.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bindery_api::{
    Condition, Conditions as _, Severity, annotations,
    conditions::{READY, false_condition, true_condition},
    finalizers, labels, meta, names,
    v1alpha2::{APIServiceExport, APIServiceNamespace, GroupResource},
};
use jiff::Timestamp;
use k8s_openapi::api::{
    core::v1::Namespace,
    rbac::v1::{PolicyRule, Role, RoleBinding, Subject},
};
use kube::{ResourceExt as _, api::ObjectMeta};
use serde_json::{Value, json};

use super::{
    claimed, end,
    rights::{self, Within},
    shared,
};
use crate::{
    contract, owner,
    rbac::{Scopes, claims::Served},
    remaining::{self, Remaining},
    template, writes,
};

/// Reason of what waits for a place among the namespaces that the contract may have.
pub(super) const TOO_MANY_NAMESPACES: &str = "TooManyNamespaces";

pub(super) struct Observed<'a> {
    pub(super) contract: &'a str,
    /// The consumer's namespace.
    pub(super) name: &'a str,
    /// The APIServiceNamespace; `None` if it has gone.
    pub(super) object: Option<&'a APIServiceNamespace>,
    /// The provider namespace of the name it has or would have.
    pub(super) namespace: Option<&'a Namespace>,
    /// Whether the contract is there and not on its way out.
    pub(super) contract_stays: bool,
    /// All exports of the contract.
    pub(super) exports: &'a [Arc<APIServiceExport>],
    /// In which scope the consumer sees the contract's resources.
    pub(super) scopes: &'a Scopes,
    /// Names of exports that are about to be made anew.
    pub(super) awaited: &'a [String],
    /// Roles in the provider namespace that carry a contract's mark.
    pub(super) roles: &'a [Arc<Role>],
    /// Role bindings in it that do.
    pub(super) bindings: &'a [Arc<RoleBinding>],
    /// The server's own binding in it, by which it sees what is claimed there.
    pub(super) sight: Option<&'a RoleBinding>,
    /// What is left in the provider namespace, once it was counted.
    pub(super) left: Option<&'a Left>,
    /// The namespace of the consumer's own name.
    pub(super) shared: shared::Seen<'a>,
    /// How many namespaces the contract may have, where this one is beyond that.
    pub(super) beyond: Option<usize>,
    /// The server itself.
    pub(super) server: &'a Subject,
    pub(super) now: Timestamp,
}

/// What is left in a provider namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Left {
    /// What carries the contract's mark.
    pub(super) remaining: Remaining,
    /// Whether there are objects of the provider's own that may be the source of a claim.
    pub(super) has_sources: bool,
}

/// What the status says of the shared namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Published<'a> {
    AsBefore,
    No,
    Yes(&'a str),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    Apply(Vec<Op>),
    /// Objects remain: to be looked at again.
    Drain(Vec<Op>),
    /// What nobody of ours will take away keeps the namespace: to be looked at again now and then.
    Leave(Vec<Op>),
    /// The objects in the provider namespace must be counted before more can be said.
    Count,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Op {
    Patch(Value),
    Say(Value),
    CreateNamespace(Box<Namespace>),
    PatchNamespace {
        name: String,
        patch: Value,
    },
    DeleteNamespace {
        name: String,
        uid: Option<String>,
    },
    CreateRole(Box<Role>),
    PatchRole {
        namespace: String,
        name: String,
        rules: Option<Vec<PolicyRule>>,
        metadata: Value,
    },
    CreateBinding(Box<RoleBinding>),
    DeleteRole {
        namespace: String,
        name: String,
        uid: Option<String>,
    },
    DeleteBinding {
        namespace: String,
        name: String,
        uid: Option<String>,
    },
}

/// The provider namespace of an APIServiceNamespace: the one it has, for that never changes, or the one it would get.
pub(super) fn provider_namespace(contract: &str, object: &APIServiceNamespace) -> String {
    let assigned = object.status.as_ref().and_then(|status| status.namespace.clone());
    assigned.unwrap_or_else(|| names::provider_namespace(contract, &object.name_any()))
}

pub(super) fn plan(seen: &Observed<'_>) -> Step {
    match seen.object {
        Some(object) if object.metadata.deletion_timestamp.is_none() => Step::Apply(keep(seen, object)),
        ending => end::plan(seen, ending),
    }
}

/// What the status says where the server may not give some exports their rights: the others have theirs.
pub(super) fn lacking(seen: &Observed<'_>, message: String) -> Option<Op> {
    let object = seen.object?;
    let condition = false_condition(READY, Severity::Error, template::SERVER_LACKS_RIGHTS, message);
    let ending = object.metadata.deletion_timestamp.is_some();
    let name = (!ending).then(|| provider_namespace(seen.contract, object));
    say(seen, object, name.as_deref(), Published::AsBefore, condition)
}

/// What remains to be done where something of somebody else's is in the way in the shared namespace: the ordinary mapping
/// holds.
pub(super) fn foreign_shared(seen: &Observed<'_>, name: &str) -> Vec<Op> {
    let mut ops = Vec::new();
    let outcome = shared::foreign(seen, name, &mut ops);
    if let Some(object) = seen.object {
        let name = provider_namespace(seen.contract, object);
        ops.extend(publish(seen, object, &name, outcome));
    }
    ops
}

/// The condition that an object of somebody else stands in the way.
pub(super) fn foreign(seen: &Observed<'_>, name: &str) -> Option<Op> {
    let message =
        format!("{name} exists on the provider and is not managed by kube-bind; its admin can rename or delete it");
    say(
        seen,
        seen.object?,
        None,
        Published::AsBefore,
        false_condition(READY, Severity::Error, "ForeignNamespace", message),
    )
}

fn keep(seen: &Observed<'_>, object: &APIServiceNamespace) -> Vec<Op> {
    let refuse = |reason: &str, message: String| {
        let condition = false_condition(READY, Severity::Error, reason, message);
        let said = say(seen, object, None, Published::AsBefore, condition);
        said.into_iter().collect()
    };
    if !seen.contract_stays {
        return Vec::new();
    }
    if !names::is_label(seen.name) {
        return refuse(
            "InvalidName",
            format!("{:?} is no name of a namespace; delete this object", seen.name),
        );
    }
    if let Some(limit) = seen.beyond {
        return refuse(
            TOO_MANY_NAMESPACES,
            format!(
                "this consumer may have {limit} namespaces on the provider and has as many, with those that are kept for what \
                 is left in them; it waits until one of them goes, or the provider raises --max-namespaces-per-contract"
            ),
        );
    }
    let name = provider_namespace(seen.contract, object);
    let mut ops = Vec::new();
    ops.extend(metadata(seen, object));
    match seen.namespace {
        None => ops.push(Op::CreateNamespace(Box::new(new_namespace(seen, &name)))),
        Some(namespace) if !is_ours(seen, namespace) => {
            let owner = contract::of(namespace).unwrap_or("nobody");
            return refuse(
                "NamespaceOfOtherContract",
                format!("namespace {name} of the provider belongs to {owner}; choose another name"),
            );
        }
        Some(namespace) if contract::is_terminating(namespace) => {
            let message =
                format!("namespace {name} of the provider is being deleted; it is made anew when it has gone");
            let condition = false_condition(READY, Severity::Info, "NamespaceTerminating", message);
            let said = say(seen, object, None, Published::AsBefore, condition);
            return said.into_iter().collect();
        }
        Some(namespace) => ops.extend(record(seen, namespace)),
    }
    if claimed::needs_sight(&rights::claimed(seen, Served::Mapped)) {
        ops.extend(rights::sight(seen.sight, &name, seen.server).into_iter().map(Op::from));
    }
    rights::plan(seen, within(seen, &name), &mut ops);
    let outcome = shared::plan(seen, &mut ops);
    // Last, for whoever reads the status may rely on the namespaces and on the rights in them.
    ops.extend(publish(seen, object, &name, outcome));
    ops
}

pub(super) fn within<'a>(seen: &Observed<'a>, namespace: &'a str) -> Within<'a> {
    Within {
        namespace,
        served: Served::Mapped,
        roles: seen.roles,
        bindings: seen.bindings,
    }
}

/// The status of one that has its provider namespace.
fn publish(seen: &Observed<'_>, object: &APIServiceNamespace, name: &str, outcome: shared::Outcome<'_>) -> Option<Op> {
    let ready = outcome.problem.unwrap_or_else(|| true_condition(READY));
    say(seen, object, Some(name), outcome.published, ready)
}

/// The finalizer, and one plain reference per export: whichever unbinds last takes the namespace along.
fn metadata(seen: &Observed<'_>, object: &APIServiceNamespace) -> Option<Op> {
    let live = seen
        .exports
        .iter()
        .filter(|export| export.metadata.deletion_timestamp.is_none());
    let owners: Vec<_> = live.map(|export| meta::owner_reference(&**export)).collect();
    let finalizers = writes::with_finalizer(object, finalizers::NAMESPACE);
    let owners = owner::shared(object, &owners);
    if finalizers.is_none() && owners.is_none() {
        return None;
    }
    let mut metadata = writes::seen(object);
    if let Some(finalizers) = finalizers {
        metadata["finalizers"] = json!(finalizers);
    }
    if let Some(owners) = owners {
        metadata["ownerReferences"] = json!(owners);
    }
    Some(Op::Patch(json!({ "metadata": metadata })))
}

/// What is about to be granted, on record before it is: it tells what may be left here when nobody else knows any more. One
/// that was released is in use again.
fn record(seen: &Observed<'_>, namespace: &Namespace) -> Option<Op> {
    let mut granted = remaining::granted(namespace);
    granted.extend(rights::granted(seen));
    let mut claims = claimed::recorded(namespace);
    claims.extend(rights::claimed(seen, Served::Mapped));
    let mut wanted = records(&granted, &claims);
    if namespace.annotations().contains_key(annotations::RELEASED) {
        wanted.insert(annotations::RELEASED, None);
    }
    wanted.retain(|key, value| namespace.annotations().get(*key) != value.as_ref());
    (!wanted.is_empty()).then(|| {
        let mut metadata = writes::seen(namespace);
        metadata["annotations"] = json!(wanted);
        Op::PatchNamespace {
            name: namespace.name_any(),
            patch: json!({ "metadata": metadata }),
        }
    })
}

fn records(
    granted: &BTreeSet<GroupResource>,
    claims: &BTreeSet<GroupResource>,
) -> BTreeMap<&'static str, Option<String>> {
    let mut records = BTreeMap::from([(annotations::GRANTED_RESOURCES, Some(remaining::granted_record(granted)))]);
    if !claims.is_empty() {
        records.insert(annotations::GRANTED_CLAIMS, Some(remaining::granted_record(claims)));
    }
    records
}

/// Marked with the contract and with the very object.
pub(super) fn is_ours(seen: &Observed<'_>, namespace: &Namespace) -> bool {
    let key = format!("{}/{}", seen.contract, seen.name);
    contract::of(namespace) == Some(seen.contract)
        && namespace.annotations().get(annotations::API_SERVICE_NAMESPACE) == Some(&key)
}

fn new_namespace(seen: &Observed<'_>, name: &str) -> Namespace {
    let records = records(&rights::granted(seen), &rights::claimed(seen, Served::Mapped));
    let records = records
        .into_iter()
        .filter_map(|(key, value)| Some((key.to_owned(), value?)));
    let key = format!("{}/{}", seen.contract, seen.name);
    let marks = records
        .chain([(annotations::API_SERVICE_NAMESPACE.to_owned(), key)])
        .collect();
    Namespace {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(BTreeMap::from([(
                labels::CONTRACT.to_owned(),
                seen.contract.to_owned(),
            )])),
            annotations: Some(marks),
            ..ObjectMeta::default()
        },
        ..Namespace::default()
    }
}

/// The status with this condition, and with the provider namespace if that is given now. Only the server writes it, so
/// that no resource version is needed.
pub(super) fn say(
    seen: &Observed<'_>,
    object: &APIServiceNamespace,
    assign: Option<&str>,
    shared: Published<'_>,
    ready: Condition,
) -> Option<Op> {
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
    Some(Op::Say(
        json!({ "metadata": { "uid": object.metadata.uid }, "status": said }),
    ))
}

#[cfg(test)]
pub(super) mod tests;
