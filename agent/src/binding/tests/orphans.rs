use bindery_api::orphans::OrphanSet;

use super::*;
use crate::binding::{
    fixtures::{CRD, binding, served, session, words},
    plan,
};

fn set(uids: &[&str]) -> OrphanSet {
    let mut set = OrphanSet::default();
    for uid in uids {
        set.add(uid);
    }
    set
}

/// A binding with these orphans, and with an order of this text.
fn ordered(uids: &[&str], text: &str) -> ObservedBinding {
    let mut seen = served();
    seen.engines.get_mut(CRD).unwrap().progress.orphans.set = set(uids);
    let annotations = binding(&mut seen).annotations_mut();
    annotations.insert(annotations::END_ORPHANS.to_owned(), text.to_owned());
    seen
}

#[track_caller]
fn check(seen: &ObservedBinding, expect: &[&str]) {
    assert_eq!(words(&plan::plan(seen).ops), expect);
}

#[test]
fn an_order_is_carried_out_for_exactly_the_orphans_that_it_names() {
    for action in OrphanAction::ALL {
        let orphans = set(&["a", "b"]);
        let text = OrphanOrder { action, orphans }.to_string();
        let word = format!("{} orphans", action.as_str());
        check(&ordered(&["a", "b"], &text), &[&*word, "go on"]);
        for others in [&["a"][..], &["a", "c"], &["a", "b", "c"], &[]] {
            check(&ordered(others, &text), &["refuse order", "go on"]);
        }
    }
    check(&ordered(&["a"], "yes"), &["refuse order", "go on"]);
    check(&ordered(&[], ""), &["refuse order", "go on"]);
}

#[test]
fn an_order_waits_until_all_objects_are_known_and_the_contract_is_verified() {
    let orphans = set(&["a"]);
    let action = OrphanAction::Delete;
    let order = ordered(&["a"], &OrphanOrder { action, orphans }.to_string());
    let mut listing = order.clone();
    listing.engines.get_mut(CRD).unwrap().progress.provider_synced = false;
    check(&listing, &["go on"]);
    let mut unverified = order.clone();
    session(&mut unverified).found = None;
    let planned = words(&plan::plan(&unverified).ops);
    assert!(!planned.contains(&"delete orphans".to_owned()), "{planned:?}");
    let mut paused = order;
    binding(&mut paused)
        .annotations_mut()
        .insert(annotations::PAUSED.to_owned(), annotations::TRUE.to_owned());
    check(&paused, &["pause"]);
}

#[test]
fn the_message_counts_what_lost_its_source() {
    let seen = served();
    let mut orphans = Orphans {
        set: set(&["a"]),
        replaced: 1,
        first: vec![bindery_runtime::cache::ObjectKey::new("wild-west", "billy")],
    };
    let one = message(&seen, &orphans);
    assert!(one.starts_with("1 copy has no source here any more"), "{one}");
    assert!(
        one.contains(": wild-west/billy, of which 1 with a new object of the same name;"),
        "{one}"
    );
    orphans.set.add("b");
    orphans.replaced = 0;
    let two = message(&seen, &orphans);
    assert!(
        two.contains("2 copies have") && two.contains(": wild-west/billy, ...;"),
        "{two}"
    );
    assert_eq!(OrphanSet::of_message(&two), Some(orphans.set));
}
