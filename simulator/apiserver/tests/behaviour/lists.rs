//! Lists, pages and selectors.

use serde_json::{Value, json};

use crate::cluster::{COWBOYS, Cluster, cowboy};

fn with_five() -> Cluster {
    let mut cluster = Cluster::with_cowboys();
    for name in ["a", "b", "c", "d", "e"] {
        let mut sent = cowboy(name);
        sent["metadata"]["labels"] = json!({"letter": name});
        cluster.create(COWBOYS, &sent);
    }
    cluster
}

fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().unwrap().iter();
    items.map(|item| item["metadata"]["name"].as_str().unwrap()).collect()
}

#[test]
fn pages_are_of_one_moment() {
    let mut cluster = with_five();
    let first = cluster.get(&format!("{COWBOYS}?limit=2"));
    assert_eq!(names(&first), ["a", "b"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 3);
    cluster.delete(&format!("{COWBOYS}/d"));
    cluster.create(COWBOYS, &cowboy("bb"));
    let token = first["metadata"]["continue"].as_str().unwrap();
    let second = cluster.get(&format!("{COWBOYS}?limit=2&continue={token}"));
    assert_eq!(names(&second), ["c", "d"]);
    assert_eq!(
        second["metadata"]["resourceVersion"],
        first["metadata"]["resourceVersion"]
    );
    let token = second["metadata"]["continue"].as_str().unwrap();
    let last = cluster.get(&format!("{COWBOYS}?limit=2&continue={token}"));
    assert_eq!(names(&last), ["e"]);
    assert_eq!(last["metadata"]["continue"], "");
}

#[test]
fn compaction_ends_pages() {
    let mut cluster = with_five();
    let first = cluster.get(&format!("{COWBOYS}?limit=2"));
    cluster.create(COWBOYS, &cowboy("bb"));
    cluster.server.compact();
    let token = first["metadata"]["continue"].as_str().unwrap();
    let (code, body) = cluster.ask("GET", &format!("{COWBOYS}?limit=2&continue={token}"), &[], &Value::Null);
    assert_eq!((code, body["reason"].as_str()), (410, Some("Expired")));
    let token = body["metadata"]["continue"].as_str().unwrap();
    let rest = cluster.get(&format!("{COWBOYS}?continue={token}"));
    assert_eq!(names(&rest), ["bb", "c", "d", "e"]);
}

#[test]
fn selectors_limit_a_list() {
    let mut cluster = with_five();
    for (selector, expect) in [
        ("labelSelector=letter%3Da", &["a"][..]),
        ("labelSelector=letter%20in%20(a,b)", &["a", "b"]),
        ("labelSelector=letter%20notin%20(a,b),letter", &["c", "d", "e"]),
        ("labelSelector=!letter", &[]),
        ("labelSelector=letter!%3Da,letter!%3Db", &["c", "d", "e"]),
        ("fieldSelector=metadata.name%3Dc", &["c"]),
    ] {
        let list = cluster.get(&format!("{COWBOYS}?{selector}"));
        assert_eq!(names(&list), expect, "{selector}");
    }
    let (code, _) = cluster.ask("GET", &format!("{COWBOYS}?fieldSelector=spec.x%3Dc"), &[], &Value::Null);
    assert_eq!(code, 400);
}

#[test]
fn metadata_comes_alone_if_asked_for() {
    let mut cluster = with_five();
    let accept = [(
        "accept",
        "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
    )];
    let (_, one) = cluster.ask("GET", &format!("{COWBOYS}/a"), &accept, &Value::Null);
    assert_eq!((&one["kind"], one.get("spec")), (&"PartialObjectMetadata".into(), None));
    let (_, list) = cluster.ask("GET", COWBOYS, &accept, &Value::Null);
    assert_eq!(list["kind"], "PartialObjectMetadataList");
    assert_eq!(list["items"][0]["apiVersion"], "meta.k8s.io/v1");
}

#[test]
fn past_and_future_versions() {
    let mut cluster = with_five();
    let then = cluster.server.revision();
    cluster.delete(&format!("{COWBOYS}/a"));
    let list = cluster.get(&format!("{COWBOYS}?resourceVersion={then}&resourceVersionMatch=Exact"));
    assert_eq!(names(&list), ["a", "b", "c", "d", "e"]);
    let list = cluster.get(&format!("{COWBOYS}?resourceVersion={then}"));
    assert_eq!(names(&list), ["b", "c", "d", "e"]);
    let (code, body) = cluster.ask("GET", &format!("{COWBOYS}?resourceVersion=999999"), &[], &Value::Null);
    assert_eq!((code, body["reason"].as_str()), (504, Some("Timeout")));
}
