use std::{sync::atomic::Ordering, time::Duration};

use bindery_api::orphans::OrphanAction;
use bindery_runtime::watch::Event;
use futures::FutureExt as _;
use serde_json::{Value, json};

use super::*;
use crate::{
    bound::{Engine, learn::Learned, pair::Pair, plan::Op, strategy::Bound},
    engine::{events, tests::engine},
    model::object::Object,
};

fn key() -> ObjectKey {
    ObjectKey::new("wild-west", "billy")
}

fn object(namespace: &str, uid: &str, version: u64, annotations: &Value) -> Object {
    let json = json!({"metadata": {
        "namespace": namespace, "name": "billy", "uid": uid, "resourceVersion": version.to_string(),
        "annotations": annotations,
    }});
    serde_json::from_str(&json.to_string()).unwrap()
}

/// An object whose copy's name is taken by a foreign object. No task of the engine runs as long as the test waits for
/// nothing.
fn taken() -> (Engine, Arc<Shared<Bound>>) {
    let engine = engine();
    let shared = Arc::clone(&engine.running.shared);
    let mut index = shared.index.lock();
    index.set_place(&key().namespace, Some("place".into()), false);
    let mut listing = index.begin();
    index.consumer_shown(&key(), object("wild-west", "u", 5, &json!({})), &mut listing);
    index.consumer_listed(&mut listing, Version(5));
    index.provider_shown(Some(&key()), key(), object("place", "p", 6, &json!({})), &mut listing);
    index.provider_listed(&key().namespace, &mut listing, Version(6));
    drop(index);
    (engine, shared)
}

fn sync(shared: &Shared<Bound>) -> (Result<Option<Issue>, Issue>, Versions) {
    let mut known = Versions::default();
    let outcome = shared.sync(&key(), &mut known, &mut Trigger::default()).now_or_never();
    (outcome.expect("nothing is to be written"), known)
}

#[tokio::test]
async fn an_issue_that_ended_before_it_was_noted_is_looked_at_again() {
    let (_engine, shared) = taken();
    shared.queue.add(key(), Priority::Live);
    let work = shared.queue.try_next().unwrap();
    let (outcome, known) = sync(&shared);
    assert!(matches!(outcome, Ok(Some(_))), "{outcome:?}");

    // A paused object is left alone, and has no issue.
    let paused = object("wild-west", "u", 7, &json!({"kube-bind.io/paused": "true"}));
    events::consumer(Arc::clone(&shared), None)(Event::Applied(paused));
    shared.finish(work, outcome, known);
    assert_eq!(shared.issues.lock().count(), 1);

    let work = shared.queue.try_next().expect("it is looked at again");
    let (outcome, known) = sync(&shared);
    shared.finish(work, outcome, known);
    assert_eq!(shared.issues.lock().count(), 0);
    assert!(shared.queue.is_idle());
}

#[tokio::test]
async fn an_issue_that_stays_is_not_looked_at_all_the_time() {
    let (_engine, shared) = taken();
    shared.queue.add(key(), Priority::Live);
    let work = shared.queue.try_next().unwrap();
    let (outcome, known) = sync(&shared);
    shared.finish(work, outcome, known);
    assert_eq!(shared.issues.lock().count(), 1);
    assert!(shared.queue.is_idle());

    // Nor does an issue for lack of a provider namespace queue the object again.
    let mut index = shared.index.lock();
    index.set_place(&key().namespace, None, false);
    index.set_refusal(&key().namespace, Some(&"taken".into()));
    drop(index);
    shared.queue.add(key(), Priority::Live);
    let work = shared.queue.try_next().unwrap();
    let (outcome, known) = sync(&shared);
    assert_eq!(
        outcome.as_ref().unwrap().as_ref().unwrap().reason,
        "NoProviderNamespace"
    );
    shared.finish(work, outcome, known);
    assert!(shared.queue.is_idle());
}

#[tokio::test]
async fn what_we_wrote_ourselves_is_no_change_and_what_came_beside_it_is() {
    let check = |comes_between: bool| {
        let (_engine, shared) = taken();
        let mut known = shared.versions(&key());
        let planned = PlannedUids::of(shared.index.lock().pair(&key()).unwrap());
        if comes_between {
            let changed = object("wild-west", "u", 7, &json!({}));
            shared.index.lock().consumer_seen(&key(), changed);
        }
        let learned = Learned::Provider(Some(object("place", "p", 8, &json!({}))));
        shared.learn(&key(), learned, &planned, &Op::ReadProvider, &mut known);
        assert_eq!(known != shared.versions(&key()), comes_between);
    };
    check(false);
    check(true);
}

#[tokio::test(start_paused = true)]
async fn what_was_withheld_goes_on_although_not_all_is_known() {
    let engine = engine();
    let shared = Arc::clone(&engine.running.shared);
    let guard = Arc::clone(&shared.strategy.guards()[0]);
    guard.withhold(true);
    assert!(shared.withholds_deletions());
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(shared.held_back.load(Ordering::Acquire), "it is withheld still");
    guard.withhold(false);
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert!(!guard.allows(), "no list was complete");
    assert!(!shared.held_back.load(Ordering::Acquire), "it is tried again");
}

#[tokio::test]
async fn an_order_is_for_the_orphans_that_the_user_saw() {
    let (_engine, shared) = taken();
    let copy = |uid: &str, version| {
        let marks = json!({"kube-bind.io/cluster-namespace": "kube-bind-x", "kube-bind.io/consumer-uid": "gone"});
        object("place", uid, version, &marks)
    };
    let orphans = || shared.index.lock().orphans().set;
    let orders = || {
        let index = shared.index.lock();
        let orphan = index
            .pair(&key())
            .and_then(Pair::orphan)
            .map(|orphan| orphan.copy.clone());
        shared.strategy.orders().of(orphan.as_ref(), true)
    };
    shared.index.lock().consumer_deleted(&key(), None);
    shared.index.lock().provider_seen(&key(), copy("p1", 7));
    let seen = orphans();
    assert_eq!(seen.count, 1);
    shared.index.lock().provider_seen(&key(), copy("p2", 8));
    shared.end_orphans(OrphanAction::Delete, seen);
    assert_eq!(orders(), None, "it is another orphan");
    shared.end_orphans(OrphanAction::Delete, orphans());
    assert_eq!(orders(), Some(OrphanAction::Delete));
    assert!(!shared.queue.is_empty(), "it is looked at");
}
