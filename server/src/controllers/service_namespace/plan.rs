//! What an APIServiceNamespace is missing, and how it ends.

use std::{collections::BTreeMap, sync::Arc};

use bindery_api::{
    Condition, Conditions as _, Severity, annotations,
    conditions::{READY, false_condition, true_condition},
    finalizers, labels, names,
    v1alpha2::{APIServiceExport, APIServiceNamespace},
};
use jiff::Timestamp;
use k8s_openapi::api::{
    core::v1::Namespace,
    rbac::v1::{PolicyRule, Role, RoleBinding},
};
use kube::{ResourceExt as _, api::ObjectMeta};
use serde_json::{Value, json};

use super::rights;
use crate::{
    contract, owner,
    remaining::{self, Remaining},
    template, writes,
};

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
    /// Names of exports that are about to be made anew.
    pub(super) awaited: &'a [String],
    /// Roles in the provider namespace that carry a contract's mark.
    pub(super) roles: &'a [Arc<Role>],
    /// Role bindings in it that do.
    pub(super) bindings: &'a [Arc<RoleBinding>],
    /// What is left in the provider namespace, once it was counted.
    pub(super) remaining: Option<&'a Remaining>,
    pub(super) now: Timestamp,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    Apply(Vec<Op>),
    /// Objects remain: to be looked at again.
    Drain(Vec<Op>),
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
        ending => end(seen, ending),
    }
}

/// What the status says where the server may not give some exports their rights: the others have theirs.
pub(super) fn lacking(seen: &Observed<'_>, message: String) -> Option<Op> {
    let object = seen.object?;
    let condition = false_condition(READY, Severity::Error, template::SERVER_LACKS_RIGHTS, message);
    let ending = object.metadata.deletion_timestamp.is_some();
    let name = (!ending).then(|| provider_namespace(seen.contract, object));
    say(seen, object, name.as_deref(), condition)
}

/// The condition that an object of somebody else stands in the way.
pub(super) fn foreign(seen: &Observed<'_>, name: &str) -> Option<Op> {
    let message =
        format!("{name} exists on the provider and is not managed by kube-bind; its admin can rename or delete it");
    say(
        seen,
        seen.object?,
        None,
        false_condition(READY, Severity::Error, "ForeignNamespace", message),
    )
}

fn keep(seen: &Observed<'_>, object: &APIServiceNamespace) -> Vec<Op> {
    let refuse = |reason: &str, message: String| {
        let condition = false_condition(READY, Severity::Error, reason, message);
        say(seen, object, None, condition).into_iter().collect()
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
            return say(seen, object, None, condition).into_iter().collect();
        }
        Some(namespace) => ops.extend(record(seen, namespace)),
    }
    rights::plan(seen, &name, &mut ops);
    // Last, for whoever reads the status may rely on the namespace and on the rights in it.
    ops.extend(say(seen, object, Some(&name), true_condition(READY)));
    ops
}

/// The finalizer, and one plain reference per export: whichever unbinds last takes the namespace along.
fn metadata(seen: &Observed<'_>, object: &APIServiceNamespace) -> Option<Op> {
    let live = seen
        .exports
        .iter()
        .filter(|export| export.metadata.deletion_timestamp.is_none());
    let owners: Vec<_> = live.map(|export| owner::export(export)).collect();
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

/// What is about to be granted, on record before it is: it tells what may be left here when nobody else knows any more.
fn record(seen: &Observed<'_>, namespace: &Namespace) -> Option<Op> {
    let before = remaining::granted(namespace);
    let mut after = before.clone();
    after.extend(rights::granted(seen));
    (after != before).then(|| {
        let mut metadata = writes::seen(namespace);
        metadata["annotations"] = json!({ annotations::GRANTED_RESOURCES: remaining::granted_record(&after) });
        Op::PatchNamespace {
            name: namespace.name_any(),
            patch: json!({ "metadata": metadata }),
        }
    })
}

fn end(seen: &Observed<'_>, object: Option<&APIServiceNamespace>) -> Step {
    let finalizers = object.map(|object| (object, writes::without_finalizer(object, finalizers::NAMESPACE)));
    let Some(namespace) = seen.namespace.filter(|namespace| is_ours(seen, namespace)) else {
        let done = finalizers.and_then(|(object, finalizers)| {
            finalizers.map(|finalizers| Op::Patch(writes::finalizers_patch(object, &finalizers)))
        });
        return Step::Apply(done.into_iter().collect());
    };
    if contract::is_terminating(namespace) {
        return Step::Apply(Vec::new());
    }
    let Some(left) = seen.remaining else {
        return Step::Count;
    };
    if left.count() > 0 {
        let condition = false_condition(READY, Severity::Info, "Draining", left.to_string());
        let said = object.and_then(|object| say(seen, object, None, condition));
        return Step::Drain(said.into_iter().collect());
    }
    if left.has_released() {
        return Step::Apply(leave(seen, namespace, object));
    }
    Step::Apply(vec![Op::DeleteNamespace {
        name: namespace.name_any(),
        uid: namespace.uid(),
    }])
}

/// Objects that were let go keep their namespace, which nobody maps any more.
fn leave(seen: &Observed<'_>, namespace: &Namespace, object: Option<&APIServiceNamespace>) -> Vec<Op> {
    let mut ops = Vec::new();
    if !namespace.annotations().contains_key(annotations::RELEASED) {
        let mut metadata = writes::seen(namespace);
        metadata["annotations"] = json!({ annotations::RELEASED: seen.now.to_string() });
        ops.push(Op::PatchNamespace {
            name: namespace.name_any(),
            patch: json!({ "metadata": metadata }),
        });
    }
    rights::remove(seen, &mut ops);
    if let Some(object) = object
        && let Some(finalizers) = writes::without_finalizer(object, finalizers::NAMESPACE)
    {
        ops.push(Op::Patch(writes::finalizers_patch(object, &finalizers)));
    }
    ops
}

/// Marked with the contract and with the very object.
fn is_ours(seen: &Observed<'_>, namespace: &Namespace) -> bool {
    let key = format!("{}/{}", seen.contract, seen.name);
    contract::of(namespace) == Some(seen.contract)
        && namespace.annotations().get(annotations::API_SERVICE_NAMESPACE) == Some(&key)
}

fn new_namespace(seen: &Observed<'_>, name: &str) -> Namespace {
    Namespace {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(BTreeMap::from([(
                labels::CONTRACT.to_owned(),
                seen.contract.to_owned(),
            )])),
            annotations: Some(BTreeMap::from([
                (
                    annotations::API_SERVICE_NAMESPACE.to_owned(),
                    format!("{}/{}", seen.contract, seen.name),
                ),
                (
                    annotations::GRANTED_RESOURCES.to_owned(),
                    remaining::granted_record(&rights::granted(seen)),
                ),
            ])),
            ..ObjectMeta::default()
        },
        ..Namespace::default()
    }
}

/// The status with this condition, and with the provider namespace if that is given now. Only the server writes it, so
/// that no resource version is needed.
fn say(seen: &Observed<'_>, object: &APIServiceNamespace, assign: Option<&str>, ready: Condition) -> Option<Op> {
    let before = object.status.clone().unwrap_or_default();
    let mut status = before.clone();
    if let Some(name) = assign {
        status.namespace = Some(name.to_owned());
    }
    status.set_condition(ready, seen.now);
    if status == before {
        return None;
    }
    Some(Op::Say(json!({
        "metadata": { "uid": object.metadata.uid },
        "status": { "namespace": status.namespace, "conditions": status.conditions },
    })))
}

#[cfg(test)]
mod tests;
