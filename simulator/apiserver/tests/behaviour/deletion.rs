//! Deletion of single objects.

use serde_json::{Value, json};

use crate::cluster::{COWBOYS, Cluster, MERGE, cowboy};

#[test]
fn an_object_without_finalizers_is_gone_at_once() {
    let mut cluster = Cluster::with_cowboys();
    let made = cluster.create(COWBOYS, &cowboy("billy"));
    let status = cluster.delete(&format!("{COWBOYS}/billy"));
    assert_eq!(
        (&status["kind"], &status["status"]),
        (&"Status".into(), &"Success".into())
    );
    assert_eq!(status["details"]["uid"], made["metadata"]["uid"]);
    let (code, body) = cluster.ask("GET", &format!("{COWBOYS}/billy"), &[], &Value::Null);
    assert_eq!((code, body["details"]["name"].as_str()), (404, Some("billy")));
}

#[test]
fn finalizers_hold_an_object() {
    let mut cluster = Cluster::with_cowboys();
    let mut sent = cowboy("billy");
    sent["metadata"]["finalizers"] = json!(["example.com/one", "example.com/two"]);
    cluster.create(COWBOYS, &sent);
    let billy = format!("{COWBOYS}/billy");
    let held = cluster.delete(&billy);
    assert_eq!(held["kind"], "Cowboy");
    assert_eq!(held["metadata"]["generation"], 2);
    assert_eq!(held["metadata"]["deletionGracePeriodSeconds"], 0);
    let since = held["metadata"]["deletionTimestamp"].clone();
    assert_eq!(cluster.delete(&billy)["metadata"]["deletionTimestamp"], since);
    let added = json!({"metadata": {"finalizers": ["example.com/one", "example.com/three"]}});
    let (code, body) = cluster.patch(&billy, MERGE, &added);
    assert_eq!(code, 422, "{body}");
    let one = json!({"metadata": {"finalizers": ["example.com/one"]}});
    assert_eq!(
        cluster.patched(&billy, MERGE, &one)["metadata"]["deletionTimestamp"],
        since
    );
    cluster.patched(&billy, MERGE, &json!({"metadata": {"finalizers": []}}));
    assert_eq!(cluster.code(&billy), 404);
}

#[test]
fn preconditions_are_checked() {
    let mut cluster = Cluster::with_cowboys();
    cluster.create(COWBOYS, &cowboy("billy"));
    let billy = format!("{COWBOYS}/billy");
    for wrong in [json!({"uid": "other"}), json!({"resourceVersion": "1"})] {
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": wrong});
        let (code, body) = cluster.ask("DELETE", &billy, &[], &options);
        assert_eq!((code, body["reason"].as_str()), (409, Some("Conflict")), "{body}");
    }
    let options = json!({"dryRun": ["All"]});
    assert_eq!(cluster.ask("DELETE", &billy, &[], &options).0, 200);
    assert_eq!(cluster.code(&billy), 200);
}

#[test]
fn a_collection_is_deleted_by_selector() {
    let mut cluster = Cluster::with_cowboys();
    for (name, label) in [("a", "x"), ("b", "y"), ("c", "x")] {
        let mut sent = cowboy(name);
        sent["metadata"]["labels"] = json!({"l": label});
        cluster.create(COWBOYS, &sent);
    }
    let list = cluster.delete(&format!("{COWBOYS}?labelSelector=l%3Dx"));
    assert_eq!(list["items"].as_array().unwrap().len(), 2);
    let left = cluster.get(COWBOYS);
    assert_eq!(left["items"][0]["metadata"]["name"], "b");
    assert_eq!(left["items"].as_array().unwrap().len(), 1);
}
