//! How watches begin and end: versions that have expired or are not reached, initial events, and timeouts.

use serde_json::json;

use crate::generate::{
    draft::Draft,
    kind::{CONFIG_MAP, COWBOY, GADGET, Kind, LEASE, SECRET, SHERIFF},
    step::Call,
};

const KINDS: [Kind; 5] = [CONFIG_MAP, SECRET, LEASE, COWBOY, GADGET];

/// From a version that the watch cache has forgotten. Only of custom resources, whose watch caches begin after it.
pub(super) fn expired(draft: &mut Draft) {
    let kind = draft.kind(&[COWBOY, GADGET, SHERIFF]);
    let watch = draft.watch(Call::get(draft.list(kind)).query("resourceVersion", "1"));
    draft.ended(watch);
}

/// From a version that is not reached: what is written meanwhile is not shown.
pub(super) fn ahead(draft: &mut Draft) {
    let kind = draft.kind(&KINDS);
    let (name, list) = marked(draft, kind);
    let listed = draft.call(list.clone());
    let revision = format!("${{{listed}/metadata/resourceVersion}}000000");
    let watch = draft.watch(list.query("resourceVersion", revision));
    create(draft, kind, &name);
    let change = kind.change(&mut draft.random);
    let path = draft.path(kind, &name);
    draft.call(Call::merge(&path, change));
    draft.call(Call::delete(path));
    draft.events(watch);
}

/// With the objects that are there, up to the bookmark that says that they are all.
pub(super) fn initial(draft: &mut Draft) {
    let kind = draft.kind(&KINDS);
    let (name, list) = marked(draft, kind);
    create(draft, kind, &name);
    let list = list.query("sendInitialEvents", "true");
    let list = list.query("resourceVersionMatch", "NotOlderThan");
    let watch = draft.watch(list.query("allowWatchBookmarks", "true"));
    draft.events(watch);
    let change = kind.change(&mut draft.random);
    let path = draft.path(kind, &name);
    draft.call(Call::merge(path, change));
    draft.events(watch);
}

/// Until the time that the client states is over.
pub(super) fn timeouts(draft: &mut Draft) {
    let kind = draft.kind(&KINDS);
    let (name, list) = marked(draft, kind);
    let listed = draft.call(list.clone());
    let revision = format!("${{{listed}/metadata/resourceVersion}}");
    let list = list.query("resourceVersion", revision);
    let watch = draft.watch(list.query("timeoutSeconds", "2"));
    create(draft, kind, &name);
    draft.ended(watch);
}

/// A name that no request has used, and the list of the object with it.
fn marked(draft: &mut Draft, kind: Kind) -> (String, Call) {
    let name = draft.fresh(kind);
    let list = Call::get(draft.list(kind)).query("labelSelector", format!("shown={}-{name}", draft.id));
    (name, list)
}

fn create(draft: &mut Draft, kind: Kind, name: &str) {
    let mark = format!("{}-{name}", draft.id);
    draft.create(kind, name, &json!({"labels": {"shown": mark}}));
}
