//! Deletes of many objects in one request.

use serde_json::{Value, json};

use crate::generate::{
    draft::Draft,
    kind::{CONFIG_MAP, COWBOY, GADGET, SECRET, SHERIFF},
    step::Call,
};

pub(super) fn act(draft: &mut Draft) {
    let kind = draft.kind(&[CONFIG_MAP, SECRET, COWBOY, GADGET, SHERIFF]);
    let mark = format!("{}-{}", draft.id, draft.steps.len());
    for _ in 0..3 {
        let name = draft.fresh(kind);
        let tier = draft.random.pick(&["gold", "silver"]);
        let finalizers = if draft.random.chance(20) {
            json!(["simulated.bindery.test/kept"])
        } else {
            Value::Null
        };
        draft.create(
            kind,
            &name,
            &json!({"labels": {"many": mark, "tier": tier}, "finalizers": finalizers}),
        );
    }
    let list = Call::get(draft.list(kind)).query("labelSelector", format!("many={mark}"));
    let listed = draft.call(list.clone());
    let revision = format!("${{{listed}/metadata/resourceVersion}}");
    let watch = draft.watch(list.clone().query("resourceVersion", revision));
    let delete =
        |selector: &str| Call::delete(draft.list(kind)).query("labelSelector", format!("many={mark}{selector}"));
    let calls = [
        delete(",tier=gold").query("dryRun", "All"),
        delete(",tier=gold"),
        delete(",tier in (gold,silver)").query("propagationPolicy", "Foreground"),
        delete("").json(json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"})),
        delete(",tier=none"),
        delete("").query("fieldSelector", "metadata.name=n1"),
        delete(",bad key"),
    ];
    for _ in 0..2 {
        let call = calls[draft.random.below(calls.len())].clone();
        draft.call(call);
        draft.settle();
    }
    draft.call(list);
    draft.events(watch);
}
