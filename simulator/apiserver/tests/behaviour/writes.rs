//! Creation, updates and patches.

use serde_json::{Value, json};

use crate::cluster::{APPLY, COWBOYS, Cluster, MERGE, config_map, cowboy};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[test]
fn creation_sets_what_the_system_owns() {
    let mut cluster = Cluster::with_cowboys();
    let mut sent = cowboy("billy");
    sent["metadata"]["uid"] = "mine".into();
    sent["metadata"]["generation"] = 7.into();
    sent["status"] = json!({"phase": "Ready"});
    sent["spec"]["unknown"] = true.into();
    let made = cluster.create(COWBOYS, &sent);
    assert_ne!(made["metadata"]["uid"], "mine");
    assert_eq!(made["metadata"]["generation"], 1);
    assert_eq!(made["metadata"]["namespace"], "default");
    assert_eq!(made["spec"], json!({"intent": "ride", "horses": 1}));
    assert_eq!(made.get("status"), None);
    let (code, again) = cluster.ask("POST", COWBOYS, &[], &cowboy("billy"));
    assert_eq!((code, again["reason"].as_str()), (409, Some("AlreadyExists")));
    assert_eq!(again["message"], "cowboys.wildwest.dev \"billy\" already exists");
    assert_eq!(
        again["details"],
        json!({"name": "billy", "group": "wildwest.dev", "kind": "cowboys"})
    );
}

#[test]
fn the_generation_counts_changes_of_the_spec_only() {
    let mut cluster = Cluster::with_cowboys();
    cluster.create(COWBOYS, &cowboy("billy"));
    let billy = format!("{COWBOYS}/billy");
    let labelled = cluster.patched(&billy, MERGE, &json!({"metadata": {"labels": {"a": "b"}}}));
    assert_eq!(labelled["metadata"]["generation"], 1);
    let changed = cluster.patched(
        &billy,
        MERGE,
        &json!({"spec": {"intent": "rest"}, "status": {"phase": "x"}}),
    );
    assert_eq!(changed["metadata"]["generation"], 2);
    assert_eq!(changed.get("status"), None, "the status has its own subresource");
    let status = json!({"spec": {"intent": "no"}, "metadata": {"labels": {"c": "d"}}, "status": {"phase": "Ready"}});
    let stated = cluster.patched(&format!("{billy}/status"), MERGE, &status);
    assert_eq!(stated["metadata"]["generation"], 2);
    assert_eq!(stated["metadata"]["labels"], json!({"a": "b"}));
    assert_eq!(
        (&stated["spec"]["intent"], &stated["status"]["phase"]),
        (&"rest".into(), &"Ready".into())
    );
}

#[test]
fn a_write_that_changes_nothing_is_no_write() {
    let mut cluster = Cluster::with_cowboys();
    let made = cluster.create(COWBOYS, &cowboy("billy"));
    let revision = cluster.server.revision();
    let same = cluster.patched(&format!("{COWBOYS}/billy"), MERGE, &json!({"spec": {"intent": "ride"}}));
    assert_eq!(same["metadata"]["resourceVersion"], made["metadata"]["resourceVersion"]);
    assert_eq!(cluster.server.revision(), revision);
}

#[test]
fn versions_and_uids_are_preconditions() {
    let mut cluster = Cluster::with_cowboys();
    let made = cluster.create(COWBOYS, &cowboy("billy"));
    let billy = format!("{COWBOYS}/billy");
    cluster.patched(&billy, MERGE, &json!({"spec": {"intent": "rest"}}));
    let (code, stale) = cluster.ask("PUT", &billy, &[], &made);
    assert_eq!((code, stale["reason"].as_str()), (409, Some("Conflict")));
    let mut free = made.clone();
    free["metadata"]["resourceVersion"] = Value::Null;
    let (code, error) = cluster.ask("PUT", &billy, &[], &free);
    assert_eq!(code, 422, "{error}");
    let other = json!({"metadata": {"uid": "other"}, "spec": {"intent": "x"}});
    let (code, error) = cluster.patch(&billy, MERGE, &other);
    assert_eq!(code, 422, "{error}");
    let old = json!({"metadata": {"resourceVersion": "1"}, "spec": {"intent": "x"}});
    assert_eq!(cluster.patch(&billy, MERGE, &old).0, 409);
    // A ConfigMap can be replaced without a version.
    cluster.create(MAPS, &config_map("one"));
    let (code, _) = cluster.ask("PUT", &format!("{MAPS}/one"), &[], &config_map("one"));
    assert_eq!(code, 200);
}

#[test]
fn apply_creates_and_changes_and_refuses_versions_of_others() {
    let mut cluster = Cluster::with_cowboys();
    let path = format!("{COWBOYS}/billy?fieldManager=me&force=true");
    let mut applied = cowboy("billy");
    applied["metadata"]["resourceVersion"] = "1".into();
    let (code, made) = cluster.patch(&path, APPLY, &applied);
    assert_eq!(code, 201, "{made}");
    assert_eq!(cluster.patch(&path, APPLY, &applied).0, 409, "it exists");
    let (code, _) = cluster.patch(&format!("{COWBOYS}/billy"), APPLY, &applied);
    assert_eq!(code, 422, "an apply needs a field manager");
    let mut changed = cowboy("billy");
    changed["metadata"]["uid"] = made["metadata"]["uid"].clone();
    changed["spec"]["intent"] = "rest".into();
    let (code, changed) = cluster.patch(&path, APPLY, &changed);
    assert_eq!(
        (code, changed["spec"]["intent"].as_str()),
        (200, Some("rest")),
        "{changed}"
    );
}

#[test]
fn a_dry_run_writes_nothing() {
    let mut cluster = Cluster::with_cowboys();
    let revision = cluster.server.revision();
    let (code, made) = cluster.ask("POST", &format!("{COWBOYS}?dryRun=All"), &[], &cowboy("billy"));
    assert_eq!((code, made["spec"]["horses"].as_i64()), (201, Some(1)));
    assert_eq!(cluster.code(&format!("{COWBOYS}/billy")), 404);
    assert_eq!(cluster.server.revision(), revision);
}

#[test]
fn schemas_are_enforced() {
    let mut cluster = Cluster::with_cowboys();
    let mut check = |spec: Value, message: &str| {
        let mut sent = cowboy("billy");
        sent["spec"] = spec;
        let (code, body) = cluster.ask("POST", COWBOYS, &[], &sent);
        assert_eq!(code, 422, "{body}");
        let found = body["message"].as_str().unwrap();
        let invalid = "Cowboy.wildwest.dev \"billy\" is invalid: ";
        // The schema has a rule, which is not checked where a value has the wrong type or is missing.
        let unchecked = "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct \
                         the existing errors to complete validation";
        let either = [
            format!("{invalid}{message}"),
            format!("{invalid}[{message}, {unchecked}]"),
        ];
        assert!(either.iter().any(|expect| expect == found), "{found}");
    };
    check(json!({}), "spec.intent: Required value");
    check(
        json!({"intent": ""}),
        "spec.intent: Invalid value: \"\": spec.intent in body should be at least 1 chars long",
    );
    check(
        json!({"intent": "x", "horses": "many"}),
        "spec.horses: Invalid value: \"string\": spec.horses in body must be of type integer: \"string\"",
    );
    check(
        json!({"intent": "x", "kind": "ugly"}),
        "spec.kind: Unsupported value: \"ugly\": supported values: \"good\", \"bad\"",
    );
    check(
        json!({"intent": "x", "horses": -1}),
        "spec.horses: Invalid value: -1: spec.horses in body should be greater than or equal to 0",
    );
}

#[test]
fn rules_compare_with_the_value_before() {
    let mut cluster = Cluster::with_cowboys();
    let mut sent = cowboy("billy");
    sent["spec"]["hat"] = "white".into();
    cluster.create(COWBOYS, &sent);
    let billy = format!("{COWBOYS}/billy");
    assert_eq!(cluster.patch(&billy, MERGE, &json!({"spec": {"hat": "white"}})).0, 200);
    let (code, body) = cluster.patch(&billy, MERGE, &json!({"spec": {"hat": "black"}}));
    assert_eq!(code, 422);
    assert!(body["message"].as_str().unwrap().contains("a hat stays"), "{body}");
}

#[test]
fn secrets_keep_type_and_merge_texts() {
    let mut cluster = Cluster::start();
    let path = "/api/v1/namespaces/default/secrets";
    let secret = json!({"metadata": {"name": "one"}, "stringData": {"a": "1"}, "data": {"b": "Mg=="}});
    let made = cluster.create(path, &secret);
    assert_eq!(
        (&made["type"], &made["data"]),
        (&"Opaque".into(), &json!({"a": "MQ==", "b": "Mg=="}))
    );
    assert_eq!(made.get("stringData"), None);
    let one = format!("{path}/one");
    assert_eq!(cluster.patch(&one, MERGE, &json!({"type": "other"})).0, 422);
    cluster.patched(&one, MERGE, &json!({"immutable": true}));
    let (code, body) = cluster.patch(&one, MERGE, &json!({"data": {"a": "Mw=="}}));
    assert_eq!(code, 422);
    assert!(
        body["message"]
            .as_str()
            .unwrap()
            .contains("data: Forbidden: field is immutable"),
        "{body}"
    );
}

#[test]
fn names_are_generated_and_checked() {
    let mut cluster = Cluster::start();
    let made = cluster.create(MAPS, &json!({"metadata": {"generateName": "map-"}}));
    let name = made["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("map-") && name.len() == 9, "{name}");
    let (code, body) = cluster.ask("POST", MAPS, &[], &config_map("Not A Name"));
    assert_eq!(code, 422);
    assert_eq!(body["details"]["causes"][0]["field"], "metadata.name");
    let (code, _) = cluster.ask(
        "POST",
        MAPS,
        &[],
        &json!({"metadata": {"name": "x", "namespace": "other"}}),
    );
    assert_eq!(code, 400);
}
