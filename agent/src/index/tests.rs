use std::collections::BTreeMap;

use bindery_api::annotations;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::{
    bound::{learn::Learned, pair::Pair},
    model::projection::LastProjection,
};

fn object(namespace: &str, name: &str, uid: &str, version: u64) -> Object {
    let json = json!({"metadata": {
        "namespace": namespace, "name": name, "uid": uid, "resourceVersion": version.to_string(),
    }});
    serde_json::from_str(&json.to_string()).unwrap()
}

fn index() -> Index<Pair> {
    let mut index = Index::new("contract".into(), Placement::Mapped);
    index.set_place(&"ns".into(), Some("contract-ns".into()), false);
    index
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("ns", name)
}

/// The answer to a write of the copy of object `a` from its present state.
fn written(index: &Index<Pair>, uid: &str, source_uid: &str, version: u64, generation: Option<&str>) -> Learned {
    Learned::Written {
        uid: uid.into(),
        source_uid: source_uid.into(),
        version: Version(version),
        last: LastProjection {
            fingerprint: index.pair(&key("a")).unwrap().consumer.as_ref().unwrap().projection,
            corrected: false,
        },
        generation: generation.map(Box::from),
    }
}

/// Runs a whole list of the consumer's objects; returns the keys that are gone.
fn list_consumer(index: &mut Index<Pair>, objects: Vec<Object>, version: u64) -> Vec<ObjectKey> {
    let mut listing = index.begin();
    for object in objects {
        let key = ObjectKey::new(&*object.meta.namespace, &*object.meta.name);
        index.consumer_shown(&key, object, &mut listing);
    }
    index.consumer_listed(&mut listing, Version(version))
}

/// Runs a whole list of a consumer namespace's copies, by the names of their sources; returns the keys that are gone.
fn list_provider(
    index: &mut Index<Pair>,
    namespace: &str,
    copies: Vec<(&str, Object)>,
    version: u64,
) -> Vec<ObjectKey> {
    let mut listing = index.begin();
    for (source, copy) in copies {
        let source = ObjectKey::new(namespace, source);
        let name = ObjectKey::new(namespace, &*copy.meta.name);
        index.provider_shown(Some(&source), name, copy, &mut listing);
    }
    index.provider_listed(&namespace.into(), &mut listing, Version(version))
}

#[test]
fn nothing_is_decided_before_both_sides_are_listed() {
    let mut index = index();
    index.consumer_seen(&key("a"), object("ns", "a", "u", 5));
    assert!(index.known(&key("a")).is_none());
    list_consumer(&mut index, vec![object("ns", "a", "u", 5)], 5);
    assert!(index.known(&key("a")).is_none(), "the provider namespace is not listed");
    list_provider(&mut index, "ns", vec![], 5);
    assert!(index.known(&key("a")).is_some());
}

#[test]
fn a_list_ends_what_it_did_not_show_but_not_what_is_newer() {
    let mut index = index();
    index.consumer_seen(&key("old"), object("ns", "old", "u1", 5));
    index.consumer_seen(&key("new"), object("ns", "new", "u2", 9));
    let gone = list_consumer(&mut index, vec![], 7);
    assert_eq!(gone, [key("old")]);
    assert_eq!(index.consumer_count(), 1);
    index.provider_seen(&key("new"), object("contract-ns", "new", "p", 4));
    let gone = list_provider(&mut index, "ns", vec![], 7);
    assert_eq!(gone, [key("new")]);
    assert!(index.pair(&key("new")).unwrap().provider_gone);
}

#[test]
fn a_list_of_one_consumer_namespace_tells_of_that_alone() {
    let mut index = index();
    let namespaces = |names: &[&str]| ConsumerScope::Namespaces(names.iter().map(|&name| name.into()).collect());
    let at = |namespace: &str| ObjectKey::new(namespace, "a");
    assert_eq!(
        index.set_consumer_scope(&namespaces(&["east", "west"])),
        Some(Vec::new())
    );
    for namespace in ["east", "west"] {
        index.consumer_seen(&at(namespace), object(namespace, "a", namespace, 5));
        index.set_place(&namespace.into(), Some(format!("contract-{namespace}").into()), false);
        list_provider(&mut index, namespace, vec![], 5);
    }
    let list_west = |index: &mut Index<Pair>, shown: Option<Object>, version| {
        let mut listing = index.begin_in(Some(&"west".into()));
        if let Some(object) = shown {
            index.consumer_shown(&at("west"), object, &mut listing);
        }
        index.consumer_listed(&mut listing, Version(version))
    };
    assert!(list_west(&mut index, Some(object("west", "a", "west", 5)), 9).is_empty());
    assert!(index.known(&at("west")).is_some() && index.known(&at("east")).is_none());
    assert!(!index.consumer_synced(), "east was not listed");
    // A list that goes back in time rewinds its own namespace.
    assert!(index.known(&at("west")).is_some());
    index.consumer_rewound(Some(&"west".into()));
    assert!(!index.consumer_seen(&at("east"), object("east", "a", "east", 4)));
    assert!(index.consumer_seen(&at("west"), object("west", "a", "west", 4)));
    assert_eq!(list_west(&mut index, None, 10), [at("west")]);
    assert_eq!(index.consumer_count(), 1, "that of east");
    // What is not watched any more is forgotten.
    assert_eq!(index.set_consumer_scope(&namespaces(&["west"])), Some(vec![at("east")]));
    assert_eq!(index.set_consumer_scope(&namespaces(&["west"])), None);
    assert_eq!(index.consumer_count(), 0);
    assert!(index.consumer_synced());
}

#[test]
fn what_is_older_than_our_own_write_is_passed_over() {
    let mut index = index();
    index.consumer_seen(&key("a"), object("ns", "a", "u", 5));
    let written = written(&index, "p", "u", 20, None);
    index.learn(&key("a"), written, &PlannedUids::default());
    assert!(!index.provider_seen(&key("a"), object("contract-ns", "a", "p", 19)));
    assert!(index.provider_seen(&key("a"), object("contract-ns", "a", "p", 20)));
    // An object of another UID is news, whatever its version.
    assert!(index.provider_seen(&key("a"), object("contract-ns", "a", "q", 3)));
}

#[test]
fn a_list_that_shows_less_than_an_older_one_had_is_the_truth() {
    let mut index = index();
    let version = |index: &Index<Pair>, on_consumer| {
        let pair = index.pair(&key("a")).unwrap();
        let known = if on_consumer { pair.consumer() } else { pair.provider() };
        known.unwrap().1
    };
    for on_consumer in [true, false] {
        for (known, list, believed) in [(20, 19, 20), (20, 20, 7), (20, 900, 7)] {
            let mut listing = index.begin();
            show(&mut index, on_consumer, "a", known, &mut listing);
            end(&mut index, on_consumer, &mut listing, known);
            let mut listing = index.begin();
            show(&mut index, on_consumer, "a", 7, &mut listing);
            assert_eq!(
                version(&index, on_consumer),
                Version(known),
                "the list may be of before"
            );
            assert!(end(&mut index, on_consumer, &mut listing, list).is_empty());
            assert_eq!(version(&index, on_consumer), Version(believed), "{list}");
        }
    }
}

#[test]
fn the_end_of_a_predecessor_is_not_the_end_of_its_successor() {
    let mut index = index();
    index.provider_seen(&key("a"), object("contract-ns", "a", "second", 8));
    index.provider_deleted(&key("a"), Some("first"));
    assert!(index.pair(&key("a")).unwrap().provider.is_some());
    index.provider_deleted(&key("a"), Some("second"));
    assert!(index.pair(&key("a")).is_none());
}

#[test]
fn a_place_that_changes_makes_its_copies_unknown() {
    let mut index = index();
    index.consumer_seen(&key("a"), object("ns", "a", "u", 5));
    index.provider_seen(&key("a"), object("contract-ns", "a", "p", 6));
    list_consumer(&mut index, vec![object("ns", "a", "u", 5)], 9);
    list_provider(&mut index, "ns", vec![("a", object("contract-ns", "a", "p", 6))], 9);
    assert!(index.known(&key("a")).is_some());
    assert_eq!(index.consumer_namespace("contract-ns").as_deref(), Some("ns"));
    index.set_place(&"ns".into(), None, false);
    assert!(index.known(&key("a")).is_none());
    assert!(index.needs_place(&key("a")));
    assert!(index.pair(&key("a")).unwrap().provider.is_none());
    assert_eq!(index.consumer_namespace("contract-ns"), None);
}

/// Where the provider namespace was never listed, as without the right to, only the objects say that it is still needed.
#[test]
fn a_place_that_is_given_up_is_needed_by_objects_that_live() {
    let mut index = index();
    list_consumer(&mut index, vec![object("ns", "a", "u", 5)], 9);
    index.set_place(&"ns".into(), Some("contract-ns".into()), false);
    assert!(!index.needs_place(&key("a")));
    index.set_closing(&"ns".into(), true);
    assert!(index.needs_place(&key("a")));
}

#[test]
fn a_refused_place_is_told_of_while_objects_wait_for_it() {
    let mut index = Index::new("contract".into(), Placement::Mapped);
    let namespace: Arc<str> = "ns".into();
    let taken: Arc<str> = "taken".into();
    assert!(index.set_refusal(&namespace, Some(&taken)));
    assert!(!index.set_refusal(&namespace, Some(&taken)));
    assert_eq!(index.refusal(&key("a")), None, "there is no such object");
    index.consumer_seen(&key("a"), object("ns", "a", "u", 5));
    assert_eq!(index.refusal(&key("a")), Some(&taken));
    index.set_place(&namespace, Some("contract-ns".into()), false);
    assert_eq!(index.refusal(&key("a")), None, "there is a place by now");
    assert!(index.set_refusal(&namespace, None));
}

#[test]
fn the_state_that_a_copy_was_written_from_is_known_before_the_watch_shows_it() {
    let mut index = index();
    index.consumer_seen(&key("a"), object("ns", "a", "u", 5));
    let written = written(&index, "p", "u", 20, Some(&annotations::source_generation(9, "i")));
    index.learn(&key("a"), written, &PlannedUids::default());
    let copy = index.pair(&key("a")).unwrap().provider.as_ref().unwrap();
    assert!(copy.is_newer_than(6, "i") && !copy.is_newer_than(9, "i"));
}

#[test]
fn an_answer_says_nothing_of_whoever_took_the_name_since() {
    let mut index = index();
    index.consumer_seen(&key("a"), object("ns", "a", "first", 5));
    index.provider_seen(&key("a"), object("contract-ns", "a", "copy", 6));
    let planned = PlannedUids::of(index.pair(&key("a")).unwrap());
    index.consumer_seen(&key("a"), object("ns", "a", "second", 8));
    index.provider_deleted(&key("a"), Some("copy"));
    index.learn(&key("a"), Learned::ConsumerGone, &planned);
    assert_eq!(
        index.pair(&key("a")).unwrap().consumer.as_ref().unwrap().uid,
        Uid::from("second")
    );
    // The answer to a write of the copy after its end was seen does not bring the copy back.
    let written = written(&index, "copy", "first", 7, None);
    index.learn(&key("a"), written, &planned);
    assert!(index.pair(&key("a")).unwrap().provider.is_none());
}

#[test]
fn only_what_was_listed_on_both_sides_is_known_to_be_empty() {
    let mut index = index();
    let ns: Arc<str> = "ns".into();
    assert!(!index.is_known_empty(&ns));
    list_consumer(&mut index, vec![], 5);
    assert!(!index.is_known_empty(&ns), "copies may be left");
    index.provider_seen(&key("a"), copy("a", "contract", "gone"));
    list_provider(&mut index, "ns", vec![], 1);
    assert!(!index.is_known_empty(&ns), "a copy is left");
    index.provider_deleted(&key("a"), None);
    assert!(index.is_known_empty(&ns));
    assert!(index.is_known_empty(&"unmapped".into()));
}

#[test]
fn a_place_without_objects_may_be_given_back() {
    let mut index = index();
    assert!(index.is_vacant(&"ns".into()));
    index.consumer_seen(&key("a"), object("ns", "a", "u", 5));
    assert!(!index.is_vacant(&"ns".into()));
    index.consumer_deleted(&key("a"), Some("another"));
    assert!(!index.is_vacant(&"ns".into()));
    index.consumer_deleted(&key("a"), Some("u"));
    assert!(index.is_vacant(&"ns".into()));
    assert!(!index.is_vacant(&"unmapped".into()));
}

fn copy(name: &str, contract: &str, source: &str) -> Object {
    let json = json!({"metadata": {
        "name": name, "uid": format!("copy-of-{source}"), "resourceVersion": "5",
        "annotations": {"kube-bind.io/cluster-namespace": contract, "kube-bind.io/consumer-uid": source},
    }});
    serde_json::from_str(&json.to_string()).unwrap()
}

#[test]
fn copies_without_a_source_are_orphans_unless_its_end_was_seen() {
    let mut index = index();
    let orphans = |index: &Index<Pair>| {
        let orphans = index.orphans();
        let first: Vec<_> = orphans.first.iter().map(|key| key.name.to_string()).collect();
        assert_eq!((orphans.set.count, index.orphan_count()), (first.len(), first.len()));
        assert_eq!(
            index.orphans_in(orphans.set).map(|found| found.len()),
            Some(first.len())
        );
        first
    };
    list_provider(&mut index, "ns", vec![], 1);
    for name in ["a", "b", "c"] {
        index.consumer_seen(&key(name), object("ns", name, name, 5));
        index.provider_seen(&key(name), copy(name, "contract", name));
    }
    index.provider_seen(&key("foreign"), copy("foreign", "other", "x"));
    assert_eq!(orphans(&index), [""; 0]);
    index.consumer_deleted(&key("a"), Some("a"));
    index.consumer_deleted(&key("b"), None);
    assert_eq!(orphans(&index), [""; 0], "the consumer was not listed yet");
    list_consumer(&mut index, vec![], 9);
    assert_eq!(orphans(&index), ["b", "c"]);
    let seen = index.orphans().set;
    index.consumer_seen(&key("b"), object("ns", "b", "b", 10));
    assert_eq!(orphans(&index), ["c"], "it is back");
    index.consumer_seen(&key("c"), object("ns", "c", "other", 11));
    assert_eq!((orphans(&index), index.orphans().replaced), (vec!["c".to_owned()], 1));
    assert_eq!(index.orphans_in(seen), None, "they were others");
    index.consumer_rewound(None);
    assert_eq!(orphans(&index), ["a", "c"], "its end is no evidence after a restore");
    index.set_place(&"ns".into(), None, false);
    assert_eq!(orphans(&index), [""; 0]);
}

#[test]
fn copies_of_a_place_that_is_not_listed_are_no_orphans() {
    let mut index = index();
    list_consumer(&mut index, vec![], 9);
    index.provider_seen(&key("a"), copy("a", "contract", "a"));
    assert_eq!(index.orphans(), Orphans::default());
    assert!(index.may_hold_copies(&"ns".into()));
    list_provider(&mut index, "ns", vec![("a", copy("a", "contract", "a"))], 9);
    assert_eq!(index.orphans().set.count, 1);
    assert!(index.may_hold_copies(&"ns".into()) && !index.may_hold_copies(&"other".into()));
    index.provider_deleted(&key("a"), None);
    assert!(!index.may_hold_copies(&"ns".into()));
}

#[test]
fn a_watch_that_lags_brings_no_object_back_that_has_ended_and_a_list_does() {
    let mut index = index();
    index.consumer_seen(&key("a"), object("ns", "a", "u", 5));
    let planned = PlannedUids::of(index.pair(&key("a")).unwrap());
    index.learn(&key("a"), Learned::ConsumerGone, &planned);
    assert!(!index.consumer_changed(&key("a"), object("ns", "a", "u", 4)));
    assert!(index.pair(&key("a")).is_none());
    assert!(
        index.consumer_changed(&key("a"), object("ns", "a", "next", 7)),
        "another object of the name"
    );
    list_consumer(&mut index, vec![object("ns", "a", "u", 4)], 9);
    assert!(
        index.consumer_changed(&key("a"), object("ns", "a", "u", 10)),
        "it was restored"
    );
}

#[test]
fn a_late_answer_brings_no_object_back_that_has_ended() {
    let mut index = index();
    list_consumer(&mut index, vec![], 1);
    index.consumer_seen(&key("a"), object("ns", "a", "u", 5));
    index.consumer_deleted(&key("a"), Some("u"));
    let read = || Learned::Consumer(Some(object("ns", "a", "u", 5)));
    index.learn(&key("a"), read(), &PlannedUids::default());
    assert!(index.pair(&key("a")).is_none());
    // A watch shows it again after a restore.
    index.consumer_seen(&key("a"), object("ns", "a", "u", 5));
    index.learn(&key("a"), read(), &PlannedUids::default());
    assert!(index.pair(&key("a")).is_some());
}

#[test]
fn where_names_are_shared_other_consumers_objects_are_not_kept() {
    let mut index = Index::new("contract".into(), Placement::None);
    let key = |name: &str| ObjectKey::new("", name);
    assert!(!index.provider_seen(&key("a"), copy("a", "other", "x")));
    assert!(index.pair(&key("a")).is_none());
    index.consumer_seen(&key("b"), object("", "b", "b", 5));
    assert!(index.provider_seen(&key("b"), copy("b", "other", "x")));
    assert!(index.pair(&key("b")).unwrap().provider.is_some());
    assert!(index.provider_seen(&key("c"), copy("c", "contract", "c")));
    // Another consumer took the object over.
    assert!(index.provider_seen(&key("c"), copy("c", "other", "x")));
    assert!(index.pair(&key("c")).is_none());
}

#[test]
fn a_list_of_copies_shows_them_by_their_own_names() {
    let mut index = Index::new("contract".into(), Placement::Prefixed);
    let key = |name: &str| ObjectKey::new("", name);
    index.set_place(&"".into(), Some("".into()), false);
    for name in ["a", "b"] {
        index.provider_seen(&key(name), copy(name, "contract", name));
    }
    let named = |name: &str, source: &str| {
        let mut copy = copy(name, "contract", source);
        copy.meta.name = name.into();
        copy
    };
    let gone = list_provider(&mut index, "", vec![("a", named("contract-a", "a"))], 9);
    assert_eq!(gone, [key("b")]);
    // A copy under another object's name does not count as this one's.
    index.provider_seen(&key("b"), copy("b", "contract", "b"));
    let gone = list_provider(&mut index, "", vec![("b", named("contract-a", "b"))], 9);
    assert_eq!(gone, [key("b")]);
    // An object that cannot be decoded exists all the same.
    let mut listing = index.begin();
    listing.saw(key("contract-a"));
    assert!(index.provider_listed(&"".into(), &mut listing, Version(9)).is_empty());
}

#[test]
fn a_list_that_was_broken_off_says_nothing_to_the_next() {
    let mut index = index();
    list_consumer(
        &mut index,
        vec![object("ns", "a", "u", 5), object("ns", "b", "v", 5)],
        5,
    );
    let mut broken = index.begin();
    index.consumer_shown(&key("a"), object("ns", "a", "u", 5), &mut broken);
    let gone = list_consumer(&mut index, vec![object("ns", "b", "v", 5)], 6);
    assert_eq!(gone, [key("a")]);
}

#[test]
fn a_list_in_an_older_version_than_was_known_before_shows_that_its_cluster_went_back() {
    let mut index = index();
    index.set_place(&"ns".into(), Some("contract-ns".into()), false);
    list_provider(&mut index, "ns", vec![("a", object("contract-ns", "a", "u", 6))], 7);
    index.provider_seen(&key("b"), object("contract-ns", "b", "q", 9));
    // The provider is restored to version 7, and gives out 8 to others.
    let mut listing = index.begin_copies(Some(&"ns".into()));
    show(&mut index, false, "a", 6, &mut listing);
    let gone = index.provider_listed(&"ns".into(), &mut listing, Version(8));
    assert_eq!(gone, [key("b")]);

    let mut index = self::index();
    list_consumer(
        &mut index,
        vec![object("ns", "a", "u", 5), object("ns", "b", "v", 9)],
        9,
    );
    let mut listing = index.begin_in(None);
    index.consumer_shown(&key("a"), object("ns", "a", "u", 4), &mut listing);
    assert_eq!(index.consumer_listed(&mut listing, Version(8)), [key("b")]);
    let (_, version) = index.pair(&key("a")).and_then(Known::consumer).unwrap();
    assert_eq!(version, Version(4));
}

#[test]
fn a_place_that_was_listed_during_a_longer_list_keeps_its_copies() {
    let mut index = index();
    let mut long = index.begin();
    list_provider(&mut index, "ns", vec![("a", object("contract-ns", "a", "p", 6))], 7);
    assert!(index.provider_listed(&"ns".into(), &mut long, Version(9)).is_empty());
}

/// Shows an object of the consumer, or a copy, as a list does.
fn show(index: &mut Index<Pair>, on_consumer: bool, name: &str, version: u64, listing: &mut Listing) {
    if on_consumer {
        index.consumer_shown(&key(name), object("ns", name, "u", version), listing);
    } else {
        let copy = object("contract-ns", name, "u", version);
        index.provider_shown(Some(&key(name)), key(name), copy, listing);
    }
}

fn end(index: &mut Index<Pair>, on_consumer: bool, listing: &mut Listing, version: u64) -> Vec<ObjectKey> {
    if on_consumer {
        index.consumer_listed(listing, Version(version))
    } else {
        index.provider_listed(&"ns".into(), listing, Version(version))
    }
}

#[test]
fn lists_that_overlap_take_nothing_from_each_other() {
    let check = |on_consumer: bool, first_shows_last: bool, first_ends_last: bool| {
        let mut index = index();
        let mut lists = [index.begin(), index.begin()];
        let mut shows = [0, 1];
        if first_shows_last {
            shows.reverse();
        }
        for list in shows {
            show(&mut index, on_consumer, "a", 5, &mut lists[list]);
        }
        let mut ends = [0, 1];
        if first_ends_last {
            ends.reverse();
        }
        for list in ends {
            let gone = end(&mut index, on_consumer, &mut lists[list], 9);
            assert!(
                gone.is_empty(),
                "{on_consumer} {first_shows_last} {first_ends_last}: {gone:?}"
            );
        }
        let mut next = index.begin();
        assert_eq!(end(&mut index, on_consumer, &mut next, 9), [key("a")]);
    };
    for case in 0..8 {
        check(case & 1 > 0, case & 2 > 0, case & 4 > 0);
    }
}

#[test]
fn what_is_due_in_a_namespace_is_of_that_alone() {
    let mut index = index();
    let key = |namespace: &str, name: &str| ObjectKey::new(namespace, name);
    for (namespace, name) in [("ns", "a"), ("ns", "b"), ("other", "a")] {
        index.consumer_seen(&key(namespace, name), object(namespace, name, "u", 5));
    }
    let mut due = |namespace: Option<&str>| {
        let mut due = index.due(namespace.map(Arc::from).as_ref(), |_, _, _| true);
        due.sort();
        due
    };
    assert_eq!(due(Some("ns")), [key("ns", "a"), key("ns", "b")]);
    assert_eq!(due(Some("none")), []);
    assert_eq!(due(None).len(), 3);
}

#[test]
fn what_a_burst_took_is_given_back() {
    let mut index = index();
    let count = 20_000_u32;
    for i in 0..count {
        index.consumer_seen(&key(&i.to_string()), object("ns", &i.to_string(), "u", 5));
    }
    assert!(index.rows["ns"].capacity() >= 20_000);
    for i in 10..count {
        index.consumer_deleted(&key(&i.to_string()), Some("u"));
    }
    assert_eq!(index.consumer_count(), 10);
    assert!(index.rows["ns"].capacity() < 1000, "{}", index.rows["ns"].capacity());
    assert!((0..10).all(|i| index.pair(&key(&i.to_string())).is_some()));
}

#[test]
fn a_pair_is_small() {
    // A hundred thousand of them are a part of what a konnector may hold; see the figures of the benchmark.
    assert!(size_of::<Entry<Pair>>() <= 344, "{}", size_of::<Entry<Pair>>());
}

#[test]
fn contents_of_what_is_in_sync_are_let_go_as_soon_as_both_sides_are_shown() {
    let spec = |value: &str, meta: serde_json::Value| -> Object {
        let mut json = json!({"metadata": meta, "spec": {"x": value}, "status": {"y": 1}});
        json["metadata"]["name"] = json!("a");
        json["metadata"]["resourceVersion"] = json!("5");
        serde_json::from_str(&json.to_string()).unwrap()
    };
    let source = || spec("same", json!({"namespace": "ns", "uid": "u"}));
    let print = crate::model::projection::fingerprint(&source()).to_string();
    let copy = |value: &str, print: &str| {
        let marks = json!({
            "kube-bind.io/cluster-namespace": "contract", "kube-bind.io/consumer-uid": "u",
            "kube-bind.io/bound": "true", "kube-bind.io/projection-hash": print,
        });
        spec(
            value,
            json!({"namespace": "contract-ns", "uid": "p", "annotations": marks}),
        )
    };
    let held = |index: &Index<Pair>| {
        let pair = index.pair(&key("a")).unwrap();
        let consumer = pair.consumer.as_ref().is_some_and(|side| side.content.is_some());
        (
            consumer,
            pair.provider.as_ref().is_some_and(|side| side.content.is_some()),
        )
    };
    let check = |copy: &dyn Fn() -> Object, expect: bool| {
        for consumer_first in [true, false] {
            let mut index = index();
            if consumer_first {
                index.consumer_seen(&key("a"), source());
                assert_eq!(held(&index), (true, false), "it may have to be written");
            }
            index.provider_seen(&key("a"), copy());
            if !consumer_first {
                index.consumer_seen(&key("a"), source());
            }
            assert_eq!(held(&index), (expect, expect));
        }
    };
    check(&|| copy("same", &print), false);
    check(&|| copy("theirs", &print), true);
    check(&|| copy("same", ""), true);
}

proptest! {
    /// A list ends the same objects as a model with plain sets.
    #[test]
    fn a_list_ends_what_a_plain_set_would(
        steps in prop::collection::vec((any::<bool>(), prop::collection::btree_set(0..5_u8, 0..5), 0..9_u64), 0..12),
    ) {
        let mut index = index();
        let mut known: BTreeMap<u8, u64> = BTreeMap::new();
        for (is_list, names, version) in steps {
            let named = |name: &u8| object("ns", &name.to_string(), "u", version);
            if is_list {
                let mut gone = list_consumer(&mut index, names.iter().map(named).collect(), version);
                gone.sort();
                let expect = known.iter().filter(|(name, known)| !names.contains(*name) && **known <= version);
                let expect: Vec<_> = expect.map(|(name, _)| key(&name.to_string())).collect();
                prop_assert_eq!(gone, expect);
                known.retain(|name, known| names.contains(name) || *known > version);
            } else {
                for name in &names {
                    index.consumer_seen(&key(&name.to_string()), named(name));
                }
            }
            for name in names {
                let seen = known.entry(name).or_default();
                *seen = version.max(*seen);
            }
            prop_assert_eq!(index.consumer_count(), known.len());
        }
    }

    /// However lists overlap, an object ends with a list that did not show it, unless it is newer or a later list did.
    #[test]
    fn lists_that_overlap_end_what_sets_would(
        on_consumer: bool,
        steps in prop::collection::vec((0..5_u8, 0..3_usize, 0..4_u8, 1..9_u64), 0..40),
    ) {
        let mut index = index();
        let mut known: BTreeMap<u8, u64> = BTreeMap::new();
        // The lists under way, in the order in which they began, and the numbers of the lists that showed each object.
        let mut lists: Vec<(u32, Listing)> = Vec::new();
        // What a list showed that was older than what was known.
        let mut older: Vec<(u32, u8, u64)> = Vec::new();
        let mut shown: BTreeMap<u8, Vec<u32>> = BTreeMap::new();
        let mut begun = 0;
        for (step, at, name, version) in steps {
            if step == 0 || lists.is_empty() {
                begun += 1;
                lists.push((begun, index.begin()));
                continue;
            }
            let at = at % lists.len();
            if step > 1 {
                show(&mut index, on_consumer, &name.to_string(), version, &mut lists[at].1);
                let seen = known.entry(name).or_default();
                if version < *seen {
                    older.push((lists[at].0, name, version));
                }
                *seen = version.max(*seen);
                shown.entry(name).or_default().push(lists[at].0);
                continue;
            }
            let (number, mut list) = lists.remove(at);
            let mut gone = end(&mut index, on_consumer, &mut list, version);
            gone.sort();
            let is_shown = |name: &u8| shown[name].iter().any(|by| *by >= number);
            let expect: Vec<u8> = known.iter()
                .filter(|(name, known)| !is_shown(name) && **known <= version)
                .map(|(name, _)| *name)
                .collect();
            let keys: Vec<_> = expect.iter().map(|name| key(&name.to_string())).collect();
            prop_assert_eq!(gone, keys);
            for name in expect {
                known.remove(&name);
                shown.remove(&name);
            }
            let is_truth = |(by, name, _): &mut (u32, u8, u64)| *by == number && known.get(name).is_some_and(|known| *known <= version);
            let truth: Vec<_> = older.extract_if(.., is_truth).collect();
            if !truth.is_empty() {
                for known in known.values_mut() {
                    *known = 0;
                }
            }
            for (_, name, version) in truth {
                let seen = known.entry(name).or_default();
                *seen = version.max(*seen);
            }
        }
    }
}

#[test]
fn a_cluster_that_went_back_in_time_is_believed() {
    let mut index = index();
    index.consumer_seen(&key("a"), object("ns", "a", "u", 50));
    index.provider_seen(&key("a"), object("contract-ns", "a", "p", 60));
    index.provider_seen(&key("b"), object("contract-ns", "b", "q", 70));
    index.provider_rewound(&"ns".into());
    assert!(index.provider_seen(&key("a"), object("contract-ns", "a", "p", 9)));
    let gone = list_provider(&mut index, "ns", vec![("a", object("contract-ns", "a", "p", 9))], 10);
    assert_eq!(gone, [key("b")]);
    // A cluster that went back in time does not affect the versions of the other.
    assert!(!index.consumer_seen(&key("a"), object("ns", "a", "u", 9)));
    index.consumer_rewound(None);
    assert!(index.consumer_seen(&key("a"), object("ns", "a", "u", 9)));
}

#[test]
fn a_place_is_assumed_until_it_is_known() {
    let mut index = index();
    let namespace: Arc<str> = "ns".into();
    assert!(!index.set_assumed(&namespace, false), "no news");
    assert!(index.set_assumed(&namespace, true));
    assert!(index.place("ns").unwrap().assumed);
    assert!(index.set_assumed(&namespace, false));
    assert!(!index.set_assumed(&"other".into(), true), "it has no place");
}
