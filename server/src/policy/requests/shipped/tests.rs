use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry, Time};
use serde_json::{Value, json};

use super::*;

fn server() -> ServerAccount {
    ServerAccount {
        username: "system:serviceaccount:kube-bind:bindery-server".to_owned(),
        namespace: "kube-bind".to_owned(),
    }
}

/// Both as an API server has them, which fills in defaults.
fn shipped() -> [Value; 2] {
    let mut documents = SHIPPED
        .split("\n---\n")
        .map(|text| serde_saphyr::from_str::<Value>(text).unwrap());
    let mut policy = documents.next().unwrap();
    let constraints = &mut policy["spec"]["matchConstraints"];
    constraints["matchPolicy"] = json!("Equivalent");
    constraints["namespaceSelector"] = json!({});
    constraints["objectSelector"] = json!({});
    constraints["resourceRules"][0]["scope"] = json!("*");
    [policy, documents.next().unwrap()]
}

fn differs(objects: [Value; 2], server: &ServerAccount) -> Option<&'static str> {
    let [policy, binding] = objects;
    difference(
        &serde_json::from_value(policy).unwrap(),
        &serde_json::from_value(binding).unwrap(),
        server,
    )
}

#[track_caller]
fn check(which: usize, pointer: &str, value: Value, expect: Option<&str>) {
    let mut objects = shipped();
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    let parent = objects[which].pointer_mut(parent).unwrap();
    match parent {
        Value::Array(items) => items[field.parse::<usize>().unwrap()] = value,
        parent => parent[field] = value,
    }
    assert_eq!(differs(objects, &server()), expect, "{pointer}");
}

#[test]
fn what_ships_is_what_is_believed() {
    assert_eq!(differs(shipped(), &server()), None);
    check(0, "/metadata/labels", json!({"mine": "too"}), None);
    check(1, "/spec/validationActions", json!(["Audit", "Deny"]), None);
}

#[test]
fn a_policy_that_lets_more_pass_is_told_from_it() {
    let selector = json!({"matchLabels": {"a": "b"}});
    check(0, "/spec/failurePolicy", json!("Ignore"), Some("failurePolicy"));
    check(0, "/spec/paramKind", json!({"kind": "ConfigMap"}), Some("paramKind"));
    for (field, value) in [
        ("namespaceSelector", selector.clone()),
        ("objectSelector", selector),
        ("excludeResourceRules", json!([{"resources": ["*"]}])),
        ("resourceRules", json!([])),
    ] {
        check(
            0,
            &format!("/spec/matchConstraints/{field}"),
            value,
            Some("matchConstraints"),
        );
    }
    let operations = "/spec/matchConstraints/resourceRules/0/operations";
    check(0, operations, json!(["UPDATE"]), Some("matchConstraints"));
    let more = json!([{"name": "a", "expression": "false"}]);
    check(0, "/spec/matchConditions", more, Some("matchConditions"));
    check(
        0,
        "/spec/variables/0/expression",
        json!("object.spec.author"),
        Some("variables"),
    );
    check(0, "/spec/validations", json!([]), Some("validations"));
    check(0, "/spec/validations/1/expression", json!("true"), Some("validations"));
    check(0, "/spec", Value::Null, Some("spec of the policy"));
}

#[test]
fn a_binding_that_lets_more_pass_is_told_from_it() {
    for (field, value) in [
        ("policyName", json!("other")),
        ("validationActions", json!(["Audit", "Warn"])),
        ("paramRef", json!({"name": "a"})),
        (
            "matchResources",
            json!({"namespaceSelector": {"matchLabels": {"a": "b"}}}),
        ),
        ("matchResources", json!({"resourceRules": [{"resources": ["pods"]}]})),
    ] {
        let expect = format!("{field} of the binding");
        check(1, &format!("/spec/{field}"), value, Some(&expect));
    }
}

#[test]
fn only_the_servers_own_account_is_left_out() {
    let other = ServerAccount {
        username: "operator".to_owned(),
        ..server()
    };
    assert_eq!(differs(shipped(), &other), Some("matchConditions"));
    let mut objects = shipped();
    let condition = &mut objects[0]["spec"]["matchConditions"][0]["expression"];
    *condition = json!(condition.as_str().unwrap().replace(SERVER.0, "'operator'"));
    assert_eq!(differs(objects.clone(), &other), None);
    assert_eq!(differs(objects, &server()), Some("matchConditions"));
}

fn at(second: i64) -> Time {
    Time(Timestamp::from_second(second).unwrap())
}

#[test]
fn a_change_that_was_taken_back_counts_and_a_status_or_a_label_does_not() {
    let entry = |second, fields: &str| ManagedFieldsEntry {
        time: Some(at(second)),
        fields_v1: Some(FieldsV1(json!({ fields: {} }))),
        ..ManagedFieldsEntry::default()
    };
    let meta = |made, entries: &[ManagedFieldsEntry]| ObjectMeta {
        creation_timestamp: Some(at(made)),
        managed_fields: Some(entries.to_vec()),
        ..ObjectMeta::default()
    };
    let check = |policy: ObjectMeta, binding: ObjectMeta, expect| {
        assert_eq!(since([&policy, &binding]), at(expect).0);
    };
    check(meta(10, &[]), meta(20, &[]), 20);
    check(meta(10, &[entry(30, "f:spec")]), meta(20, &[]), 30);
    check(meta(10, &[]), meta(20, &[entry(20, "f:spec"), entry(40, "f:spec")]), 40);
    check(
        meta(10, &[entry(50, "f:status"), entry(60, "f:metadata")]),
        meta(20, &[]),
        20,
    );
}
