//! JSON patches, also such that fail.

use serde_json::{Value, json};

use crate::generate::{
    draft::Draft,
    kind::{CONFIG_MAP, COWBOY, GADGET, SHERIFF},
    step::Call,
};

pub(super) fn act(draft: &mut Draft) {
    let kind = draft.kind(&[CONFIG_MAP, COWBOY, SHERIFF, GADGET]);
    let name = draft.name(kind);
    let path = draft.path(kind, &name);
    let created = draft.create(kind, &name, &json!({"labels": {"a": "1", "sequence": draft.id}}));
    let field = if kind == CONFIG_MAP {
        "/data/first"
    } else {
        "/spec/note"
    };
    for _ in 0..4 {
        let operations = operations(draft, field, created);
        draft.call(Call::json_patch(&path, operations));
    }
    draft.call(Call::get(path));
}

fn operations(draft: &mut Draft, field: &str, created: usize) -> Value {
    let add = |path: &str, value: &str| json!({"op": "add", "path": path, "value": value});
    match draft.random.below(12) {
        0 => json!([add("/metadata/labels/b", "2")]),
        1 => json!([{"op": "remove", "path": "/metadata/labels/b"}]),
        2 => json!([{"op": "replace", "path": "/metadata/labels/a", "value": "3"}]),
        3 => json!([{"op": "test", "path": "/metadata/labels/a", "value": "1"}, add("/metadata/labels/c", "1")]),
        4 => json!([{"op": "move", "from": "/metadata/labels/a", "path": "/metadata/labels/d"}]),
        5 => json!([{"op": "copy", "from": "/metadata/labels/a", "path": "/metadata/labels/e"}]),
        6 => json!([add(field, "patched")]),
        7 => {
            json!([{"op": "test", "path": "/metadata/uid", "value": format!("${{{created}/metadata/uid}}")}, add(field, "x")])
        }
        8 => {
            json!([{"op": "test", "path": "/metadata/resourceVersion", "value": format!("${{{created}/metadata/resourceVersion}}")}, add(field, "y")])
        }
        9 => json!([{"op": "unknown", "path": "/metadata/labels/a"}]),
        10 => json!({"op": "add"}),
        _ => json!([add("/metadata/annotations/none", "1")]),
    }
}
