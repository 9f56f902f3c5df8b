//! Backups, restores and clones.

use bindery_simulator_apiserver::{Actor, ApiServer, Revisions};
use serde_json::json;

use crate::cluster::{COWBOYS, Cluster, MERGE, cowboy};

#[test]
fn a_restore_in_place_brings_the_past_back() {
    let mut cluster = Cluster::with_cowboys();
    cluster.create(COWBOYS, &cowboy("a"));
    let snapshot = cluster.server.snapshot();
    let then = cluster.server.revision();
    let watch = cluster.watch(&format!("{COWBOYS}?watch=1&resourceVersion={then}"));
    let late = cluster.create(COWBOYS, &cowboy("b"));
    cluster.patched(&format!("{COWBOYS}/a"), MERGE, &json!({"spec": {"intent": "rest"}}));
    cluster.server.take_changes();
    cluster.server.restore(&snapshot, Revisions::Kept);
    assert!(cluster.server.watch_ended(watch));
    assert_eq!(cluster.server.revision(), then);
    assert_eq!(cluster.get(&format!("{COWBOYS}/a"))["spec"]["intent"], "ride");
    assert_eq!(cluster.code(&format!("{COWBOYS}/b")), 404);
    let changes = cluster.server.take_changes();
    assert_eq!(changes.len(), 2);
    assert!(changes.iter().all(|change| change.by == Actor::Controller("restore")));
    let again = cluster.create(COWBOYS, &cowboy("b"));
    assert_ne!(again["metadata"]["uid"], late["metadata"]["uid"]);
}

#[test]
fn a_list_does_not_go_on_in_the_history_of_a_backup() {
    let mut cluster = Cluster::with_cowboys();
    cluster.create(COWBOYS, &cowboy("a"));
    let snapshot = cluster.server.snapshot();
    cluster.create(COWBOYS, &cowboy("b"));
    let first = cluster.get(&format!("{COWBOYS}?limit=1"));
    let token = first["metadata"]["continue"].as_str().unwrap();
    cluster.server.restore(&snapshot, Revisions::Kept);
    assert_eq!(cluster.code(&format!("{COWBOYS}?limit=1&continue={token}")), 504);
}

#[test]
fn bumped_revisions_expire_the_old_ones() {
    let mut cluster = Cluster::with_cowboys();
    let snapshot = cluster.server.snapshot();
    let then = cluster.server.revision();
    cluster.server.restore(&snapshot, Revisions::Bumped(1000));
    assert_eq!(cluster.server.revision(), then + 1000);
    let watch = cluster.watch(&format!("{COWBOYS}?watch=1&resourceVersion={then}"));
    assert_eq!(cluster.events(watch), ["ERROR "]);
}

#[test]
fn a_clone_lives_beside_the_cluster() {
    let mut cluster = Cluster::with_cowboys();
    let a = cluster.create(COWBOYS, &cowboy("a"));
    let server = ApiServer::beside(&cluster.server.snapshot(), Revisions::Kept);
    let mut clone = Cluster {
        server,
        now: cluster.now,
    };
    assert_eq!(
        clone.get(&format!("{COWBOYS}/a"))["metadata"]["uid"],
        a["metadata"]["uid"]
    );
    let (here, there) = (
        cluster.create(COWBOYS, &cowboy("b")),
        clone.create(COWBOYS, &cowboy("b")),
    );
    assert_ne!(here["metadata"]["uid"], there["metadata"]["uid"]);
    cluster.delete(&format!("{COWBOYS}/a"));
    assert_eq!(clone.code(&format!("{COWBOYS}/a")), 200);
}

#[test]
fn the_same_requests_give_the_same_answers() {
    let run = || {
        let mut cluster = Cluster::with_cowboys();
        cluster.create(COWBOYS, &cowboy("a"));
        cluster.get("/apis/wildwest.dev/v1/cowboys").to_string()
    };
    assert_eq!(run(), run());
}
