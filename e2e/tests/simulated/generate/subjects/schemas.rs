//! Objects against the schemas of CustomResourceDefinitions: defaults, pruning, violations, rules.

use serde_json::{Value, json};

use crate::generate::{draft::Draft, kind::GADGET, step::Call};

pub(super) fn act(draft: &mut Draft) {
    for _ in 0..5 {
        let name = draft.name(GADGET);
        let path = draft.path(GADGET, &name);
        let spec = spec(draft);
        let labels = json!({"sequence": draft.id});
        let object = json!({
            "apiVersion": GADGET.api, "kind": "Gadget", "metadata": {"name": name, "labels": labels}, "spec": spec,
        });
        draft.watch_state(GADGET, &name);
        let call = match draft.random.below(6) {
            0 | 1 => Call::post(draft.list(GADGET), object),
            2 => Call::merge(&path, json!({ "spec": spec })),
            3 => Call::apply(&path, "one", object).query("force", "true"),
            4 => {
                let answer = draft.answer_or_get(&path);
                Call::edit(&path, answer, json!({ "spec": spec }))
            }
            _ => Call::merge(format!("{path}/status"), json!({"status": status(draft)})),
        };
        let call = match draft.random.below(8) {
            // Of a patch, what is refused is told with the whole object in the words of Go.
            0 if call.method != http::Method::PATCH => call.query("fieldValidation", "Strict"),
            1 => call.query("fieldValidation", "Ignore"),
            _ => call,
        };
        draft.call(call);
    }
    let name = draft.name(GADGET);
    let path = draft.path(GADGET, &name);
    draft.call(Call::get(&path));
    draft.call(Call::get(path.replace("/v1/", "/v1beta1/")));
}

fn spec(draft: &mut Draft) -> Value {
    match draft.random.below(30) {
        0 => json!({"color": "pink"}),
        1 => json!({"color": 5}),
        2 => json!({"size": 0, "color": "red"}),
        3 => json!({"size": 11, "color": "red"}),
        4 => json!({"size": "3", "color": "red"}),
        5 => json!({"size": 1.5, "color": "red"}),
        6 => json!({"code": "no", "color": "red"}),
        7 => json!({"note": "far too long a note", "color": "red"}),
        8 => json!({"note": "", "color": "red"}),
        9 => json!({"parts": [{"name": "a"}, {"name": "a"}], "color": "red"}),
        10 => json!({"parts": [{"count": 1}], "color": "red"}),
        11 => json!({"parts": [{"name": "a"}, {"name": "b"}, {"name": "c"}, {"name": "d"}], "color": "red"}),
        12 => json!({"tags": ["x", "x"], "color": "red"}),
        13 => json!({"port": "http", "color": "red"}),
        14 => json!({"port": 80, "color": "red"}),
        15 => json!({"port": true, "color": "red"}),
        16 => json!({"free": {"any": [1, {"thing": true}]}, "color": "red"}),
        17 => json!({"parts": [{"name": "a", "unknown": 2}], "color": "red"}),
        18 => json!({"maybe": null, "note": null, "color": "red"}),
        19 => json!({"size": 5, "limit": 3, "color": "red"}),
        20 => json!({"size": 3, "limit": 5, "color": "green"}),
        21 => json!({"limits": {"cpu": "1", "memory": 5}, "color": "red"}),
        22 => json!({"since": "yesterday", "color": "red"}),
        23 => json!({"since": "2020-01-01T00:00:00Z", "color": "red"}),
        24 => json!({"color": "pink", "size": 0, "code": "no"}),
        25 => Value::Null,
        26 => json!("text"),
        27 => json!({}),
        28 => json!({"parts": null, "limits": {"cpu": null}, "color": "blue"}),
        _ => json!({"color": "blue", "size": 4, "parts": [{"name": "a"}], "tags": ["x", "y"], "limits": {"cpu": "2"}}),
    }
}

fn status(draft: &mut Draft) -> Value {
    match draft.random.below(4) {
        0 => json!({"result": "won", "conditions": [{"type": "Ready", "status": "True"}]}),
        1 => json!({"result": 5}),
        2 => json!({"conditions": [{"type": "Ready", "status": "Perhaps"}]}),
        _ => json!({"result": "lost", "unknown": 1}),
    }
}
