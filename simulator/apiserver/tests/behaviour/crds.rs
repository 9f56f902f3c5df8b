//! CRDs and their custom resources.

use serde_json::{Value, json};

use crate::cluster::{COWBOYS, Cluster, MERGE, cowboy, crd};

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const CRD: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/cowboys.wildwest.dev";

fn condition(crd: &Value, kind: &str) -> String {
    let conditions = crd["status"]["conditions"].as_array().unwrap();
    let found = conditions.iter().find(|condition| condition["type"] == kind);
    found.map_or_else(String::new, |found| {
        format!("{} {}", found["status"], found["reason"]).replace('"', "")
    })
}

#[test]
fn a_crd_is_established_by_its_controllers() {
    let mut cluster = Cluster::start();
    let made = cluster.create(CRDS, &crd());
    assert_eq!(made["status"]["storedVersions"], json!(["v1"]));
    assert_eq!(made["spec"]["names"]["listKind"], "CowboyList");
    let (code, body) = cluster.ask("GET", COWBOYS, &[], &Value::Null);
    assert_eq!((code, body.as_str()), (404, Some("404 page not found\n")));
    assert_eq!(cluster.chores(), ["establish CRD cowboys.wildwest.dev"]);
    cluster.settle();
    let crd = cluster.get(CRD);
    assert_eq!(condition(&crd, "NamesAccepted"), "True NoConflicts");
    assert_eq!(condition(&crd, "Established"), "True InitialNamesAccepted");
    assert_eq!(cluster.get(COWBOYS)["kind"], "CowboyList");
    let list = cluster.get("/apis/wildwest.dev/v1");
    let names: Vec<_> = list["resources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| &it["name"])
        .collect();
    assert_eq!(names, ["cowboys", "cowboys/status"]);
    assert_eq!(cluster.get("/apis/wildwest.dev")["preferredVersion"]["version"], "v1");
}

#[test]
fn names_of_other_crds_are_not_accepted() {
    let mut cluster = Cluster::with_cowboys();
    let mut other = crd();
    other["metadata"]["name"] = "boys.wildwest.dev".into();
    other["spec"]["names"]["plural"] = "boys".into();
    cluster.create(CRDS, &other);
    cluster.settle();
    let boys = cluster.get(&format!("{CRDS}/boys.wildwest.dev"));
    assert!(condition(&boys, "NamesAccepted").starts_with("False"), "{boys}");
    cluster.delete(CRD);
    cluster.settle();
    let boys = cluster.get(&format!("{CRDS}/boys.wildwest.dev"));
    assert_eq!(condition(&boys, "Established"), "True InitialNamesAccepted");
}

#[test]
fn all_versions_share_one_object() {
    let mut cluster = Cluster::with_cowboys();
    let old = "/apis/wildwest.dev/v1alpha1/namespaces/default/cowboys";
    let mut sent = cowboy("billy");
    sent["apiVersion"] = "wildwest.dev/v1alpha1".into();
    cluster.create(old, &sent);
    assert_eq!(
        cluster.get(&format!("{COWBOYS}/billy"))["apiVersion"],
        "wildwest.dev/v1"
    );
    assert_eq!(cluster.get(old)["items"][0]["apiVersion"], "wildwest.dev/v1alpha1");
}

#[test]
fn a_new_schema_shows_in_what_is_stored() {
    let mut cluster = Cluster::with_cowboys();
    cluster.create(COWBOYS, &cowboy("billy"));
    let mut spec = crd()["spec"].clone();
    let properties = &mut spec["versions"][1]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
    properties["boots"] = json!({"type": "string", "default": "brown"});
    properties.as_object_mut().unwrap().remove("horses");
    cluster.patched(CRD, MERGE, &json!({"spec": spec}));
    let billy = cluster.get(&format!("{COWBOYS}/billy"));
    assert_eq!(billy["spec"], json!({"intent": "ride", "boots": "brown"}));
}

#[test]
fn a_crd_takes_its_custom_resources_along() {
    let mut cluster = Cluster::with_cowboys();
    let mut held = cowboy("held");
    held["metadata"]["finalizers"] = json!(["example.com/one"]);
    cluster.create(COWBOYS, &held);
    cluster.create(COWBOYS, &cowboy("free"));
    let watch = cluster.watch(&format!(
        "{COWBOYS}?watch=1&resourceVersion={}",
        cluster.server.revision()
    ));
    let (code, deleted) = cluster.ask("DELETE", CRD, &[], &json!({"propagationPolicy": "Foreground"}));
    assert_eq!(code, 200);
    assert_eq!(
        deleted["metadata"]["finalizers"],
        json!(["customresourcecleanup.apiextensions.k8s.io"])
    );
    assert_eq!(condition(&deleted, "Terminating"), "True InstanceDeletionPending");
    let (code, body) = cluster.ask("POST", COWBOYS, &[], &cowboy("late"));
    assert_eq!((code, body["reason"].as_str()), (403, Some("Forbidden")));
    cluster.settle();
    assert_eq!(cluster.events(watch), ["DELETED free", "MODIFIED held"]);
    assert_eq!(cluster.code(CRD), 200, "one custom resource is held");
    cluster.patched(
        &format!("{COWBOYS}/held"),
        MERGE,
        &json!({"metadata": {"finalizers": null}}),
    );
    cluster.settle();
    assert_eq!(cluster.events(watch), ["DELETED held"]);
    assert!(cluster.server.watch_ended(watch));
    assert_eq!(cluster.code(CRD), 404);
    assert_eq!(cluster.ask("GET", COWBOYS, &[], &Value::Null).1, "404 page not found\n");
}
