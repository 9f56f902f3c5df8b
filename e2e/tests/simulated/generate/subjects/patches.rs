//! Merge patches, and strategic merge patches of kinds that know them.

use serde_json::{Value, json};

use super::objects::KINDS;
use crate::generate::{
    draft::Draft,
    kind::{CONFIG_MAP, COWBOY, GADGET, LEASE, SECRET, SERVICE_ACCOUNT},
    step::Call,
};

pub(super) fn merge(draft: &mut Draft) {
    let kind = draft.kind(&KINDS);
    let name = draft.name(kind);
    let path = draft.path(kind, &name);
    draft.create(kind, &name, &json!({}));
    for _ in 0..4 {
        let change = kind.change(&mut draft.random);
        let call = match draft.random.below(12) {
            0 => Call::merge(&path, json!({"metadata": {"labels": {"a": "1", "b": null}}})),
            1 => Call::merge(&path, json!({"metadata": {"labels": null}})),
            2 => Call::merge(&path, json!({"metadata": {"annotations": {"a": "1"}}})).query("fieldManager", "other"),
            3 => Call::merge(&path, json!({"spec": null, "data": null})),
            4 => Call::merge(&path, json!({"unknown": 1, "metadata": {"labels": {"c": "1"}}})),
            5 => Call::merge(&path, json!({"unknown": 1})).query("fieldValidation", "Warn"),
            6 => Call::merge(&path, json!({"unknown": 1, "metadata": {"none": 2}})).query("fieldValidation", "Ignore"),
            7 => Call::merge(&path, json!({"metadata": {"name": "another"}})),
            8 if kind == COWBOY || kind == GADGET => Call::merge(&path, json!({"kind": "Another"})),
            9 => Call::merge(&path, json!([1, 2])),
            10 => Call::merge(draft.path(kind, "missing"), change),
            _ => Call::merge(&path, change),
        };
        draft.call(call);
    }
    draft.call(Call::get(path));
}

pub(super) fn strategic(draft: &mut Draft) {
    let kind = draft.kind(&[
        CONFIG_MAP,
        SECRET,
        SERVICE_ACCOUNT,
        SERVICE_ACCOUNT,
        LEASE,
        COWBOY,
        GADGET,
    ]);
    let name = draft.name(kind);
    let path = draft.path(kind, &name);
    draft.create(
        kind,
        &name,
        &json!({"ownerReferences": null, "finalizers": ["simulated.bindery.test/one"]}),
    );
    for _ in 0..4 {
        let change = match draft.random.below(9) {
            0 => json!({"metadata": {"finalizers": ["simulated.bindery.test/two"]}}),
            1 => json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["simulated.bindery.test/one"]}}),
            2 => pulls(&json!([{"name": "a"}, {"name": "b"}])),
            3 => pulls(&json!([{"name": "a", "$patch": "delete"}])),
            4 => pulls(&json!([{"name": "c"}])),
            5 => json!({"data": {"second": null}, "metadata": {"labels": {"x": "1"}}}),
            6 if kind == CONFIG_MAP || kind == SECRET => json!({"data": {"$patch": "replace", "third": "aGk="}}),
            7 => json!({"metadata": {"labels": {"$patch": "delete"}}}),
            _ => kind.change(&mut draft.random),
        };
        draft.call(Call::strategic(&path, change));
    }
    draft.call(Call::merge(&path, json!({"metadata": {"finalizers": null}})));
}

fn pulls(secrets: &Value) -> Value {
    json!({"imagePullSecrets": secrets})
}
