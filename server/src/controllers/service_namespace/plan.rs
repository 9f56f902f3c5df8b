//! Plans what an APIServiceNamespace is missing: its provider namespace, the rights in that, and the status.

use std::collections::{BTreeMap, BTreeSet};

use bindery_api::{
    Severity, annotations,
    conditions::{READY, false_condition, true_condition},
    finalizers, labels, meta, names,
    v1alpha2::{APIServiceNamespace, GroupResource},
};
use k8s_openapi::api::core::v1::Namespace;
use kube::{ResourceExt as _, api::ObjectMeta};
use serde_json::json;

use super::{
    claimed,
    end::{self, NamespaceStep},
    observed::{Observed, is_ours},
    rights, shared,
    status::{Published, status},
};
use crate::{
    contract,
    leftovers::{GrantRecord, recorded},
    owner,
    rbac::claims::ClaimedPlacement,
    template,
    writes::{self, Write},
};

/// The reason of a namespace that is beyond the number that its contract may have.
pub(super) const TOO_MANY_NAMESPACES: &str = "TooManyNamespaces";

/// Name of the provider namespace: the assigned one, which never changes, or the one that would be assigned now.
pub(super) fn provider_namespace(contract: &str, object: &APIServiceNamespace) -> String {
    let assigned = object.status.as_ref().and_then(|status| status.namespace.clone());
    assigned.unwrap_or_else(|| names::provider_namespace(contract, &object.name_any()))
}

/// Plans what to do: for one that stays what it is missing, and else how its provider namespace ends.
pub(super) fn plan(seen: &Observed<'_>) -> NamespaceStep {
    match seen.object {
        Some(object) if object.metadata.deletion_timestamp.is_none() => NamespaceStep::Apply(keep(seen, object)),
        ending => end::plan(seen, ending),
    }
}

/// The status where the server lacks rights that it has to grant for some exports. The provider namespace is assigned all the
/// same, since the other exports have their rights.
pub(super) fn lacking(seen: &Observed<'_>, message: String) -> Option<Write> {
    let object = seen.object?;
    let condition = false_condition(READY, Severity::Error, template::SERVER_LACKS_RIGHTS, message);
    let ending = object.metadata.deletion_timestamp.is_some();
    let name = (!ending).then(|| provider_namespace(seen.contract, object));
    status(seen, object, name.as_deref(), Published::AsBefore, condition)
}

/// Plans the rest where an object that is not the server's is in the way in the shared namespace: the provider namespace is
/// assigned all the same.
pub(super) fn foreign_shared(seen: &Observed<'_>, name: &str) -> Vec<Write> {
    let mut writes = Vec::new();
    let outcome = shared::foreign(seen, name, &mut writes);
    if let Some(object) = seen.object {
        let name = provider_namespace(seen.contract, object);
        writes.extend(publish(seen, object, &name, outcome));
    }
    writes
}

/// The status where an object that is not the server's is in the way in the provider namespace.
pub(super) fn foreign(seen: &Observed<'_>, name: &str) -> Option<Write> {
    let message =
        format!("{name} exists on the provider and is not managed by kube-bind; its admin can rename or delete it");
    status(
        seen,
        seen.object?,
        None,
        Published::AsBefore,
        false_condition(READY, Severity::Error, "ForeignNamespace", message),
    )
}

/// Plans the writes for an APIServiceNamespace that is not being deleted.
fn keep(seen: &Observed<'_>, object: &APIServiceNamespace) -> Vec<Write> {
    let refuse = |reason: &str, message: String| {
        let condition = false_condition(READY, Severity::Error, reason, message);
        let said = status(seen, object, None, Published::AsBefore, condition);
        said.into_iter().collect()
    };
    if !seen.contract_stays {
        return Vec::new();
    }
    if !names::is_label(seen.name) {
        return refuse(
            "InvalidName",
            format!("{:?} cannot be the name of a namespace; delete this object", seen.name),
        );
    }
    if let Some(reached) = &seen.beyond {
        return refuse(TOO_MANY_NAMESPACES, reached.to_string());
    }
    let name = provider_namespace(seen.contract, object);
    let mut writes: Vec<_> = metadata(seen, object).into_iter().collect();
    match seen.namespace {
        None => {
            const IDENTITY: &[&str] = &[labels::CONTRACT, annotations::API_SERVICE_NAMESPACE];
            writes.push(Write::create(
                "the consumer's namespace is mapped to it",
                &new_namespace(seen, &name),
                IDENTITY,
            ));
        }
        Some(namespace) if !is_ours(seen, namespace) => {
            let owner = contract::of(namespace).map_or("not managed by kube-bind", |_| "mapped for another namespace");
            return refuse(
                "NamespaceOfOtherContract",
                format!("namespace {name} of the provider is {owner}; choose another name"),
            );
        }
        Some(namespace) if contract::is_terminating(namespace) => {
            let message =
                format!("namespace {name} of the provider is being deleted; it is created again when it is gone");
            let condition = false_condition(READY, Severity::Info, "NamespaceTerminating", message);
            let said = status(seen, object, None, Published::AsBefore, condition);
            return said.into_iter().collect();
        }
        Some(namespace) => writes.extend(record(seen, namespace)),
    }
    if claimed::needs_server_binding(&rights::claimed(seen, ClaimedPlacement::Mapped)) {
        writes.extend(rights::server_binding(seen.server_binding, &name, seen.server));
    }
    rights::plan(seen, rights::within(seen, &name), &mut writes);
    let outcome = shared::plan(seen, &mut writes);
    // Last: a konnector that reads the status relies on the namespaces and on its rights in them.
    writes.extend(publish(seen, object, &name, outcome));
    writes
}

/// The status where the provider namespace exists.
fn publish(
    seen: &Observed<'_>,
    object: &APIServiceNamespace,
    name: &str,
    outcome: shared::SharedOutcome<'_>,
) -> Option<Write> {
    let ready = outcome.problem.unwrap_or_else(|| true_condition(READY));
    status(seen, object, Some(name), outcome.published, ready)
}

/// Adds the finalizer, and an owner reference to each export, so that the object goes with the last of them.
fn metadata(seen: &Observed<'_>, object: &APIServiceNamespace) -> Option<Write> {
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
    let mut metadata = json!({});
    if let Some(finalizers) = finalizers {
        metadata["finalizers"] = json!(finalizers);
    }
    if let Some(owners) = owners {
        metadata["ownerReferences"] = json!(owners);
    }
    let patch = json!({ "metadata": metadata });
    Some(Write::patch("a finalizer or an owner is missing", object, patch))
}

/// Records the resources in the annotations of the provider namespace before rights on them are granted: later, when exports
/// and templates are gone, the record alone tells of which resources objects may be left. A released namespace is in use again.
pub(super) fn record(seen: &Observed<'_>, namespace: &Namespace) -> Option<Write> {
    let mut granted = recorded(namespace, GrantRecord::Resources);
    granted.extend(rights::granted(seen));
    let mut claims = recorded(namespace, GrantRecord::Claims);
    claims.extend(rights::claimed(seen, ClaimedPlacement::Mapped));
    let mut wanted = records(&granted, &claims);
    for key in [annotations::RELEASED, annotations::KEPT_FOR] {
        if namespace.annotations().contains_key(key) {
            wanted.insert(key, None);
        }
    }
    wanted.retain(|key, value| namespace.annotations().get(*key) != value.as_ref());
    (!wanted.is_empty()).then(|| Write::annotate("rights on more resources are granted", namespace, &json!(wanted)))
}

fn records(
    granted: &BTreeSet<GroupResource>,
    claims: &BTreeSet<GroupResource>,
) -> BTreeMap<&'static str, Option<String>> {
    let mut records = BTreeMap::from([(annotations::GRANTED_RESOURCES, Some(GrantRecord::value(granted)))]);
    if !claims.is_empty() {
        records.insert(annotations::GRANTED_CLAIMS, Some(GrantRecord::value(claims)));
    }
    records
}

fn new_namespace(seen: &Observed<'_>, name: &str) -> Namespace {
    let records = records(&rights::granted(seen), &rights::claimed(seen, ClaimedPlacement::Mapped));
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

#[cfg(test)]
pub(super) mod tests;
