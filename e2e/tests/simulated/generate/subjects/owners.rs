//! Owner references, and what the garbage collector makes of them in each propagation.

use serde_json::{Value, json};

use crate::generate::{
    draft::Draft,
    kind::{CONFIG_MAP, COWBOY, Kind, SECRET, SERVICE_ACCOUNT, SHERIFF},
    step::Call,
};

const KINDS: [Kind; 4] = [CONFIG_MAP, SECRET, SERVICE_ACCOUNT, COWBOY];

pub(super) fn act(draft: &mut Draft) {
    let owner_kind = draft.kind(&[CONFIG_MAP, SECRET, COWBOY, COWBOY, SHERIFF]);
    let owner = draft.fresh(owner_kind);
    let finalizers = if draft.random.chance(20) {
        json!(["simulated.bindery.test/kept"])
    } else {
        Value::Null
    };
    let created = draft.create(owner_kind, &owner, &json!({"finalizers": finalizers}));
    let watched = draft.kind(&KINDS);
    let list = Call::get(draft.list(watched)).query("labelSelector", format!("owned={}", draft.id));
    let listed = draft.call(list.clone());
    let revision = format!("${{{listed}/metadata/resourceVersion}}");
    let watch = draft.watch(list.query("resourceVersion", revision));
    let mut dependents = Vec::new();
    for _ in 0..2 {
        let kind = if draft.random.chance(70) {
            watched
        } else {
            draft.kind(&KINDS)
        };
        let reference = reference(draft, owner_kind, &owner, created);
        dependents.push(dependent(draft, kind, &json!([reference])));
    }
    if draft.random.chance(40) {
        // Two generations.
        let (kind, name, created) = dependents[0].clone();
        let reference = reference(draft, kind, &name, created);
        dependent(draft, watched, &json!([reference]));
    }
    if draft.random.chance(25) {
        let other = draft.fresh(CONFIG_MAP);
        let created_too = draft.create(CONFIG_MAP, &other, &json!({}));
        let both = [
            reference(draft, owner_kind, &owner, created),
            reference(draft, CONFIG_MAP, &other, created_too),
        ];
        dependent(draft, watched, &json!(both));
    }
    if draft.random.chance(15) {
        // An owner that never was.
        let absent = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "name": "absent", "uid": absent_uid(&draft.id),
        });
        dependent(draft, watched, &json!([absent]));
    }
    if draft.random.chance(15) {
        // The UID of the owner and the name of none.
        let mut misnamed = reference(draft, owner_kind, &owner, created);
        misnamed["name"] = "misnamed".into();
        dependent(draft, watched, &json!([misnamed]));
    }
    if owner_kind.is_namespaced && draft.random.chance(15) {
        // An owner in a namespace cannot own what is in none.
        let reference = reference(draft, owner_kind, &owner, created);
        dependent(draft, SHERIFF, &json!([reference]));
    }
    // The garbage collector is to know the dependents before it sees the end of the owner.
    draft.settle();
    delete(draft, owner_kind, &owner);
    draft.settle();
    if draft.random.chance(50) {
        for (kind, name, _) in dependents {
            let path = draft.path(kind, &name);
            draft.call(Call::get(&path));
            draft.call(Call::merge(&path, json!({"metadata": {"finalizers": null}})));
            draft.settle();
        }
    }
    let path = draft.path(owner_kind, &owner);
    draft.call(Call::merge(&path, json!({"metadata": {"finalizers": null}})));
    draft.settle();
    draft.events(watch);
}

/// Differs by sequence: what is known to be absent is remembered.
fn absent_uid(id: &str) -> String {
    let number = id
        .bytes()
        .fold(0u32, |number, byte| number.wrapping_mul(131).wrapping_add(byte.into()));
    format!("{number:08x}-0000-4000-8000-000000000000")
}

fn reference(draft: &mut Draft, kind: Kind, name: &str, created: usize) -> Value {
    let mut reference = json!({
        "apiVersion": kind.api, "kind": kind.name, "name": name, "uid": format!("${{{created}/metadata/uid}}"),
    });
    if draft.random.chance(50) {
        reference["blockOwnerDeletion"] = true.into();
    }
    if draft.random.chance(20) {
        reference["controller"] = true.into();
    }
    reference
}

fn dependent(draft: &mut Draft, kind: Kind, owners: &Value) -> (Kind, String, usize) {
    let name = draft.fresh(kind);
    let finalizers = if draft.random.chance(15) {
        json!(["simulated.bindery.test/kept"])
    } else {
        Value::Null
    };
    let metadata = json!({"labels": {"owned": draft.id}, "ownerReferences": owners, "finalizers": finalizers});
    let created = draft.create(kind, &name, &metadata);
    (kind, name, created)
}

fn delete(draft: &mut Draft, kind: Kind, name: &str) {
    let path = draft.path(kind, name);
    let propagation = draft
        .random
        .pick(&["Background", "Foreground", "Orphan", "", "orphanDependents"]);
    let call = Call::delete(&path);
    let call = match (propagation, draft.random.chance(50)) {
        ("", _) => call,
        ("orphanDependents", is_orphan) => call.query("orphanDependents", is_orphan.to_string()),
        (_, true) => call.query("propagationPolicy", propagation),
        (_, false) => call.json(json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation})),
    };
    draft.call(call);
}
