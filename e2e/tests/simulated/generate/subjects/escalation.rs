//! Users who may write roles and bindings, and try to give more than they have.

use serde_json::{Value, json};

use crate::generate::{
    draft::Draft,
    kind::{CLUSTER_ROLE, CLUSTER_ROLE_BINDING, Kind, ROLE, ROLE_BINDING},
    step::Call,
};

pub(super) fn act(draft: &mut Draft) {
    // The groups' rights are part of what both servers begin with.
    let granter = draft.user(&format!("{}-gil", draft.id), &["simulated:granters"]);
    let reader = draft.user(
        &format!("{}-ria", draft.id),
        &["simulated:granters", "simulated:readers"],
    );
    let binder = draft.user(&format!("{}-bob", draft.id), &["simulated:binders"]);
    for _ in 0..5 {
        let (kind, object) = if draft.random.chance(50) {
            role(draft)
        } else {
            binding(draft)
        };
        let user = match draft.random.below(4) {
            0 => &binder,
            1 => &reader,
            _ => &granter,
        };
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        draft.watch_state(kind, &name);
        let path = draft.path(kind, &name);
        let call = match draft.random.below(5) {
            0 => Call::apply(path, "one", object).query("force", "true"),
            1 => {
                draft.call(Call::post(draft.list(kind), object.clone()));
                let change = if kind == ROLE || kind == CLUSTER_ROLE {
                    json!({"rules": [rule("", "pods", &["get"])]})
                } else {
                    json!({"subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "zed"}]})
                };
                Call::merge(path, change)
            }
            2 => {
                draft.call(Call::post(draft.list(kind), object));
                Call::merge(path, json!({"metadata": {"labels": {"only": "metadata"}}}))
            }
            _ => Call::post(draft.list(kind), object),
        };
        draft.call(call.by(user));
    }
}

fn rule(group: &str, resource: &str, verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": [resource], "verbs": verbs})
}

fn role(draft: &mut Draft) -> (Kind, Value) {
    let kind = draft.kind(&[ROLE, CLUSTER_ROLE]);
    let name = draft.fresh(kind);
    let rules = match draft.random.below(8) {
        0 => json!([rule("", "configmaps", &["get", "list"])]),
        1 => json!([rule("", "configmaps", &["get", "list", "delete"])]),
        2 => json!([
            rule("", "secrets", &["get"]),
            rule("wildwest.dev", "cowboys", &["create"])
        ]),
        3 => json!([rule("*", "*", &["*"])]),
        4 => json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"], "resourceNames": ["a", "b"]}]),
        5 => json!([]),
        6 => json!([{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]),
        _ => json!([{"apiGroups": [""], "resources": ["configmaps"]}]),
    };
    let object = json!({"apiVersion": kind.api, "kind": kind.name, "metadata": {"name": name}, "rules": rules});
    (kind, object)
}

fn binding(draft: &mut Draft) -> (Kind, Value) {
    let kind = draft.kind(&[ROLE_BINDING, CLUSTER_ROLE_BINDING]);
    let name = draft.fresh(kind);
    let role = draft.random.pick(&[
        "simulated:reader",
        "simulated:all",
        "simulated:bindable",
        "simulated:missing",
    ]);
    let role_kind = if kind == CLUSTER_ROLE_BINDING || draft.random.chance(90) {
        "ClusterRole"
    } else {
        "Role"
    };
    let subject = match draft.random.below(5) {
        0 => json!({"kind": "ServiceAccount", "name": "default", "namespace": draft.namespace}),
        1 => json!({"kind": "ServiceAccount", "name": "default"}),
        2 => json!({"kind": "Robot", "name": "r2"}),
        _ => json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "zoe"}),
    };
    let object = json!({
        "apiVersion": kind.api, "kind": kind.name, "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role_kind, "name": role},
        "subjects": [subject],
    });
    (kind, object)
}
