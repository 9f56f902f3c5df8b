use serde_json::json;

use super::*;

#[track_caller]
fn check(object: &Value, expect: &str) {
    assert_eq!(Health::of(Some(object)).to_string(), expect);
}

/// An object of generation 2, with the status given.
fn object(api_version: &str, kind: &str, spec: &Value, status: &Value) -> Value {
    json!({
        "apiVersion": api_version, "kind": kind, "metadata": {"name": "a", "generation": 2}, "spec": spec, "status": status,
    })
}

/// The status with the newest generation seen.
fn seen(mut status: Value) -> Value {
    status["observedGeneration"] = json!(2);
    status
}

fn condition(kind: &str, status: &str, reason: &str) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "message": "why"})
}

#[test]
fn what_is_not_there_is_missing() {
    assert_eq!(Health::of(None), Health::Missing);
    assert_eq!(Health::Missing.reason(), Some("it does not exist"));
}

#[test]
fn programs_read_the_state_and_the_reason() {
    let shown = |health: Health| serde_json::to_value(health).unwrap();
    assert_eq!(shown(Health::Healthy), json!({"state": "Healthy"}));
    assert_eq!(
        shown(Health::Failed("x".to_owned())),
        json!({"state": "Failed", "reason": "x"})
    );
}

const BEHIND: &str = "Progressing: its controller has not seen its newest generation yet";

#[test]
fn nothing_is_said_of_a_generation_that_no_controller_has_seen() {
    let ready = json!({"observedGeneration": 1, "conditions": [condition("Ready", "True", "Fine")]});
    check(&object("example.org/v1", "Db", &json!({}), &ready), BEHIND);
    for kind in ["Deployment", "StatefulSet", "DaemonSet", "ReplicaSet"] {
        check(&object("apps/v1", kind, &json!({}), &json!({})), BEHIND);
        check(
            &object("apps/v1", kind, &json!({}), &json!({"observedGeneration": 1})),
            BEHIND,
        );
    }
}

#[test]
fn what_is_being_deleted_is_not_healthy() {
    let mut config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    check(&config, "Healthy");
    config["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:04:05Z");
    check(&config, "Progressing: it is being deleted");
}

#[track_caller]
fn check_deployment(spec: &Value, status: Value, expect: &str) {
    check(&object("apps/v1", "Deployment", spec, &seen(status)), expect);
}

#[test]
fn deployments_are_healthy_when_all_pods_are_new_and_available() {
    let three = json!({"replicas": 3});
    let good = json!({
        "replicas": 3, "updatedReplicas": 3, "readyReplicas": 3, "availableReplicas": 3,
        "conditions": [condition("Available", "True", "MinimumReplicasAvailable"), condition("Progressing", "True", "NewReplicaSetAvailable")],
    });
    check_deployment(&three, good.clone(), "Healthy");
    check_deployment(&three, json!({}), "Progressing: 0 of 3 pods are updated");
    check_deployment(&json!({}), json!({}), "Progressing: 0 of 1 pods are updated");
    check_deployment(&json!({"replicas": 0}), json!({}), "Healthy");
    let with = |key: &str, value: i64| {
        let mut status = good.clone();
        status[key] = json!(value);
        status
    };
    check_deployment(
        &three,
        with("updatedReplicas", 1),
        "Progressing: 1 of 3 pods are updated",
    );
    check_deployment(&three, with("replicas", 4), "Progressing: 1 old pods are still there");
    check_deployment(&three, with("readyReplicas", 2), "Progressing: 2 of 3 pods are ready");
    check_deployment(
        &three,
        with("availableReplicas", 2),
        "Progressing: 2 of 3 pods are available",
    );
}

#[test]
fn deployments_say_why_they_do_not_get_on() {
    let status = |conditions: &[Value]| json!({"replicas": 1, "updatedReplicas": 1, "conditions": conditions});
    check_deployment(
        &json!({"replicas": 1}),
        status(&[condition("Progressing", "False", "ProgressDeadlineExceeded")]),
        "Failed: ProgressDeadlineExceeded: why",
    );
    check_deployment(
        &json!({"replicas": 1}),
        status(&[
            condition("ReplicaFailure", "True", "FailedCreate"),
            condition("Progressing", "True", "ReplicaSetUpdated"),
        ]),
        "Progressing: FailedCreate: why",
    );
    check_deployment(&json!({"replicas": 3, "paused": true}), json!({}), "Healthy");
    let all = json!({
        "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1,
        "conditions": [condition("Available", "False", "MinimumReplicasUnavailable")],
    });
    check_deployment(
        &json!({"replicas": 1}),
        all,
        "Progressing: MinimumReplicasUnavailable: why",
    );
}

#[track_caller]
fn check_stateful_set(spec: &Value, status: Value, expect: &str) {
    check(&object("apps/v1", "StatefulSet", spec, &seen(status)), expect);
}

#[test]
fn stateful_sets_are_healthy_when_their_revision_is_everywhere() {
    let spec = json!({"replicas": 3, "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}});
    let status = |updated: i64, ready: i64, current: &str| {
        json!({
            "replicas": 3, "updatedReplicas": updated, "readyReplicas": ready,
            "currentRevision": current, "updateRevision": "b",
        })
    };
    check_stateful_set(&spec, json!({}), "Progressing: 0 of 3 pods are updated");
    check_stateful_set(&spec, status(2, 3, "a"), "Progressing: 2 of 3 pods are updated");
    check_stateful_set(&spec, status(3, 2, "a"), "Progressing: 2 of 3 pods are ready");
    check_stateful_set(
        &spec,
        status(3, 3, "a"),
        "Progressing: pods of an older revision are being replaced",
    );
    check_stateful_set(&spec, status(3, 3, "b"), "Healthy");
    let mut two = spec;
    two["replicas"] = json!(2);
    check_stateful_set(&two, status(3, 3, "b"), "Progressing: 1 old pods are still there");
}

#[test]
fn stateful_sets_are_not_waited_for_beyond_their_partition_or_hand() {
    let status = |updated: i64, ready: i64| {
        json!({
            "replicas": 3, "updatedReplicas": updated, "readyReplicas": ready,
            "currentRevision": "a", "updateRevision": "b",
        })
    };
    let spec = |strategy: Value| json!({"replicas": 3, "updateStrategy": strategy});
    let partition = |at: i64| spec(json!({"type": "RollingUpdate", "rollingUpdate": {"partition": at}}));
    check_stateful_set(&partition(2), status(0, 3), "Progressing: 0 of 1 pods are updated");
    check_stateful_set(&partition(2), status(1, 3), "Healthy");
    check_stateful_set(&partition(9), status(0, 3), "Healthy");
    check_stateful_set(&partition(2), status(1, 2), "Progressing: 2 of 3 pods are ready");
    let by_hand = spec(json!({"type": "OnDelete"}));
    check_stateful_set(&by_hand, status(0, 3), "Healthy");
    check_stateful_set(&by_hand, status(0, 1), "Progressing: 1 of 3 pods are ready");
}

#[test]
fn daemon_sets_are_healthy_when_they_run_on_all_their_nodes() {
    #[track_caller]
    fn check_set(strategy: &str, status: Value, expect: &str) {
        let spec = json!({"updateStrategy": {"type": strategy}});
        check(&object("apps/v1", "DaemonSet", &spec, &seen(status)), expect);
    }
    let status = |scheduled: i64, updated: i64, ready: i64, available: i64| {
        json!({
            "desiredNumberScheduled": 2, "currentNumberScheduled": scheduled, "updatedNumberScheduled": updated,
            "numberReady": ready, "numberAvailable": available,
        })
    };
    check_set(
        "RollingUpdate",
        json!({}),
        "Progressing: it is not known yet on how many nodes it is to run",
    );
    check_set("RollingUpdate", json!({"desiredNumberScheduled": 0}), "Healthy");
    check_set(
        "RollingUpdate",
        status(1, 1, 1, 1),
        "Progressing: 1 of 2 pods are scheduled",
    );
    check_set(
        "RollingUpdate",
        status(2, 1, 2, 2),
        "Progressing: 1 of 2 pods are updated",
    );
    check_set(
        "RollingUpdate",
        status(2, 2, 1, 1),
        "Progressing: 1 of 2 pods are ready",
    );
    check_set(
        "RollingUpdate",
        status(2, 2, 2, 1),
        "Progressing: 1 of 2 pods are available",
    );
    check_set("RollingUpdate", status(2, 2, 2, 2), "Healthy");
    check_set("OnDelete", status(2, 0, 2, 2), "Healthy");
}

#[test]
fn replica_sets_are_healthy_when_their_pods_are_available() {
    #[track_caller]
    fn check_set(status: Value, expect: &str) {
        check(
            &object("apps/v1", "ReplicaSet", &json!({"replicas": 2}), &seen(status)),
            expect,
        );
    }
    check_set(
        json!({"replicas": 2, "readyReplicas": 2, "availableReplicas": 2}),
        "Healthy",
    );
    check_set(
        json!({"replicas": 2, "readyReplicas": 2, "availableReplicas": 1}),
        "Progressing: 1 of 2 pods are available",
    );
    check_set(
        json!({"replicas": 3, "readyReplicas": 3, "availableReplicas": 3}),
        "Progressing: 1 old pods are still there",
    );
    let quota = json!({"replicas": 0, "conditions": [condition("ReplicaFailure", "True", "FailedCreate")]});
    check_set(quota, "Progressing: FailedCreate: why");
}

#[test]
fn jobs_are_healthy_when_they_are_complete() {
    #[track_caller]
    fn check_job(spec: &Value, status: &Value, expect: &str) {
        check(&object("batch/v1", "Job", spec, status), expect);
    }
    let three = json!({"completions": 3});
    check_job(&three, &json!({}), "Progressing: 0 of 3 pods have completed");
    check_job(
        &three,
        &json!({"active": 1, "succeeded": 2}),
        "Progressing: 2 of 3 pods have completed",
    );
    check_job(
        &json!({}),
        &json!({"active": 1}),
        "Progressing: 0 of 1 pods have completed",
    );
    check_job(
        &three,
        &json!({"succeeded": 3, "conditions": [condition("Complete", "True", "")]}),
        "Healthy",
    );
    let failed = json!({"failed": 7, "conditions": [condition("Failed", "True", "BackoffLimitExceeded")]});
    check_job(&three, &failed, "Failed: BackoffLimitExceeded: why");
    let failing = json!({"conditions": [condition("FailureTarget", "True", "DeadlineExceeded")]});
    check_job(&three, &failing, "Failed: DeadlineExceeded: why");
    check_job(
        &json!({"suspend": true}),
        &json!({"conditions": [condition("Suspended", "True", "JobSuspended")]}),
        "Healthy",
    );
}

#[test]
fn pods_are_healthy_when_they_are_ready_or_done() {
    #[track_caller]
    fn check_pod(status: &Value, expect: &str) {
        check(&object("v1", "Pod", &json!({}), status), expect);
    }
    check_pod(&json!({}), "Progressing: it is not ready");
    check_pod(&json!({"phase": "Succeeded"}), "Healthy");
    check_pod(
        &json!({"phase": "Running", "conditions": [condition("Ready", "True", "")]}),
        "Healthy",
    );
    check_pod(
        &json!({"phase": "Running", "conditions": [condition("Ready", "False", "")]}),
        "Progressing: it is not ready",
    );
    check_pod(&json!({"phase": "Failed", "message": "evicted"}), "Failed: evicted");
    check_pod(
        &json!({"phase": "Failed"}),
        "Failed: its containers ended with an error",
    );
    let unschedulable =
        json!({"phase": "Pending", "conditions": [condition("PodScheduled", "False", "Unschedulable")]});
    check_pod(&unschedulable, "Progressing: Unschedulable: why");
    let waiting = json!([{"name": "web", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]);
    let crashing = json!({"phase": "Running", "containerStatuses": waiting});
    check_pod(&crashing, "Progressing: container web: CrashLoopBackOff");
    let starting = json!({"phase": "Pending", "initContainerStatuses": waiting});
    check_pod(&starting, "Progressing: container web: CrashLoopBackOff");
}

#[test]
fn claims_are_healthy_when_they_are_bound() {
    #[track_caller]
    fn check_claim(status: &Value, expect: &str) {
        check(&object("v1", "PersistentVolumeClaim", &json!({}), status), expect);
    }
    let waiting = "Progressing: it is not bound to a volume; it may wait for the first Pod that uses it";
    check_claim(&json!({"phase": "Bound"}), "Healthy");
    check_claim(&json!({"phase": "Pending"}), waiting);
    check_claim(&json!({}), waiting);
    check_claim(
        &json!({"phase": "Lost"}),
        "Failed: the volume it was bound to does not exist any more",
    );
}

#[test]
fn definitions_are_healthy_when_they_are_served() {
    #[track_caller]
    fn check_definition(conditions: &[Value], expect: &str) {
        let status = json!({"conditions": conditions});
        check(
            &object(
                "apiextensions.k8s.io/v1",
                "CustomResourceDefinition",
                &json!({}),
                &status,
            ),
            expect,
        );
    }
    let accepted = condition("NamesAccepted", "True", "NoConflicts");
    check_definition(&[], "Progressing: its kind is not served yet");
    check_definition(
        &[accepted.clone(), condition("Established", "False", "Installing")],
        "Progressing: Installing: why",
    );
    check_definition(
        &[accepted, condition("Established", "True", "InitialNamesAccepted")],
        "Healthy",
    );
    let refused = [
        condition("NamesAccepted", "False", "ListKindConflict"),
        condition("Established", "False", "NotAccepted"),
    ];
    check_definition(&refused, "Failed: ListKindConflict: why");
}

#[test]
fn all_others_are_what_their_conditions_say() {
    #[track_caller]
    fn check_other(conditions: &[Value], expect: &str) {
        check(
            &object("example.org/v1", "Db", &json!({}), &json!({"conditions": conditions})),
            expect,
        );
    }
    let ready = |status| condition("Ready", status, "R");
    check_other(&[], "Healthy");
    check_other(&[condition("Odd", "False", "R")], "Healthy");
    check_other(&[ready("True")], "Healthy");
    check_other(&[ready("False")], "Progressing: R: why");
    check_other(&[ready("Unknown")], "Progressing: R: why");
    check_other(
        &[condition("Available", "False", "A"), ready("True")],
        "Progressing: A: why",
    );
    check_other(&[condition("Established", "False", "E")], "Progressing: E: why");
    check_other(&[ready("True"), condition("Stalled", "True", "S")], "Failed: S: why");
    check_other(&[ready("False"), condition("Failed", "True", "F")], "Failed: F: why");
    check_other(&[ready("True"), condition("Failed", "False", "F")], "Healthy");
    check_other(
        &[ready("True"), condition("Reconciling", "True", "C")],
        "Progressing: C: why",
    );
    check_other(
        &[json!({"type": "Ready", "status": "False"})],
        "Progressing: condition Ready is False",
    );
    let mut old = ready("True");
    old["observedGeneration"] = json!(1);
    check_other(&[old], "Progressing: condition Ready speaks of an older generation");
    let mut stalled = condition("Stalled", "True", "S");
    stalled["observedGeneration"] = json!(1);
    check_other(&[ready("True"), stalled], "Healthy");
    check(&object("example.org/v1", "Db", &json!({}), &json!("text")), "Healthy");
}
