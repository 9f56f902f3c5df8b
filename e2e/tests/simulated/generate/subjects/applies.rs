//! Server-side apply by several managers, with and without force.

use serde_json::{Value, json};

use crate::generate::{
    draft::Draft,
    kind::{CONFIG_MAP, COWBOY, GADGET, Kind, SECRET, SERVICE_ACCOUNT, SHERIFF},
    step::Call,
};

pub(super) fn act(draft: &mut Draft) {
    let kind = draft.kind(&[
        CONFIG_MAP,
        SECRET,
        SERVICE_ACCOUNT,
        COWBOY,
        COWBOY,
        SHERIFF,
        GADGET,
        GADGET,
    ]);
    let name = draft.name(kind);
    let path = draft.path(kind, &name);
    if draft.random.chance(40) {
        draft.create(kind, &name, &json!({}));
    }
    draft.watch_state(kind, &name);
    for _ in 0..5 {
        let call = one(draft, kind, &name, &path);
        draft.call(call);
    }
    draft.call(Call::get(path));
}

fn one(draft: &mut Draft, kind: Kind, name: &str, path: &str) -> Call {
    let manager = draft.random.pick(&["one", "two", "three"]);
    let object = object(draft, kind, name);
    let apply = |object: Value| Call::apply(path, manager, object);
    match draft.random.below(16) {
        0 => Call::merge(path, kind.change(&mut draft.random)).query("fieldManager", manager),
        1 => Call::merge(path, kind.change(&mut draft.random)),
        2 => apply(object).query("dryRun", "All"),
        3 => apply(with(
            object,
            json!({"managedFields": [{"manager": "x", "operation": "Apply"}]}),
        )),
        4 => Call::patch(path, "application/apply-patch+yaml", object),
        5 => apply(with(object, json!({"resourceVersion": "1"}))),
        6 => apply(with(object, json!({"uid": "11111111-2222-3333-4444-555555555555"}))),
        7 => Call::apply(format!("{path}/status"), manager, status(kind, name)).query("force", "true"),
        8 => Call::apply(format!("{path}/status"), manager, status(kind, name)),
        9 | 10 => apply(object),
        _ => apply(object).query("force", "true"),
    }
}

/// What a manager wants: some of the fields.
fn object(draft: &mut Draft, kind: Kind, name: &str) -> Value {
    let word = draft.random.pick(&["ride", "rest"]);
    let mut object = match (kind.name, draft.random.below(4)) {
        (_, 0) => json!({"metadata": {"labels": {"team": word, "sequence": draft.id}}}),
        (_, 1) => json!({"metadata": {"annotations": {"note": word}}}),
        ("ConfigMap", 2) => json!({"data": {"first": word, "third": "3"}}),
        ("ConfigMap", _) => json!({"data": {"first": word}}),
        ("Secret", 2) => json!({"stringData": {"user": word}}),
        ("Secret", _) => json!({"data": {"password": "aGk="}, "type": "Opaque"}),
        ("ServiceAccount", _) => json!({"imagePullSecrets": [{"name": word}]}),
        ("Cowboy", 2) => json!({"spec": {"intent": word, "secretRefs": [{"name": word}]}}),
        ("Gadget", 2) => json!({"spec": {"color": "red", "parts": [{"name": word, "count": 4}]}}),
        ("Gadget", _) => json!({"spec": {"color": "blue", "tags": [word], "limits": {"cpu": word}}}),
        _ => json!({"spec": {"intent": word}}),
    };
    object["apiVersion"] = kind.api.into();
    object["kind"] = kind.name.into();
    // Without any metadata, a manager gives up all that it had applied there, and Kubernetes takes the name for a part of that.
    if object.get("metadata").is_none() || draft.random.chance(90) {
        object["metadata"]["name"] = name.into();
    }
    object
}

fn with(mut object: Value, metadata: Value) -> Value {
    if let (Some(object), Value::Object(more)) = (object["metadata"].as_object_mut(), metadata) {
        object.extend(more);
    }
    object
}

fn status(kind: Kind, name: &str) -> Value {
    json!({
        "apiVersion": kind.api, "kind": kind.name, "metadata": {"name": name},
        "status": {"result": "done"},
    })
}
