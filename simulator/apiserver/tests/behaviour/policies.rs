//! Admission policies, as far as clients see when they take effect.

use jiff::SignedDuration;
use serde_json::json;

use crate::cluster::{Cluster, config_map};

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Creates a policy that denies each new ConfigMap.
fn deny(cluster: &mut Cluster) {
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]});
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "none"},
        "spec": {
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": "false", "message": "no ConfigMaps"}],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "none"},
        "spec": {"policyName": "none", "validationActions": ["Deny"]},
    });
    cluster.create(POLICIES, &policy);
    cluster.create(BINDINGS, &binding);
}

fn code(cluster: &mut Cluster, name: &str) -> u16 {
    cluster.ask("POST", CONFIG_MAPS, &[], &config_map(name)).0
}

#[test]
fn a_policy_takes_effect_late_each_time_it_is_created() {
    let mut cluster = Cluster::start();
    cluster.server.set_policy_delay(SignedDuration::from_secs(10));
    deny(&mut cluster);
    assert_eq!(code(&mut cluster, "early"), 201);
    cluster.now += SignedDuration::from_secs(10);
    assert_eq!(code(&mut cluster, "late"), 422);
    cluster.delete(&format!("{POLICIES}/none"));
    cluster.delete(&format!("{BINDINGS}/none"));
    deny(&mut cluster);
    assert_eq!(code(&mut cluster, "again"), 201);
}
