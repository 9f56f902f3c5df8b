//! Watches.

use serde_json::{Value, json};

use crate::cluster::{COWBOYS, Cluster, MERGE, cowboy, crd};

#[test]
fn a_watch_goes_on_from_a_version() {
    let mut cluster = Cluster::with_cowboys();
    let made = cluster.create(COWBOYS, &cowboy("a"));
    let from = made["metadata"]["resourceVersion"].as_str().unwrap();
    cluster.create(COWBOYS, &cowboy("b"));
    let watch = cluster.watch(&format!("{COWBOYS}?watch=1&resourceVersion={from}"));
    assert_eq!(cluster.events(watch), ["ADDED b"]);
    cluster.patched(&format!("{COWBOYS}/a"), MERGE, &json!({"spec": {"intent": "x"}}));
    cluster.delete(&format!("{COWBOYS}/b"));
    assert_eq!(cluster.server.pending_events(watch), 2);
    assert_eq!(cluster.events(watch), ["MODIFIED a", "DELETED b"]);
    let all = cluster.watch("/apis/wildwest.dev/v1/cowboys?watch=true");
    assert_eq!(cluster.events(all), ["ADDED a"]);
}

#[test]
fn a_deletion_carries_its_own_version() {
    let mut cluster = Cluster::with_cowboys();
    cluster.create(COWBOYS, &cowboy("a"));
    let watch = cluster.watch(&format!(
        "{COWBOYS}?watch=1&resourceVersion={}",
        cluster.server.revision()
    ));
    cluster.delete(&format!("{COWBOYS}/a"));
    let event: Value = serde_json::from_slice(&cluster.server.watch_events(watch)[0]).unwrap();
    let version = event["object"]["metadata"]["resourceVersion"].as_str().unwrap();
    assert_eq!(version, cluster.server.revision().to_string());
}

#[test]
fn objects_enter_and_leave_a_selector() {
    let mut cluster = Cluster::with_cowboys();
    cluster.create(COWBOYS, &cowboy("a"));
    let revision = cluster.server.revision();
    let watch = cluster.watch(&format!("{COWBOYS}?watch=1&labelSelector=x&resourceVersion={revision}"));
    for labels in [json!({"x": "1"}), json!({"x": "2"}), json!({"x": null})] {
        cluster.patched(&format!("{COWBOYS}/a"), MERGE, &json!({"metadata": {"labels": labels}}));
    }
    assert_eq!(cluster.events(watch), ["ADDED a", "MODIFIED a", "DELETED a"]);
}

#[test]
fn an_old_version_has_expired() {
    let mut cluster = Cluster::with_cowboys();
    let then = cluster.server.revision();
    cluster.create(COWBOYS, &cowboy("a"));
    cluster.server.compact();
    let watch = cluster.watch(&format!("{COWBOYS}?watch=1&resourceVersion={then}"));
    assert!(cluster.server.watch_ended(watch));
    let event: Value = serde_json::from_slice(&cluster.server.watch_events(watch)[0]).unwrap();
    assert_eq!(
        (&event["type"], &event["object"]["code"]),
        (&"ERROR".into(), &410.into())
    );
}

#[test]
fn bookmarks_come_if_asked_for() {
    let mut cluster = Cluster::with_cowboys();
    let revision = cluster.server.revision();
    let with = cluster.watch(&format!(
        "{COWBOYS}?watch=1&allowWatchBookmarks=true&resourceVersion={revision}"
    ));
    let without = cluster.watch(&format!("{COWBOYS}?watch=1&resourceVersion={revision}"));
    for watch in [with, without] {
        cluster.server.bookmark(watch);
    }
    let event: Value = serde_json::from_slice(&cluster.server.watch_events(with)[0]).unwrap();
    assert_eq!(
        (&event["type"], &event["object"]["kind"]),
        (&"BOOKMARK".into(), &"Cowboy".into())
    );
    assert_eq!(cluster.server.pending_events(without), 0);
}

#[test]
fn a_changed_schema_ends_watches_of_the_resource() {
    let mut cluster = Cluster::with_cowboys();
    let revision = cluster.server.revision();
    let watch = cluster.watch(&format!("{COWBOYS}?watch=1&resourceVersion={revision}"));
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/cowboys.wildwest.dev";
    cluster.patched(path, MERGE, &json!({"metadata": {"labels": {"a": "b"}}}));
    assert!(!cluster.server.watch_ended(watch));
    let mut spec = crd()["spec"].clone();
    spec["versions"][1]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["boots"] =
        json!({"type": "string"});
    cluster.patched(path, MERGE, &json!({"spec": spec}));
    assert!(cluster.server.watch_ended(watch));
}

#[test]
fn a_restored_server_is_silent_until_it_gets_to_the_version() {
    let mut cluster = Cluster::with_cowboys();
    let snapshot = cluster.server.snapshot();
    for name in ["a", "b"] {
        cluster.create(COWBOYS, &cowboy(name));
    }
    let then = cluster.server.revision();
    cluster
        .server
        .restore(&snapshot, bindery_simulator_apiserver::Revisions::Kept);
    let watch = cluster.watch(&format!("{COWBOYS}?watch=1&resourceVersion={then}"));
    for name in ["c", "d", "e"] {
        cluster.create(COWBOYS, &cowboy(name));
    }
    assert_eq!(cluster.events(watch), ["ADDED e"]);
}
