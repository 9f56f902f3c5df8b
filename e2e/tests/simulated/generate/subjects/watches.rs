//! Watches from a revision on, with selectors whose objects come and go.

use serde_json::{Value, json};

use crate::generate::{
    draft::Draft,
    kind::{CONFIG_MAP, COWBOY, GADGET, Kind, LEASE, SECRET, SHERIFF},
    step::Call,
};

pub(super) fn act(draft: &mut Draft) {
    let kind = draft.kind(&[CONFIG_MAP, SECRET, LEASE, COWBOY, COWBOY, SHERIFF, GADGET]);
    let name = draft.fresh(kind);
    let mark = format!("{}-{name}", draft.id);
    let labels = json!({"labels": {"watched": mark, "tier": "gold"}, "finalizers": finalizers(draft)});
    let created = draft.create(kind, &name, &labels);
    let path = draft.path(kind, &name);
    let list = draft.list(kind);
    if draft.random.chance(10) {
        let call = refused(draft, &list);
        draft.call(call);
    }
    let listed = draft.call(Call::get(&list).query("labelSelector", format!("watched={mark}")));
    if draft.random.chance(30) {
        // A watch from before a change shows it.
        let change = kind.change(&mut draft.random);
        draft.call(Call::merge(&path, change));
    }
    let mut watches = Vec::new();
    for _ in 0..=draft.random.below(2) {
        let call = query(draft, Call::get(&list), &name, &mark);
        let call = match draft.random.below(8) {
            0 => call.query("resourceVersion", format!("${{{created}/metadata/resourceVersion}}")),
            1 => call,
            _ => call.query("resourceVersion", format!("${{{listed}/metadata/resourceVersion}}")),
        };
        watches.push(draft.watch(call));
    }
    for _ in 0..4 {
        let call = change(draft, kind, &path);
        draft.call(call);
    }
    for watch in &watches {
        if draft.random.chance(40) {
            draft.events(*watch);
        }
    }
    let another = draft.fresh(kind);
    draft.create(kind, &another, &json!({"labels": {"watched": mark, "tier": "gold"}}));
    draft.call(Call::delete(&path));
    draft.call(Call::merge(&path, json!({"metadata": {"finalizers": null}})));
    for watch in watches {
        draft.events(watch);
    }
}

fn finalizers(draft: &mut Draft) -> Value {
    if draft.random.chance(40) {
        json!(["simulated.bindery.test/kept"])
    } else {
        Value::Null
    }
}

fn query(draft: &mut Draft, call: Call, name: &str, mark: &str) -> Call {
    match draft.random.below(5) {
        0 => call.query("fieldSelector", format!("metadata.name={name}")),
        1 | 2 => call.query("labelSelector", format!("watched={mark},tier=gold")),
        3 => call.query("labelSelector", format!("watched={mark},!hidden")),
        _ => call.query("labelSelector", format!("watched={mark}")),
    }
}

/// A change that may bring the object in or out of the view of a selector.
fn change(draft: &mut Draft, kind: Kind, path: &str) -> Call {
    let labels = |labels: Value| Call::merge(path, json!({"metadata": {"labels": labels}}));
    match draft.random.below(7) {
        0 => labels(json!({"tier": "silver"})),
        1 => labels(json!({"tier": "gold"})),
        2 => labels(json!({"tier": null, "hidden": "true"})),
        3 => labels(json!({"hidden": null, "tier": "gold"})),
        4 => Call::merge(path, json!({"metadata": {"annotations": {"note": "x"}}})),
        _ => Call::merge(path, kind.change(&mut draft.random)),
    }
}

fn refused(draft: &mut Draft, list: &str) -> Call {
    let call = Call::get(list);
    let call = match draft.random.below(3) {
        0 => call.query("resourceVersion", "nonsense"),
        1 => call.query("labelSelector", "bad key=1"),
        _ => call.query("fieldSelector", "spec.none=1"),
    };
    call.query("watch", "true")
}
