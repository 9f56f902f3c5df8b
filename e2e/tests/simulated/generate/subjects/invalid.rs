//! Requests that are wrong: names, labels, kinds, paths, bodies, content types.

use http::Method;
use serde_json::{Value, json};

use super::objects::KINDS;
use crate::generate::{
    draft::Draft,
    kind::{CONFIG_MAP, COWBOY, Kind},
    step::{Body, Call},
};

pub(super) fn act(draft: &mut Draft) {
    for _ in 0..5 {
        let kind = draft.kind(&KINDS);
        let call = if draft.random.chance(60) {
            object(draft, kind)
        } else {
            request(draft, kind)
        };
        draft.call(call);
    }
}

fn object(draft: &mut Draft, kind: Kind) -> Call {
    // Of a patch that makes nonsense of a type, the refusal shows the whole object in the words of Go.
    let nonsense = [json!({"labels": {"key": 5}}), json!({"labels": ["a"]})];
    if draft.random.chance(8) {
        let name = draft.fresh(kind);
        let mut object = draft.object(kind, &name);
        let metadata = &nonsense[draft.random.below(nonsense.len())];
        json_patch::merge(&mut object["metadata"], metadata);
        return Call::post(draft.list(kind), object);
    }
    let metadata = match draft.random.below(20) {
        0 => json!({"name": "Upper"}),
        1 => json!({"name": "under_score"}),
        2 => json!({"name": "a".repeat(254)}),
        3 => json!({"name": "a/b"}),
        4 => json!({"labels": {"bad key": "1"}}),
        5 => json!({"labels": {"key": "bad value"}}),
        6 => json!({"labels": {"key": "a".repeat(64)}}),
        7 => json!({"annotations": {"Bad Key": "1"}}),
        8 => json!({"finalizers": ["unqualified"]}),
        9 => json!({"finalizers": ["a b/c"]}),
        10 => json!({"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "x"}]}),
        11 => json!({"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": ""}]}),
        12 => owners(json!({"controller": true}), json!({"controller": true})),
        13 => json!({"ownerReferences": [{"apiVersion": "v1", "kind": "Event", "name": "x", "uid": "1"}]}),
        14 => json!({"namespace": "another"}),
        15 => json!({"resourceVersion": "5"}),
        16 => {
            json!({"uid": "11111111-2222-3333-4444-555555555555", "generation": 9, "creationTimestamp": "2020-01-01T00:00:00Z"})
        }
        17 => json!({"deletionTimestamp": "2020-01-01T00:00:00Z", "deletionGracePeriodSeconds": 3}),
        18 => json!({"annotations": {"key": "a".repeat(300_000)}}),
        _ => json!({"managedFields": [{"manager": "me", "operation": "Wrong"}]}),
    };
    let name = draft.fresh(kind);
    let mut object = draft.object(kind, &name);
    json_patch::merge(&mut object["metadata"], &metadata);
    if draft.random.chance(80) {
        return Call::post(draft.list(kind), object);
    }
    draft.create(kind, &name, &json!({}));
    Call::merge(draft.path(kind, &name), json!({ "metadata": metadata }))
}

fn owners(first: Value, second: Value) -> Value {
    let owner = |name: &str, more: Value| {
        let mut owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": format!("1-{name}")});
        json_patch::merge(&mut owner, &more);
        owner
    };
    json!({"ownerReferences": [owner("x", first), owner("y", second)]})
}

fn request(draft: &mut Draft, kind: Kind) -> Call {
    let name = draft.fresh(kind);
    let good = kind.object(&name, &mut draft.random);
    let list = draft.list(kind);
    let path = draft.path(kind, &name);
    let without = |field: &str| {
        let mut object = good.clone();
        object.as_object_mut().map(|object| object.remove(field));
        object
    };
    match draft.random.below(20) {
        0 => Call::post(&list, without("kind")),
        1 => Call::post(&list, without("apiVersion")),
        2 => Call::post(&list, without("metadata")),
        3 => Call::post(
            &list,
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}}),
        ),
        4 => Call::post(
            &list,
            json!({"apiVersion": "none.test/v1", "kind": kind.name, "metadata": {"name": name}}),
        ),
        5 => raw(&list, "{\"apiVersion\": \"v1\", "),
        6 => raw(&list, ""),
        7 => raw(&list, "[]"),
        8 => Call::get(format!("/apis/none.test/v1/namespaces/{}/things", draft.namespace)),
        9 => Call::get(format!("/api/v1/namespaces/{}/things", draft.namespace)),
        10 => Call::get(format!("/apis/wildwest.dev/v9/namespaces/{}/cowboys", draft.namespace)),
        11 => Call::post(&path, good),
        12 => Call::put(&list, good),
        13 => content_type(Call::post(&list, good), "text/plain"),
        14 => content_type(Call::patch(&path, "application/json", good), "application/json"),
        15 => Call::get(format!("{path}/none")),
        16 => Call::post(&list, good).query("dryRun", "None"),
        17 => Call::post(&list, good).query("fieldValidation", "Wrong"),
        18 => Call::post(
            CONFIG_MAP.list(&draft.namespace),
            json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"bad key!": "1", "number": 5},
            }),
        ),
        _ => Call::post(COWBOY.list("nowhere"), COWBOY.object(&name, &mut draft.random)),
    }
}

fn raw(list: &str, text: &str) -> Call {
    let mut call = Call::new(Method::POST, list);
    call.body = Body::Raw(text.to_owned());
    call
}

fn content_type(mut call: Call, content_type: &'static str) -> Call {
    call.content_type = content_type;
    call
}
