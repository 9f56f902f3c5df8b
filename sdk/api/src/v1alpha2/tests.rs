use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::*;

/// Reads the object and writes it again as it was.
#[track_caller]
fn check_round_trip<T: Serialize + DeserializeOwned>(object: &Value) {
    let read: T = serde_json::from_value(object.clone()).unwrap();
    assert_eq!(&serde_json::to_value(read).unwrap(), object);
}

fn object(kind: &str, spec: &Value, status: &Value) -> Value {
    json!({ "apiVersion": API_VERSION, "kind": kind, "metadata": { "name": "x" }, "spec": spec, "status": status })
}

#[test]
fn objects_of_the_wire_are_read_and_written_as_they_are() {
    let condition = json!({
        "type": "Ready", "status": "False", "severity": "Error", "reason": "R", "message": "m",
        "lastTransitionTime": "2026-01-02T03:04:05Z",
    });
    let resources = json!([{ "group": "wildwest.dev", "resource": "cowboys", "versions": ["v1alpha1"] }]);
    let claims = json!([{
        "resource": "secrets",
        "selector": {
            "labelSelector": { "matchLabels": { "app": "cowboy" } },
            "namedResources": [{ "name": "a" }, { "name": "b", "namespace": "c" }],
            "references": [{
                "group": "wildwest.dev", "resource": "sheriffs", "jsonPath": { "name": "spec.secretRefs.#.name" },
            }],
        },
    }]);
    check_round_trip::<APIServiceBinding>(&object(
        "APIServiceBinding",
        &json!({ "kubeconfigSecretRef": { "name": "a", "key": "kubeconfig", "namespace": "kube-bind" } }),
        &json!({ "boundSchemas": [{ "resource": "secrets" }], "contractUID": "1-2", "conditions": [condition] }),
    ));
    check_round_trip::<APIServiceExport>(&object(
        "APIServiceExport",
        &json!({
            "resources": resources, "permissionClaims": claims, "informerScope": "Cluster", "isolation": "None",
        }),
        &json!({}),
    ));
    check_round_trip::<APIServiceExportRequest>(&object(
        "APIServiceExportRequest",
        &json!({
            "parameters": { "any": ["thing"] }, "resources": resources, "schemaUpdatePolicy": "Always",
            "namespaces": [{ "name": "wild-west" }],
        }),
        &json!({ "phase": "Failed", "terminalMessage": "no", "conditions": [condition] }),
    ));
    check_round_trip::<ClusterBinding>(&object(
        "ClusterBinding",
        &json!({ "kubeconfigSecretRef": { "name": "kubeconfig", "key": "kubeconfig" }, "providerPrettyName": "P" }),
        &json!({
            "lastHeartbeatTime": "2026-01-02T03:04:05Z", "heartbeatInterval": "5m0s", "konnectorVersion": "v0.1.0",
            "consumerSecretRef": { "name": "a", "namespace": "b" }, "consumerClusterUID": "3-4",
            "credentialExpirationTime": "2026-01-02T04:04:05Z",
            "sync": { "objects": 3, "pending": 2, "failing": 1, "lag": "1m30s" },
        }),
    ));
    check_round_trip::<BindableResourcesRequest>(&object(
        "BindableResourcesRequest",
        &json!({
            "templateRef": { "name": "cowboys" }, "clusterIdentity": { "identity": "i", "prettyName": "p" },
            "author": "alice", "ttlAfterFinished": "1h0m0s", "compatibility": "KubeBind",
        }),
        &json!({
            "phase": "Succeeded", "namespace": "kube-bind-x",
            "conditions": [{
                "type": "Ready", "status": "True", "reason": "SecretReady", "message": "",
                "lastTransitionTime": "2026-01-02T03:04:05Z",
            }],
        }),
    ));
}

#[test]
fn a_time_that_is_none_hides_nothing_else() {
    // Of the form that the schema asks for, and no time: whoever may write the status can write it.
    let time = "2025-01-01T00:00:00+99:99";
    let condition = json!({ "type": "SecretValid", "status": "True", "lastTransitionTime": time });
    let read: ClusterBinding = serde_json::from_value(object(
        "ClusterBinding",
        &json!({ "kubeconfigSecretRef": { "name": "kubeconfig", "key": "kubeconfig" }, "providerPrettyName": "P" }),
        &json!({ "lastHeartbeatTime": time, "konnectorVersion": "v1", "conditions": [condition] }),
    ))
    .unwrap();
    let status = read.status.unwrap();
    assert_eq!(status.last_heartbeat_time, None);
    assert_eq!(status.konnector_version.as_deref(), Some("v1"));
    assert!(status.conditions[0].is_true());
    assert_eq!(
        status.conditions[0].last_transition_time,
        crate::conditions::true_condition("x").last_transition_time
    );
}

#[test]
fn a_request_without_a_status_yet_is_pending() {
    let status: APIServiceExportRequestStatus = serde_json::from_value(json!({})).unwrap();
    assert_eq!(status.phase, Phase::Pending);
    let status: BindableResourcesRequestStatus = serde_json::from_value(json!({})).unwrap();
    assert_eq!(status.phase, Phase::Pending);
}

#[track_caller]
fn check_read_without_spec<T: DeserializeOwned + PartialEq + std::fmt::Debug>(kind: &str, expect: &T) {
    for spec in [json!({}), json!({ "spec": null }), json!({ "spec": {} })] {
        let mut object = json!({ "apiVersion": API_VERSION, "kind": kind, "metadata": {} });
        object
            .as_object_mut()
            .unwrap()
            .extend(spec.as_object().cloned().unwrap());
        assert_eq!(serde_json::from_value::<T>(object).unwrap(), *expect);
    }
}

#[test]
fn what_may_lack_a_spec_is_read_without_one() {
    check_read_without_spec("APIServiceBinding", &APIServiceBinding::default());
    check_read_without_spec("APIServiceBindingBundle", &APIServiceBindingBundle::default());
    check_read_without_spec("APIServiceNamespace", &APIServiceNamespace::default());
    check_read_without_spec("BoundSchema", &BoundSchema::default());
}

#[track_caller]
fn check_selector(selector: Value, empty: bool, all: bool) {
    let selector: Selector = serde_json::from_value(selector).unwrap();
    assert_eq!((selector.is_empty(), selector.selects_all()), (empty, all));
}

#[test]
fn an_empty_selector_is_not_one_that_selects_all() {
    check_selector(json!({}), true, false);
    check_selector(json!({ "labelSelector": {} }), false, true);
    check_selector(
        json!({ "labelSelector": { "matchLabels": {}, "matchExpressions": [] } }),
        false,
        true,
    );
    check_selector(
        json!({ "labelSelector": { "matchLabels": { "a": "b" } } }),
        false,
        false,
    );
    check_selector(json!({ "namedResources": [{ "name": "a" }] }), false, false);
}

#[test]
fn names_of_choices_are_those_of_the_api() {
    for isolation in [Isolation::Prefixed, Isolation::Namespaced, Isolation::None] {
        assert_eq!(serde_json::to_value(isolation).unwrap(), isolation.as_str());
        assert_eq!(Isolation::from_name(isolation.as_str()), Some(isolation));
    }
    assert_eq!(serde_json::to_value(Owner::Consumer).unwrap(), "consumer");
    assert_eq!(Owner::from_name("Consumer"), None);
}
