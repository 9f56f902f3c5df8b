//! Namespaces.

use serde_json::{Value, json};

use crate::cluster::{Cluster, MERGE, config_map, cowboy};

const WEST: &str = "/api/v1/namespaces/west";

fn with_west() -> Cluster {
    let mut cluster = Cluster::with_cowboys();
    let west = cluster.create("/api/v1/namespaces", &json!({"metadata": {"name": "west"}}));
    assert_eq!(west["spec"]["finalizers"], json!(["kubernetes"]));
    assert_eq!(west["status"]["phase"], "Active");
    assert_eq!(west["metadata"]["labels"]["kubernetes.io/metadata.name"], "west");
    cluster
}

#[test]
fn a_namespace_gets_an_account_and_the_root_ca() {
    let mut cluster = with_west();
    assert_eq!(
        cluster.chores(),
        ["make default ServiceAccount of west", "publish root CA in west"]
    );
    cluster.settle();
    cluster.get(&format!("{WEST}/serviceaccounts/default"));
    cluster.get(&format!("{WEST}/configmaps/kube-root-ca.crt"));
}

#[test]
fn an_absent_namespace_takes_no_objects() {
    let mut cluster = Cluster::start();
    let (code, body) = cluster.ask("POST", &format!("{WEST}/configmaps"), &[], &config_map("one"));
    assert_eq!(
        (code, body["message"].as_str()),
        (404, Some("namespaces \"west\" not found"))
    );
    let list = cluster.get(&format!("{WEST}/configmaps"));
    assert_eq!(list["items"], json!([]));
}

#[test]
fn a_deleted_namespace_is_emptied() {
    let mut cluster = with_west();
    cluster.settle();
    let cowboys = "/apis/wildwest.dev/v1/namespaces/west/cowboys";
    let mut held = cowboy("held");
    held["metadata"]["finalizers"] = json!(["example.com/one"]);
    cluster.create(cowboys, &held);
    cluster.create(&format!("{WEST}/configmaps"), &config_map("one"));
    let deleted = cluster.delete(WEST);
    assert_eq!(deleted["status"]["phase"], "Terminating");
    let (code, body) = cluster.ask("POST", &format!("{WEST}/configmaps"), &[], &config_map("two"));
    assert_eq!((code, body["reason"].as_str()), (403, Some("Forbidden")));
    assert_eq!(body["details"]["causes"][0]["reason"], "NamespaceTerminating");
    cluster.settle();
    assert_eq!(cluster.get(&format!("{WEST}/configmaps"))["items"], json!([]));
    let west = cluster.get(WEST);
    let conditions = west["status"]["conditions"].as_array().unwrap();
    assert!(
        conditions.iter().any(|it| it["type"] == "NamespaceContentRemaining"),
        "{west}"
    );
    cluster.patched(
        &format!("{cowboys}/held"),
        MERGE,
        &json!({"metadata": {"finalizers": null}}),
    );
    cluster.settle();
    assert_eq!(cluster.code(WEST), 404);
}

#[test]
fn a_namespace_can_be_forced() {
    let mut cluster = with_west();
    let mut held = cowboy("held");
    held["metadata"]["finalizers"] = json!(["example.com/one"]);
    let cowboys = "/apis/wildwest.dev/v1/namespaces/west/cowboys";
    cluster.create(cowboys, &held);
    let mut west = cluster.delete(WEST);
    west["spec"]["finalizers"] = json!([]);
    let (code, body) = cluster.ask("PUT", &format!("{WEST}/finalize"), &[], &west);
    assert_eq!(code, 200, "{body}");
    assert_eq!(cluster.code(WEST), 404);
    assert_eq!(
        cluster.code(&format!("{cowboys}/held")),
        200,
        "the objects stay in the store"
    );
    let (code, _) = cluster.ask("DELETE", "/api/v1/namespaces/kube-system", &[], &Value::Null);
    assert_eq!(code, 403);
}
