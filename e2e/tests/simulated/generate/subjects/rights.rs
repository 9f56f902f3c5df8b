//! What users may by roles, and the words with which others are refused.

use serde_json::json;

use crate::generate::{
    draft::Draft,
    kind::{CLUSTER_ROLE, CLUSTER_ROLE_BINDING, CONFIG_MAP, COWBOY, ROLE, ROLE_BINDING, SECRET, SHERIFF},
    step::{Call, User},
};

const SELF_REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

pub(super) fn act(draft: &mut Draft) {
    let person = format!("{}-ann", draft.id);
    let team = format!("{}-team", draft.id);
    let user = draft.user(&person, &[&team]);
    attempts(draft, &user);
    let role = draft.fresh(ROLE);
    let rules = json!([
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch", "create", "patch"]},
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"], "resourceNames": ["alpha"]},
        {"apiGroups": ["wildwest.dev"], "resources": ["cowboys", "cowboys/status"], "verbs": ["*"]},
    ]);
    let wide = draft.random.chance(30);
    let subject = if draft.random.chance(50) {
        json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": person})
    } else {
        json!({"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": team})
    };
    let (role_kind, binding_kind) = if wide {
        (CLUSTER_ROLE, CLUSTER_ROLE_BINDING)
    } else {
        (ROLE, ROLE_BINDING)
    };
    let name = draft.scoped(role_kind, &role);
    let mut object = draft.object(role_kind, &name);
    object["rules"] = rules;
    draft.call(Call::post(draft.list(role_kind), object));
    draft.watch_state(binding_kind, &name);
    let binding = json!({
        "apiVersion": binding_kind.api, "kind": binding_kind.name, "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role_kind.name, "name": name},
        "subjects": [subject],
    });
    draft.call(Call::post(draft.list(binding_kind), binding));
    draft.call(self_review(draft, "list", "", "configmaps").by(&user).patient());
    attempts(draft, &user);
    attempts(draft, &user);
    let path = draft.path(binding_kind, &name);
    draft.call(Call::merge(&path, json!({"roleRef": {"name": "another"}})));
    draft.call(Call::delete(path));
    draft.call(self_review(draft, "list", "", "configmaps").by(&user).patient());
    attempts(draft, &user);
}

fn self_review(draft: &Draft, verb: &str, group: &str, resource: &str) -> Call {
    Call::post(
        SELF_REVIEWS,
        json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {
                "namespace": draft.namespace, "verb": verb, "group": group, "resource": resource,
            }},
        }),
    )
}

fn attempts(draft: &mut Draft, user: &User) {
    for _ in 0..2 {
        let call = attempt(draft);
        draft.call(call.by(user));
    }
}

fn attempt(draft: &mut Draft) -> Call {
    let open = |call: Call| call.query("labelSelector", "sequence,!none");
    match draft.random.below(17) {
        0 => open(Call::get(draft.list(CONFIG_MAP))),
        1 => Call::get(CONFIG_MAP.list("")).query("labelSelector", format!("sequence={}", draft.id)),
        2 => Call::get(draft.path(SECRET, "alpha")),
        3 => Call::get(draft.path(SECRET, "beta")),
        4 => Call::get(draft.list(SECRET)),
        5 => Call::post(draft.list(COWBOY), COWBOY.object("alpha", &mut draft.random)),
        6 => Call::merge(
            format!("{}/status", draft.path(COWBOY, "alpha")),
            json!({"status": {"result": "won"}}),
        ),
        7 => Call::delete(draft.list(CONFIG_MAP)).query("labelSelector", "none=none"),
        8 => Call::delete(draft.path(CONFIG_MAP, "alpha")),
        9 => Call::get(SHERIFF.list("")).query("labelSelector", "none=none"),
        10 => Call::post(
            SHERIFF.list(""),
            json!({"apiVersion": SHERIFF.api, "kind": "Sheriff", "metadata": {"name": "x"}}),
        ),
        11 => Call::apply(
            draft.path(CONFIG_MAP, "applied"),
            "one",
            json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}, "data": {"a": "b"},
            }),
        ),
        12 => Call::put(
            draft.path(CONFIG_MAP, "alpha"),
            json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "alpha"}, "data": {"a": "b"},
            }),
        ),
        13 => Call::get("/version/none"),
        14 => Call::get(format!("/apis/none.test/v1/namespaces/{}/things", draft.namespace)),
        15 => open(Call::get(draft.list(CONFIG_MAP))).query("limit", "1"),
        _ => Call::post(
            format!(
                "{}/token",
                draft.path(crate::generate::kind::SERVICE_ACCOUNT, "default")
            ),
            json!({
                "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {},
            }),
        ),
    }
}
