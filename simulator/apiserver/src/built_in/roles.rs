//! The ClusterRoles and ClusterRoleBindings that Kubernetes brings, as far as the simulated programs use them.

use serde_json::{Value, json};

pub(crate) const GROUP: &str = "rbac.authorization.k8s.io";

const READ: [&str; 3] = ["get", "list", "watch"];
const WRITE: [&str; 5] = ["create", "delete", "deletecollection", "patch", "update"];

fn rule(verbs: &[&str], group: &str, resources: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
}

/// Resource and object of each role and binding.
pub(crate) fn all() -> Vec<(&'static str, Value)> {
    let roles = [
        role("cluster-admin", &[], cluster_admin()),
        aggregated("admin", &[], "rbac.authorization.k8s.io/aggregate-to-admin"),
        aggregated(
            "edit",
            &["aggregate-to-admin"],
            "rbac.authorization.k8s.io/aggregate-to-edit",
        ),
        aggregated(
            "view",
            &["aggregate-to-edit"],
            "rbac.authorization.k8s.io/aggregate-to-view",
        ),
        role("system:aggregate-to-admin", &["aggregate-to-admin"], admin()),
        role("system:aggregate-to-edit", &["aggregate-to-edit"], edit()),
        role("system:aggregate-to-view", &["aggregate-to-view"], view()),
        role("system:basic-user", &[], basic_user()),
        role(
            "system:discovery",
            &[],
            json!([paths(&[
                "/api",
                "/api/*",
                "/apis",
                "/apis/*",
                "/healthz",
                "/livez",
                "/openapi",
                "/openapi/*",
                "/readyz",
                "/version",
                "/version/"
            ])]),
        ),
        role(
            "system:public-info-viewer",
            &[],
            json!([paths(&["/healthz", "/livez", "/readyz", "/version", "/version/"])]),
        ),
        role(
            "system:service-account-issuer-discovery",
            &[],
            json!([paths(&[
                "/.well-known/openid-configuration",
                "/.well-known/openid-configuration/",
                "/openid/v1/jwks",
                "/openid/v1/jwks/"
            ])]),
        ),
        role("system:auth-delegator", &[], auth_delegator()),
    ];
    let bindings = [
        binding("cluster-admin", &["system:masters"]),
        binding("system:basic-user", &["system:authenticated"]),
        binding("system:discovery", &["system:authenticated"]),
        binding(
            "system:public-info-viewer",
            &["system:authenticated", "system:unauthenticated"],
        ),
        binding("system:service-account-issuer-discovery", &["system:serviceaccounts"]),
    ];
    let roles = roles.into_iter().map(|role| ("clusterroles", role));
    roles
        .chain(bindings.into_iter().map(|it| ("clusterrolebindings", it)))
        .collect()
}

fn metadata(name: &str, aggregates: &[&str]) -> Value {
    let mut labels = json!({"kubernetes.io/bootstrapping": "rbac-defaults"});
    for aggregate in aggregates {
        labels[format!("{GROUP}/{aggregate}")] = "true".into();
    }
    let annotations = json!({"rbac.authorization.kubernetes.io/autoupdate": "true"});
    json!({"name": name, "labels": labels, "annotations": annotations})
}

fn role(name: &str, aggregates: &[&str], rules: Value) -> Value {
    let mut role = json!({"metadata": metadata(name, aggregates)});
    role["rules"] = rules;
    role
}

fn aggregated(name: &str, aggregates: &[&str], label: &str) -> Value {
    let selectors = json!([{"matchLabels": {label: "true"}}]);
    json!({
        "metadata": metadata(name, aggregates),
        "aggregationRule": {"clusterRoleSelectors": selectors},
        "rules": null,
    })
}

fn binding(role: &str, groups: &[&str]) -> Value {
    let subjects: Vec<Value> = groups
        .iter()
        .map(|group| json!({"kind": "Group", "apiGroup": GROUP, "name": group}))
        .collect();
    json!({
        "metadata": metadata(role, &[]),
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role},
        "subjects": subjects,
    })
}

fn paths(paths: &[&str]) -> Value {
    json!({"nonResourceURLs": paths, "verbs": ["get"]})
}

fn cluster_admin() -> Value {
    json!([
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
        {"nonResourceURLs": ["*"], "verbs": ["*"]},
    ])
}

fn admin() -> Value {
    let verbs = [&WRITE[..], &READ[..]].concat();
    json!([
        rule(&["create"], "authorization.k8s.io", &["localsubjectaccessreviews"]),
        rule(&verbs, GROUP, &["rolebindings", "roles"]),
    ])
}

fn edit() -> Value {
    let all = [&WRITE[..], &READ[..]].concat();
    json!([
        rule(
            &READ,
            "",
            &[
                "pods/attach",
                "pods/exec",
                "pods/portforward",
                "pods/proxy",
                "secrets",
                "services/proxy"
            ]
        ),
        rule(&["impersonate"], "", &["serviceaccounts"]),
        rule(
            &WRITE,
            "",
            &["pods", "pods/attach", "pods/exec", "pods/portforward", "pods/proxy"]
        ),
        rule(&["create"], "", &["pods/eviction"]),
        rule(
            &WRITE,
            "",
            &[
                "configmaps",
                "events",
                "persistentvolumeclaims",
                "replicationcontrollers",
                "replicationcontrollers/scale",
                "secrets",
                "serviceaccounts",
                "services",
                "services/proxy",
            ]
        ),
        rule(&["create"], "", &["serviceaccounts/token"]),
        rule(
            &WRITE,
            "apps",
            &[
                "daemonsets",
                "deployments",
                "deployments/rollback",
                "deployments/scale",
                "replicasets",
                "replicasets/scale",
                "statefulsets",
                "statefulsets/scale"
            ]
        ),
        rule(&WRITE, "autoscaling", &["horizontalpodautoscalers"]),
        rule(&WRITE, "batch", &["cronjobs", "jobs"]),
        rule(&WRITE, "policy", &["poddisruptionbudgets"]),
        rule(&WRITE, "networking.k8s.io", &["ingresses", "networkpolicies"]),
        rule(&all, "coordination.k8s.io", &["leases"]),
    ])
}

fn view() -> Value {
    json!([
        rule(
            &READ,
            "",
            &[
                "configmaps",
                "endpoints",
                "persistentvolumeclaims",
                "persistentvolumeclaims/status",
                "pods",
                "replicationcontrollers",
                "replicationcontrollers/scale",
                "serviceaccounts",
                "services",
                "services/status",
            ]
        ),
        rule(
            &READ,
            "",
            &[
                "bindings",
                "events",
                "limitranges",
                "namespaces/status",
                "pods/log",
                "pods/status",
                "replicationcontrollers/status",
                "resourcequotas",
                "resourcequotas/status"
            ]
        ),
        rule(&READ, "", &["namespaces"]),
        rule(&READ, "discovery.k8s.io", &["endpointslices"]),
        rule(
            &READ,
            "apps",
            &[
                "controllerrevisions",
                "daemonsets",
                "daemonsets/status",
                "deployments",
                "deployments/scale",
                "deployments/status",
                "replicasets",
                "replicasets/scale",
                "replicasets/status",
                "statefulsets",
                "statefulsets/scale",
                "statefulsets/status"
            ]
        ),
        rule(
            &READ,
            "autoscaling",
            &["horizontalpodautoscalers", "horizontalpodautoscalers/status"]
        ),
        rule(&READ, "batch", &["cronjobs", "cronjobs/status", "jobs", "jobs/status"]),
        rule(
            &READ,
            "policy",
            &["poddisruptionbudgets", "poddisruptionbudgets/status"]
        ),
        rule(
            &READ,
            "networking.k8s.io",
            &["ingresses", "ingresses/status", "networkpolicies"]
        ),
    ])
}

fn basic_user() -> Value {
    json!([
        rule(
            &["create"],
            "authorization.k8s.io",
            &["selfsubjectaccessreviews", "selfsubjectrulesreviews"]
        ),
        rule(&["create"], "authentication.k8s.io", &["selfsubjectreviews"]),
    ])
}

fn auth_delegator() -> Value {
    json!([
        rule(&["create"], "authentication.k8s.io", &["tokenreviews"]),
        rule(&["create"], "authorization.k8s.io", &["subjectaccessreviews"]),
    ])
}
