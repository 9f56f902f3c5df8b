use bindery_api::conditions::{Severity, false_condition};
use bindery_api::v1alpha2::APIServiceBindingSpec;
use jiff::Timestamp;

use super::*;

fn binding(condition: Option<bindery_api::Condition>) -> APIServiceBinding {
    let mut binding = APIServiceBinding::new("west", APIServiceBindingSpec::default());
    if let Some(condition) = condition {
        binding.set_condition(condition, Timestamp::UNIX_EPOCH);
    }
    binding
}

#[track_caller]
fn check_unavailable(status: &serde_json::Value, expect: Option<&str>) {
    let deployment = serde_json::json!({ "metadata": { "generation": 2 }, "status": status,
        "spec": { "replicas": 2, "selector": {}, "template": {} } });
    let said = unavailable(&serde_json::from_value(deployment).unwrap());
    match (said.as_deref(), expect) {
        (None, None) => {}
        (Some(said), Some(expect)) => assert!(said.contains(expect), "{said}"),
        (said, expect) => panic!("{said:?} instead of {expect:?}"),
    }
}

#[test]
fn a_deployment_is_available_when_all_that_is_new_is() {
    use serde_json::json;
    let counts = |generation: i32, all: i32, updated: i32, available: i32| json!({ "observedGeneration": generation, "replicas": all, "updatedReplicas": updated, "availableReplicas": available });
    check_unavailable(&counts(2, 2, 2, 2), None);
    check_unavailable(&json!({}), Some("deployment controller"));
    check_unavailable(&counts(1, 2, 2, 2), Some("deployment controller"));
    check_unavailable(&counts(2, 2, 1, 2), Some("1 of 2"));
    check_unavailable(&counts(2, 3, 2, 2), Some("2 of 2"));
    let mut failing = counts(2, 2, 2, 0);
    failing["conditions"] = json!([{ "type": "ReplicaFailure", "status": "True", "message": "quota" }]);
    check_unavailable(&failing, Some("0 of 2 replicas are available: quota"));
}

#[test]
fn says_what_drains() {
    let counts = binding(Some(false_condition(
        "Draining",
        Severity::Info,
        "Draining",
        "3 objects are left",
    )));
    assert_eq!(draining(&counts), "3 objects are left");
    let mut held = binding(None);
    assert_eq!(draining(&held), "waiting for the API server");
    held.metadata.finalizers = Some(vec!["x".to_owned()]);
    assert!(draining(&held).contains("waiting for the konnector"));
}
