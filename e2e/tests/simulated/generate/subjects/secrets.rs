//! Secrets and ConfigMaps: immutable ones, types, text that becomes data.

use serde_json::{Value, json};

use crate::generate::{
    draft::Draft,
    kind::{CONFIG_MAP, SECRET},
    step::Call,
};

pub(super) fn act(draft: &mut Draft) {
    let kind = draft.kind(&[SECRET, SECRET, CONFIG_MAP]);
    let name = draft.fresh(kind);
    let path = draft.path(kind, &name);
    let mut object = draft.object(kind, &name);
    json_patch::merge(&mut object, &more(draft));
    draft.call(Call::post(draft.list(kind), object));
    draft.call(Call::get(&path));
    for _ in 0..3 {
        let call = match draft.random.below(8) {
            0 => Call::merge(&path, json!({"immutable": true})),
            1 => Call::merge(&path, json!({"immutable": false})),
            2 => Call::merge(&path, json!({"immutable": null})),
            3 => Call::merge(&path, json!({"data": {"first": "aGk="}})),
            4 => Call::merge(&path, json!({"type": "kubernetes.io/tls"})),
            5 => Call::merge(&path, json!({"stringData": {"first": "text"}})),
            6 => Call::merge(&path, json!({"metadata": {"labels": {"more": "1"}}})),
            _ => Call::merge(&path, json!({"data": null})),
        };
        draft.call(call);
    }
    draft.call(Call::get(path));
}

fn more(draft: &mut Draft) -> Value {
    match draft.random.below(11) {
        0 => json!({"immutable": true}),
        1 => json!({"stringData": {"first": "text", "password": "over"}}),
        2 => json!({"type": "kubernetes.io/tls"}),
        3 => json!({"type": "kubernetes.io/ssh-auth", "data": {"ssh-privatekey": "aGk="}}),
        4 => json!({"type": "kubernetes.io/dockerconfigjson"}),
        5 => json!({"type": "kubernetes.io/service-account-token"}),
        6 => json!({"type": "simulated.bindery.test/own"}),
        7 => json!({"data": {"bad key": "aGk="}}),
        8 => json!({"binaryData": {"first": "aGk="}}),
        9 => json!({"type": null, "data": null}),
        _ => json!({}),
    }
}
