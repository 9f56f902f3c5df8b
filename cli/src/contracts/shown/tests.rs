use serde_json::json;

use super::*;

fn namespace() -> Namespace {
    serde_json::from_value(json!({ "metadata": {
        "name": "kube-bind-a", "uid": "1", "creationTimestamp": "2026-01-02T03:04:05Z",
        "labels": { "kube-bind.io/contract": "kube-bind-a" },
        "annotations": {
            annotations::IDENTITY: "cluster-a", annotations::CLUSTER_PRETTY_NAME: "Ranch",
            annotations::OWNERS: r#"[
                {"username": "jane", "uid": "7"},
                {"username": "joe", "issuer": "https://login.example.com", "subject": "8"}
            ]"#,
            annotations::OWNER_GROUPS: r#"["ranchers"]"#,
        },
    } }))
    .unwrap()
}

fn binding() -> api::ClusterBinding {
    serde_json::from_value(json!({
        "metadata": { "name": "cluster" },
        "spec": { "kubeconfigSecretRef": { "name": "kubeconfig", "key": "kubeconfig" }, "providerPrettyName": "P" },
        "status": {
            "lastHeartbeatTime": "2026-01-02T03:04:05Z", "konnectorVersion": "v0.1.0",
            "credentialExpirationTime": "2026-01-02T04:04:05Z",
            "sync": { "objects": 3, "pending": 2, "failing": 1, "lag": "1m30s" },
            "conditions": [{
                "type": "Ready", "status": "False", "reason": "HeartbeatTimeout", "message": "last heartbeat long ago",
                "severity": "Error", "lastTransitionTime": "2026-01-02T03:04:05Z",
            }],
        },
    }))
    .unwrap()
}

/// The message that a backend would send for the objects of these tests.
fn message() -> proto::Contract {
    let seconds = |seconds| Some(prost_types::Timestamp { seconds, nanos: 0 });
    let at = 1_767_323_045;
    proto::Contract {
        name: "kube-bind-a".to_owned(),
        uid: "1".to_owned(),
        creation_time: seconds(at),
        cluster_identity: "cluster-a".to_owned(),
        cluster_pretty_name: "Ranch".to_owned(),
        owners: vec![
            proto::ContractOwner {
                username: "jane".to_owned(),
                uid: "7".to_owned(),
                ..proto::ContractOwner::default()
            },
            proto::ContractOwner {
                username: "joe".to_owned(),
                issuer: "https://login.example.com".to_owned(),
                subject: "8".to_owned(),
                ..proto::ContractOwner::default()
            },
        ],
        owner_groups: vec!["ranchers".to_owned()],
        konnector: Some(proto::ContractKonnector {
            version: "v0.1.0".to_owned(),
            last_heartbeat_time: seconds(at),
            credential_expire_time: seconds(at + 3_600),
            sync: Some(proto::ContractSync {
                objects: 3,
                pending: 2,
                failing: 1,
                lag: Some(prost_types::Duration { seconds: 90, nanos: 0 }),
            }),
            ..proto::ContractKonnector::default()
        }),
        conditions: vec![proto::Condition {
            r#type: "Ready".to_owned(),
            status: "False".to_owned(),
            reason: "HeartbeatTimeout".to_owned(),
            message: "last heartbeat long ago".to_owned(),
            ..proto::Condition::default()
        }],
        ..proto::Contract::default()
    }
}

#[test]
fn backend_and_cluster_show_the_same() {
    let of_objects = of_objects(&namespace(), Some(&binding()), &[]);
    assert_eq!(ShownContract::from(message()), of_objects);
    let now = Timestamp::from_second(1_767_323_045 + 120).unwrap();
    let cells = of_objects.cells(now);
    assert_eq!(cells.len(), ShownContract::HEADINGS.len());
    assert_eq!(
        cells[..7],
        ["kube-bind-a", "Ranch", "jane,joe", "<none>", "False", "2m", "2m"].map(ToOwned::to_owned)
    );
    assert_eq!(cells[9..12], ["3", "2", "90s"].map(ToOwned::to_owned));
    assert_eq!(cells[13], "jane (UID 7),joe (subject 8 of https://login.example.com)");
    let json = serde_json::to_value(&of_objects).unwrap();
    assert_eq!(json["owners"], json!(["jane", "joe"]));
    assert_eq!(json["ownerIdentities"][0], json!({ "username": "jane", "uid": "7" }));
    assert_eq!(json["ownerIdentities"][1]["subject"], "8");
}

#[test]
fn a_contract_is_described_with_what_is_known() {
    let now = Timestamp::from_second(1_767_323_045 + 120).unwrap();
    let text = |contract: &ShownContract| {
        let lines = contract.described(now).into_iter();
        let lines: Vec<_> = lines.map(|(head, value)| format!("{head}: {value}")).collect();
        lines.join("\n")
    };
    let shown = text(&of_objects(&namespace(), Some(&binding()), &[]));
    for says in [
        "Ranch (cluster-a)",
        "ranchers",
        "last heartbeat long ago",
        "3, 2 waiting (longest 90s), 1 failing",
    ] {
        assert!(shown.contains(says), "{shown}");
    }
    let new = text(&of_objects(&namespace(), None, &[]));
    assert!(new.contains("Ready: Unknown") && !new.contains("Konnector"), "{new}");
    let revoked = ShownContract {
        revoked: Some(Timestamp::UNIX_EPOCH),
        revocation_reason: "lost laptop".to_owned(),
        ..ShownContract::default()
    };
    assert!(text(&revoked).contains("Revoked: 1970-01-01T00:00:00Z: lost laptop"));
}
