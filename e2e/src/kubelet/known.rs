//! The fields of Pods that this kubelet knows. A Pod with another one does not run, so that nothing is ignored in silence.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use serde_json::Value;

/// Fields of the spec, each with all fields below it.
const OF_POD: [&str; 18] = [
    "automountServiceAccountToken",
    "enableServiceLinks",
    "nodeName",
    "restartPolicy",
    "securityContext.fsGroup",
    "securityContext.runAsGroup",
    "securityContext.runAsNonRoot",
    "securityContext.runAsUser",
    "securityContext.supplementalGroups",
    "serviceAccount",
    "serviceAccountName",
    "terminationGracePeriodSeconds",
    "volumes.configMap",
    "volumes.downwardAPI",
    "volumes.emptyDir",
    "volumes.name",
    "volumes.projected",
    "volumes.secret",
];

/// Fields that would change nothing: there is one node, which takes every Pod, and it has neither a registry nor a DNS server. It
/// limits no system calls.
const WITHOUT_EFFECT_ON_POD: [&str; 9] = [
    "dnsPolicy",
    "imagePullSecrets",
    "preemptionPolicy",
    "priority",
    "priorityClassName",
    "schedulerName",
    "securityContext.seccompProfile",
    "tolerations",
    "topologySpreadConstraints",
];

/// Fields of a container.
const OF_CONTAINER: [&str; 14] = [
    "args",
    "command",
    "env",
    "image",
    "name",
    "ports.containerPort",
    "ports.name",
    "ports.protocol",
    "securityContext.runAsGroup",
    "securityContext.runAsNonRoot",
    "securityContext.runAsUser",
    "volumeMounts.mountPath",
    "volumeMounts.name",
    "volumeMounts.readOnly",
];

/// Fields that would change nothing: images are those of this machine, resources are not limited, every root is read-only, no program
/// gains privileges, and the message of an end is that of the log.
const WITHOUT_EFFECT_ON_CONTAINER: [&str; 9] = [
    "imagePullPolicy",
    "resizePolicy",
    "resources",
    "securityContext.allowPrivilegeEscalation",
    "securityContext.capabilities.drop",
    "securityContext.readOnlyRootFilesystem",
    "securityContext.seccompProfile",
    "terminationMessagePath",
    "terminationMessagePolicy",
];

/// Fields of a probe.
const OF_PROBE: [&str; 8] = [
    "failureThreshold",
    "httpGet.path",
    "httpGet.port",
    "httpGet.scheme",
    "initialDelaySeconds",
    "periodSeconds",
    "successThreshold",
    "timeoutSeconds",
];

/// Fails if a field is set that this kubelet does not know.
pub(super) fn check(pod: &Pod) -> Result<()> {
    let mut unknown = Vec::new();
    find_unknown("", &serde_json::to_value(&pod.spec)?, &mut unknown);
    ensure!(
        unknown.is_empty(),
        "this kubelet does not know {}, which Pod {} has set",
        unknown.join(", "),
        pod.name_any()
    );
    Ok(())
}

/// Adds the paths of unknown fields below a path. Numbers of items are no part of a path, and `false` and what is empty counts as not
/// set.
fn find_unknown(path: &str, value: &Value, unknown: &mut Vec<String>) {
    if is_known(path) {
        return;
    }
    match value {
        Value::Object(fields) => {
            let dot = if path.is_empty() { "" } else { "." };
            for (name, value) in fields {
                find_unknown(&format!("{path}{dot}{name}"), value, unknown);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| find_unknown(path, item, unknown)),
        Value::Null | Value::Bool(false) => {}
        _ => unknown.push(path.to_owned()),
    }
}

fn is_known(path: &str) -> bool {
    let below = |path: &str, names: &[&'static str]| {
        let mut found = names
            .iter()
            .filter_map(|name| path.strip_prefix(name)?.strip_prefix('.'));
        found.next().map(str::to_owned)
    };
    let Some(path) = below(path, &["containers", "initContainers"]) else {
        return OF_POD.contains(&path) || WITHOUT_EFFECT_ON_POD.contains(&path);
    };
    match below(&path, &["livenessProbe", "readinessProbe", "startupProbe"]) {
        Some(path) => OF_PROBE.contains(&path.as_str()),
        None => OF_CONTAINER.contains(&path.as_str()) || WITHOUT_EFFECT_ON_CONTAINER.contains(&path.as_str()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn finds(spec: &Value, expect: &str) {
        let mut found = Vec::new();
        find_unknown("", spec, &mut found);
        assert_eq!(found.join(" "), expect);
    }

    #[test]
    fn what_a_pod_asks_for_and_does_not_get_is_found() {
        for (spec, expect) in [
            (json!({"hostNetwork": true}), "hostNetwork"),
            (json!({"nodeSelector": {"disk": "fast"}}), "nodeSelector.disk"),
            (
                json!({"volumes": [{"name": "a", "hostPath": {"path": "/"}}]}),
                "volumes.hostPath.path",
            ),
            (
                json!({"securityContext": {"sysctls": [{"name": "a"}]}}),
                "securityContext.sysctls.name",
            ),
            (
                json!({"initContainers": [{"restartPolicy": "Always"}]}),
                "initContainers.restartPolicy",
            ),
            (
                json!({"containers": [{"name": "a", "workingDir": "/"}, {"securityContext": {"privileged": true}}]}),
                "containers.workingDir containers.securityContext.privileged",
            ),
            (
                json!({"containers": [{"envFrom": [{"prefix": "a"}], "livenessProbe": {"exec": {"command": ["a"]}}}]}),
                "containers.envFrom.prefix containers.livenessProbe.exec.command",
            ),
        ] {
            finds(&spec, expect);
        }
    }

    #[test]
    fn what_is_done_or_not_set_is_not_found() {
        finds(
            &json!({
                "hostNetwork": false,
                "nodeSelector": {},
                "terminationGracePeriodSeconds": 30,
                "tolerations": [{"operator": "Exists"}],
                "volumes": [{"name": "a", "secret": {"secretName": "b", "items": [{"key": "c", "path": "d", "mode": 256}]}}],
                "containers": [{
                    "name": "a",
                    "resources": {"requests": {"cpu": "1"}},
                    "readinessProbe": {"httpGet": {"path": "/", "port": 1}},
                }],
            }),
            "",
        );
    }
}
