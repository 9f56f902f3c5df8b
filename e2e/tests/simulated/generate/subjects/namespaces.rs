//! Namespaces that are created, end with what is in them, and wait for what does not end.

use serde_json::{Value, json};

use crate::generate::{
    draft::Draft,
    kind::{CONFIG_MAP, COWBOY, Kind, LEASE, NAMESPACE, SECRET, SERVICE_ACCOUNT},
    step::Call,
};

pub(super) fn act(draft: &mut Draft) {
    let name = draft.fresh(NAMESPACE);
    let path = NAMESPACE.path("", &name);
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": name, "labels": {"sequence": draft.id}},
    });
    let listed = draft.call(Call::get(NAMESPACE.list("")).query("labelSelector", format!("sequence={}", draft.id)));
    let watch = draft.watch(
        Call::get(NAMESPACE.list(""))
            .query("fieldSelector", format!("metadata.name={name}"))
            .query("resourceVersion", format!("${{{listed}/metadata/resourceVersion}}")),
    );
    draft.call(Call::get(&path));
    draft.call(Call::post(
        CONFIG_MAP.list(&name),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "early"}}),
    ));
    draft.call(Call::post(NAMESPACE.list(""), namespace.clone()));
    draft.call(Call::post(NAMESPACE.list(""), namespace.clone()));
    for kind in [CONFIG_MAP, SECRET, COWBOY, LEASE] {
        draft.state.insert(kind.list(&name));
    }
    draft.state.insert(path.clone());
    let is_kept = draft.random.chance(60);
    let kind = draft.kind(&[CONFIG_MAP, COWBOY, LEASE]);
    put(draft, kind, &name, "kept", is_kept);
    put(draft, SECRET, &name, "plain", false);
    draft.call(Call::merge(&path, json!({"metadata": {"labels": {"extra": "1"}}})));
    draft.settle();
    draft.call(Call::get(SERVICE_ACCOUNT.list(&name)));
    draft.call(Call::delete(&path));
    if is_kept {
        draft.settle();
        for _ in 0..3 {
            let call = while_ending(draft, &name, &path);
            draft.call(call);
        }
        let kept = kind.path(&name, "kept");
        draft.call(Call::get(&kept));
        if draft.random.chance(35) {
            // By force: what is in it stays in the store and out of reach.
            let seen = draft.call(Call::get(&path));
            draft.call(Call::edit(
                format!("{path}/finalize"),
                seen,
                json!({"spec": {"finalizers": []}}),
            ));
            if draft.random.chance(50) {
                // What stayed in the store is in the new namespace of that name.
                draft.settle();
                draft.call(Call::post(NAMESPACE.list(""), namespace));
                draft.settle();
                draft.call(Call::get(&kept));
                draft.call(Call::merge(&kept, json!({"metadata": {"finalizers": null}})));
            }
        } else {
            draft.call(Call::merge(&kept, json!({"metadata": {"finalizers": null}})));
        }
    }
    draft.settle();
    draft.call(Call::get(&path));
    draft.events(watch);
}

fn put(draft: &mut Draft, kind: Kind, namespace: &str, name: &str, is_kept: bool) {
    let mut object = kind.object(name, &mut draft.random);
    if is_kept {
        object["metadata"]["finalizers"] = json!(["simulated.bindery.test/kept"]);
    }
    draft.call(Call::post(kind.list(namespace), object));
}

fn while_ending(draft: &mut Draft, name: &str, path: &str) -> Call {
    let object =
        |kind: Kind| -> Value { json!({"apiVersion": kind.api, "kind": kind.name, "metadata": {"name": "late"}}) };
    match draft.random.below(6) {
        0 => Call::post(CONFIG_MAP.list(name), object(CONFIG_MAP)),
        1 => Call::post(COWBOY.list(name), object(COWBOY)),
        2 => Call::delete(path),
        3 => Call::merge(path, json!({"metadata": {"annotations": {"late": "1"}}})),
        4 => Call::apply(CONFIG_MAP.path(name, "late"), "one", object(CONFIG_MAP)),
        _ => Call::get(path),
    }
}
