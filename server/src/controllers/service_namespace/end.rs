//! How a provider namespace ends.

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
    claimed::{self, Claimed},
    plan::{Left, Observed, Op, Published, Step, is_ours, say, within},
    rights, shared,
};
use crate::{
    contract,
    rbac::claims,
    remaining::{Object, Remaining},
    writes,
};

/// What is left in a namespace, of synced objects and of claimed ones, and of the contract's copies in the one that it shares.
/// A copy that no export claims any more is taken away by nobody: it holds nothing up, and keeps the namespace that it is in.
pub(super) fn left(seen: &Observed<'_>, remaining: Remaining, claimed: Vec<Claimed>, shared: Vec<Claimed>) -> Left {
    let is_ours = |claimed: &Claimed| claimed.copy_for.as_deref() == Some(seen.contract);
    let is_withdrawn = |claimed: &Claimed| {
        let mut exports = seen.exports.iter();
        let resource = &claimed.object.resource;
        !seen.awaited.is_empty() || exports.any(|export| claims::claimed(export).any(|claimed| claimed == resource))
    };
    // Nor does anybody who has rights on them take away objects that no export offers any more.
    let is_offered = |object: &Object| {
        let mut resources = seen.exports.iter().flat_map(|export| &export.spec.resources);
        !seen.awaited.is_empty() || resources.any(|offered| offered.group_resource == object.resource)
    };
    let objects = remaining.objects.into_iter().map(|object| Object {
        released: object.released || !is_offered(&object),
        ..object
    });
    let mut left = Left {
        remaining: Remaining {
            objects: objects.collect(),
        },
        has_sources: claimed.iter().any(|claimed| !is_ours(claimed)),
    };
    for claimed in claimed.into_iter().filter(is_ours) {
        let released = claimed.object.released || !is_withdrawn(&claimed);
        left.remaining.objects.push(Object {
            released,
            ..claimed.object
        });
    }
    // There, it could leave behind what has its mark or its name, and nothing else: neither may outlast it.
    let prefix = format!("{}-", seen.contract);
    let held = shared.into_iter().filter(|claimed| {
        let is_its = is_ours(claimed) || claimed.object.name.starts_with(&prefix);
        is_its && is_withdrawn(claimed)
    });
    left.remaining.objects.extend(held.map(|claimed| Object {
        released: false,
        ..claimed.object
    }));
    left
}

/// Takes away what nobody uses any more: a namespace goes when it is empty of what is ours and of sources.
pub(super) fn plan(seen: &Observed<'_>, object: Option<&APIServiceNamespace>) -> Step {
    let finalizers = object.map(|object| (object, writes::without_finalizer(object, finalizers::NAMESPACE)));
    let Some(namespace) = seen.namespace.filter(|namespace| is_ours(seen, namespace)) else {
        let mut ops = Vec::new();
        shared::leave(seen, &mut ops);
        ops.extend(finalizers.and_then(|(object, finalizers)| {
            finalizers.map(|finalizers| Op::Patch(writes::finalizers_patch(object, &finalizers)))
        }));
        return Step::Apply(ops);
    };
    if contract::is_terminating(namespace) {
        return Step::Apply(Vec::new());
    }
    let Some(left) = seen.left else {
        let sight = if claimed::needs_sight(&claimed::recorded(namespace)) {
            rights::sight(seen.sight, &namespace.name_any(), seen.server)
        } else {
            Vec::new()
        };
        return if sight.is_empty() {
            Step::Count
        } else {
            Step::Apply(sight.into_iter().map(Op::from).collect())
        };
    };
    if left.remaining.count() > 0 {
        let condition = false_condition(READY, Severity::Info, "Draining", left.remaining.to_string());
        let said = object.and_then(|object| say(seen, object, None, Published::AsBefore, condition));
        return Step::Drain(said.into_iter().collect());
    }
    if left.remaining.has_released() || left.has_sources {
        return Step::Leave(leave(seen, namespace, object));
    }
    Step::Apply(vec![Op::DeleteNamespace {
        name: namespace.name_any(),
        uid: namespace.uid(),
    }])
}

/// Objects that were let go, and those of the provider's own, keep their namespace, which nobody maps any more.
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
    rights::remove(seen, within(seen, ""), &mut ops);
    shared::leave(seen, &mut ops);
    if let Some(object) = object
        && let Some(finalizers) = writes::without_finalizer(object, finalizers::NAMESPACE)
    {
        ops.push(Op::Patch(writes::finalizers_patch(object, &finalizers)));
    }
    ops
}
