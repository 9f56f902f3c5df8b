//! Deletes with preconditions, and objects that finalizers keep.

use serde_json::{Value, json};

use super::objects::KINDS;
use crate::generate::{
    draft::Draft,
    kind::{CONFIG_MAP, Kind, SECRET},
    step::Call,
};

const FINALIZER: &str = "simulated.bindery.test/kept";

pub(super) fn act(draft: &mut Draft) {
    let kind = draft.kind(&KINDS);
    let name = draft.fresh(kind);
    let path = draft.path(kind, &name);
    let keeps = draft.random.chance(60);
    let finalizers = if keeps { json!([FINALIZER]) } else { Value::Null };
    let created = draft.create(kind, &name, &json!({"finalizers": finalizers}));
    let change = kind.change(&mut draft.random);
    draft.call(Call::merge(&path, change));
    for _ in 0..2 {
        let call = delete(draft, &path, created);
        draft.call(call);
    }
    if keeps {
        for _ in 0..2 {
            let call = while_deleting(draft, kind, &path);
            draft.call(call);
        }
        draft.call(Call::delete(&path));
        draft.call(Call::merge(&path, json!({"metadata": {"finalizers": null}})));
    }
    draft.settle();
    draft.call(Call::get(path));
}

fn delete(draft: &mut Draft, path: &str, created: usize) -> Call {
    let uid = format!("${{{created}/metadata/uid}}");
    let revision = format!("${{{created}/metadata/resourceVersion}}");
    let call = Call::delete(path);
    let options = |options: Value| {
        let mut all = json!({"apiVersion": "v1", "kind": "DeleteOptions"});
        json_patch::merge(&mut all, &options);
        call.clone().json(all)
    };
    match draft.random.below(13) {
        0 => options(json!({"preconditions": {"uid": uid}})),
        1 => options(json!({"preconditions": {"uid": "11111111-2222-3333-4444-555555555555"}})),
        2 => options(json!({"preconditions": {"resourceVersion": revision}})),
        3 => options(json!({"preconditions": {"uid": uid, "resourceVersion": revision}})),
        4 => options(json!({"propagationPolicy": "Wrong"})),
        5 => options(json!({"propagationPolicy": "Orphan", "orphanDependents": true})),
        6 => options(json!({"gracePeriodSeconds": 0})),
        7 => options(json!({"dryRun": ["All"]})),
        8 => call.query("dryRun", "All"),
        9 => call.query("propagationPolicy", "Background"),
        10 => call.query("dryRun", "Some"),
        11 => call.json(json!({"preconditions": {"uid": uid}})),
        _ => call,
    }
}

fn while_deleting(draft: &mut Draft, kind: Kind, path: &str) -> Call {
    let finalizers = |names: Value| Call::merge(path, json!({"metadata": {"finalizers": names}}));
    match draft.random.below(7) {
        0 => finalizers(json!([FINALIZER, "simulated.bindery.test/late"])),
        1 => finalizers(json!(["simulated.bindery.test/another"])),
        2 => Call::merge(path, json!({"metadata": {"deletionTimestamp": null}})),
        3 => Call::get(path),
        4 if kind == CONFIG_MAP || kind == SECRET => Call::merge(path, json!({"immutable": true})),
        5 => Call::post(
            draft.list(kind),
            json!({
                "apiVersion": kind.api, "kind": kind.name, "metadata": {"name": path.rsplit('/').next()},
            }),
        ),
        _ => Call::merge(path, kind.change(&mut draft.random)),
    }
}
