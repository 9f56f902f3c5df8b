//! The status subresource: what it writes, and what it leaves alone.

use serde_json::json;

use crate::generate::{
    draft::Draft,
    kind::{CONFIG_MAP, COWBOY, GADGET, SHERIFF},
    step::Call,
};

pub(super) fn act(draft: &mut Draft) {
    let kind = draft.kind(&[COWBOY, COWBOY, SHERIFF, GADGET, CONFIG_MAP]);
    let name = draft.name(kind);
    let path = draft.path(kind, &name);
    let status = format!("{path}/status");
    draft.create(kind, &name, &json!({}));
    for _ in 0..4 {
        let result = draft.random.pick(&["won", "lost"]);
        let both =
            json!({"spec": {"intent": "lie"}, "metadata": {"labels": {"by": "status"}}, "status": {"result": result}});
        let call = match draft.random.below(9) {
            0 => Call::merge(&status, json!({"status": {"result": result}})),
            1 => Call::merge(&status, both),
            2 => Call::merge(&path, both),
            3 => {
                let answer = draft.answer_or_get(&path);
                Call::edit(&status, answer, both)
            }
            4 => {
                let answer = draft.answer_or_get(&path);
                Call::edit(
                    &status,
                    answer,
                    json!({"metadata": {"resourceVersion": null}, "status": {"result": result}}),
                )
            }
            5 => Call::get(&status),
            6 => Call::json_patch(
                &status,
                json!([{"op": "add", "path": "/status", "value": {"result": result}}]),
            ),
            7 => Call::merge(&status, json!({"status": {"result": 5}})),
            _ => Call::merge(
                &status,
                json!({"metadata": {"annotations": {"a": "1"}, "finalizers": ["x.test/y"]}}),
            ),
        };
        draft.call(call);
    }
    draft.call(Call::get(path));
}
