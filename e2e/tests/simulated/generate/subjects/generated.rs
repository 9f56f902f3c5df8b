//! Names that the API server makes.

use serde_json::json;

use crate::generate::{
    draft::Draft,
    kind::{CONFIG_MAP, COWBOY, NAMESPACE, SECRET, SHERIFF},
    step::Call,
};

pub(super) fn act(draft: &mut Draft) {
    let kind = draft.kind(&[CONFIG_MAP, SECRET, COWBOY, SHERIFF]);
    let prefix = draft.random.pick(&[
        "made-",
        "x",
        "a-very-long-prefix-that-is-cut-before-it-becomes-too-long-for-a-name-",
    ]);
    let prefix = draft.scoped(kind, prefix);
    let mut object = draft.object(kind, "");
    object["metadata"] = json!({"generateName": prefix, "labels": {"sequence": draft.id}});
    let list = draft.list(kind);
    let dry = draft.call(Call::post(&list, object.clone()).query("dryRun", "All"));
    let made = draft.call(Call::post(&list, object.clone()));
    draft.call(Call::post(&list, object.clone()));
    let path = format!("{list}/${{{made}/metadata/name}}");
    draft.call(Call::get(&path));
    draft.call(Call::get(format!("{list}/${{{dry}/metadata/name}}")));
    let change = kind.change(&mut draft.random);
    draft.call(Call::merge(&path, change));
    if draft.random.chance(30) {
        object["metadata"]["generateName"] = serde_json::Value::Null;
        draft.call(Call::post(&list, object));
    }
    if draft.random.chance(20) {
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {"generateName": format!("{}-", draft.id), "labels": {"sequence": draft.id}},
        });
        draft.call(Call::post(NAMESPACE.list(""), namespace));
    }
    draft.call(Call::delete(path));
}
