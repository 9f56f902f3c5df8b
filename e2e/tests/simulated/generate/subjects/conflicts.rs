//! Updates that state a revision, a UID, a name or a namespace, right or wrong.

use serde_json::json;

use super::objects::KINDS;
use crate::generate::{draft::Draft, step::Call};

pub(super) fn act(draft: &mut Draft) {
    let kind = draft.kind(&KINDS);
    let name = draft.fresh(kind);
    let path = draft.path(kind, &name);
    let created = draft.create(kind, &name, &json!({}));
    let change = kind.change(&mut draft.random);
    let patched = draft.call(Call::merge(&path, change));
    for _ in 0..4 {
        let change = kind.change(&mut draft.random);
        let with = |metadata: serde_json::Value| {
            let mut edit = change.clone();
            json_patch::merge(&mut edit["metadata"], &metadata);
            edit
        };
        let call = match draft.random.below(11) {
            0 => Call::edit(&path, created, change),
            1 => Call::edit(&path, patched, change),
            2 => Call::edit(&path, patched, with(json!({"resourceVersion": null}))),
            3 => Call::edit(
                &path,
                patched,
                with(json!({"uid": "11111111-2222-3333-4444-555555555555"})),
            ),
            4 => Call::edit(&path, patched, with(json!({"name": "another"}))),
            5 => Call::edit(&path, patched, with(json!({"namespace": "another"}))),
            6 => Call::merge(
                &path,
                with(json!({"resourceVersion": format!("${{{created}/metadata/resourceVersion}}")})),
            ),
            7 => Call::merge(
                &path,
                with(json!({"resourceVersion": format!("${{{patched}/metadata/resourceVersion}}")})),
            ),
            8 => Call::merge(&path, with(json!({"uid": "11111111-2222-3333-4444-555555555555"}))),
            9 => Call::edit(&path, patched, with(json!({"resourceVersion": "none"}))),
            _ => Call::edit(
                &path,
                patched,
                with(json!({"creationTimestamp": "2020-01-01T00:00:00Z", "generation": 7})),
            ),
        };
        draft.call(call);
    }
    draft.call(Call::get(path));
}
