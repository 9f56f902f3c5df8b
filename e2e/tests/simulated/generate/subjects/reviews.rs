//! Questions about rights: of oneself, of others, in one namespace.

use serde_json::{Value, json};

use crate::generate::{
    draft::Draft,
    step::{Call, User},
};

pub(super) fn act(draft: &mut Draft) {
    let person = format!("{}-ben", draft.id);
    let user = draft.user(&person, &["simulated:readers"]);
    let powerful = draft.user(&format!("{}-pam", draft.id), &["simulated:powerful"]);
    for _ in 0..5 {
        let attributes = attributes(draft);
        let spec = |more: Value| {
            let mut spec = attributes.clone();
            json_patch::merge(&mut spec, &more);
            spec
        };
        let whom = draft.random.pick(&["ben", "nobody"]);
        let whom = format!("{}-{whom}", draft.id);
        let groups = draft.random.pick(&["simulated:readers", "simulated:powerful", "none"]);
        let call = match draft.random.below(7) {
            0 | 1 => review("SelfSubjectAccessReview", spec(json!({}))).by(&user),
            2 => review("SelfSubjectAccessReview", spec(json!({}))),
            3 => review("SelfSubjectAccessReview", spec(json!({}))).by(&powerful),
            4 => review("SubjectAccessReview", spec(json!({"user": whom, "groups": [groups]}))),
            5 => review("SubjectAccessReview", spec(json!({"user": whom, "groups": [groups]}))).by(&user),
            _ => local(draft, spec(json!({"user": whom, "groups": [groups]}))),
        };
        draft.call(call);
    }
    let nobody = User::Named(person);
    draft.call(
        Call::post(
            "/apis/authentication.k8s.io/v1/selfsubjectreviews",
            json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}),
        )
        .by(&nobody),
    );
}

fn review(kind: &str, spec: Value) -> Call {
    let path = format!("/apis/authorization.k8s.io/v1/{}s", kind.to_lowercase());
    let mut review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": kind});
    review["spec"] = spec;
    Call::post(path, review)
}

fn local(draft: &Draft, spec: Value) -> Call {
    let path = format!(
        "/apis/authorization.k8s.io/v1/namespaces/{}/localsubjectaccessreviews",
        draft.namespace
    );
    let mut review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "LocalSubjectAccessReview",
        "metadata": {"namespace": draft.namespace},
    });
    review["spec"] = spec;
    Call::post(path, review)
}

fn attributes(draft: &mut Draft) -> Value {
    let verb = draft.random.pick(&["get", "list", "create", "delete", "bind", "*"]);
    let (group, resource) = draft.random.pick(&[
        ("", "configmaps"),
        ("", "secrets"),
        ("wildwest.dev", "cowboys"),
        ("rbac.authorization.k8s.io", "clusterroles"),
        ("none.test", "things"),
        ("*", "*"),
    ]);
    match draft.random.below(6) {
        0 => json!({"nonResourceAttributes": {"path": "/openapi/v2", "verb": "get"}}),
        1 => json!({"nonResourceAttributes": {"path": "/metrics", "verb": "get"}}),
        2 => json!({}),
        3 => json!({"resourceAttributes": {"verb": verb, "group": group, "resource": resource}}),
        4 => json!({"resourceAttributes": {
            "namespace": draft.namespace, "verb": verb, "group": group, "resource": resource, "name": "alpha",
            "subresource": "status",
        }}),
        _ => json!({"resourceAttributes": {
            "namespace": draft.namespace, "verb": verb, "group": group, "resource": resource,
        }}),
    }
}
