//! Creates, reads and replaces objects, also such that exist already or not at all.

use serde_json::json;

use crate::generate::{
    draft::Draft,
    kind::{CONFIG_MAP, COWBOY, GADGET, Kind, LEASE, SECRET, SERVICE_ACCOUNT, SHERIFF},
    step::Call,
};

pub(super) const KINDS: [Kind; 7] = [CONFIG_MAP, SECRET, SERVICE_ACCOUNT, LEASE, COWBOY, SHERIFF, GADGET];

pub(super) fn act(draft: &mut Draft) {
    let kind = draft.kind(&KINDS);
    let name = draft.name(kind);
    let path = draft.path(kind, &name);
    draft.create(kind, &name, &json!({}));
    for _ in 0..3 {
        write(draft, kind, &name, &path);
    }
    draft.call(Call::get(path));
}

fn write(draft: &mut Draft, kind: Kind, name: &str, path: &str) {
    let change = kind.change(&mut draft.random);
    match draft.random.below(8) {
        0 => {
            draft.create(kind, name, &json!({"labels": {"again": "true"}}));
        }
        1 | 2 => {
            let answer = draft.answer_or_get(path);
            draft.call(Call::edit(path, answer, change));
        }
        3 => {
            let body = draft.object(kind, name);
            draft.call(Call::put(path, body));
        }
        4 => {
            let missing = draft.fresh(kind);
            let path = draft.path(kind, &missing);
            let body = draft.object(kind, &missing);
            draft.call(Call::get(&path));
            draft.call(Call::put(&path, body));
        }
        5 => {
            let body = draft.object(kind, name);
            let call = match draft.random.below(3) {
                0 => Call::post(draft.list(kind), body),
                1 => Call::put(path, body),
                _ => Call::merge(path, change),
            };
            draft.call(call.query("dryRun", "All"));
        }
        6 => {
            // What is the same already is not written.
            let answer = draft.answer_or_get(path);
            draft.call(Call::edit(path, answer, json!({})));
        }
        _ => {
            draft.call(Call::merge(path, change));
        }
    }
}
