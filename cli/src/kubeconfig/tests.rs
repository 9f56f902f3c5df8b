use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::json;

use super::*;

/// A kubeconfig as a provider makes it, whose tokens expire at these seconds.
pub(crate) fn kubeconfig(expires: i64, renewable_until: i64) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "default",
        "contexts": [{ "name": "default", "context": { "cluster": "default", "user": "default", "namespace": "kube-bind-x" } }],
        "clusters": [{ "name": "default", "cluster": {
            "server": "https://api.example.com:6443",
            "certificate-authority-data": "Q0E=",
            "extensions": [{ "name": "kube-bind.io/backend", "extension": {
                "address": "https://bind.example.com", "token": token(renewable_until) } }],
        } }],
        "users": [{ "name": "default", "user": { "token": token(expires) } }],
    })
}

fn token(expires: i64) -> String {
    format!(
        "e30.{}.hunter2",
        URL_SAFE_NO_PAD.encode(json!({ "exp": expires }).to_string())
    )
}

pub(crate) fn parse(document: &Value) -> Result<Credential, KubeconfigError> {
    Credential::parse(document.to_string().as_bytes())
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// The good one with one field changed; a null takes it away.
#[track_caller]
fn check(pointer: &str, value: Value, expect: &str) {
    let mut document = kubeconfig(100, 200);
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    let parent = document.pointer_mut(parent).unwrap();
    if value.is_null() {
        parent.as_object_mut().unwrap().remove(key);
    } else {
        parent[key] = value;
    }
    let message = parse(&document).expect_err("a refusal").to_string();
    assert!(message.contains(expect), "{message}");
    assert!(!message.contains("hunter2"), "{message}");
}

#[test]
fn what_would_act_for_the_provider_is_refused() {
    check("/users/0/user/exec", json!({ "command": "hunter2" }), "exec");
    check(
        "/users/0/user/auth-provider",
        json!({ "name": "hunter2" }),
        "auth-provider",
    );
    check("/users/0/user/tokenFile", json!("/hunter2"), "tokenFile");
    check(
        "/users/0/user/client-certificate",
        json!("/hunter2"),
        "client-certificate",
    );
    check("/users/0/user/client-key", json!("/hunter2"), "client-key");
    check("/users/0/user/password", json!("hunter2"), "password");
    check("/users/0/user/as", json!("hunter2"), "impersonation");
    check(
        "/clusters/0/cluster/insecure-skip-tls-verify",
        json!(true),
        "trusts whoever answers",
    );
    check(
        "/clusters/0/cluster/certificate-authority",
        json!("/hunter2"),
        "reads a file",
    );
    check("/clusters/0/cluster/proxy-url", json!("http://hunter2"), "proxy-url");
    check("/clusters/0/cluster/server", json!("http://hunter2"), "no https:// URL");
}

#[test]
fn entries_that_no_context_uses_are_judged_as_well() {
    let mut document = kubeconfig(100, 200);
    let sleeper = json!({ "name": "sleeper", "user": { "exec": { "command": "x" } } });
    document["users"].as_array_mut().unwrap().push(sleeper);
    assert!(matches!(
        parse(&document),
        Err(KubeconfigError::Dangerous { field: "exec", .. })
    ));
}

#[test]
fn what_is_missing_is_named() {
    check("/current-context", Value::Null, "no current-context");
    check("/current-context", json!("other"), "no current context");
    check("/contexts/0/context/namespace", Value::Null, "no namespace");
    check("/contexts/0/context/namespace", json!(""), "no namespace");
    check("/contexts/0/context/user", json!("other"), "no user");
    check("/clusters/0/cluster/server", Value::Null, "no server");
    check("/users/0/user/token", Value::Null, "no token");
    check(
        "/clusters/0/cluster/extensions/0/extension",
        json!({}),
        "kube-bind.io/backend",
    );
    for text in ["", "hunter2", "a: [hunter2", "- hunter2"] {
        let error = Credential::parse(text.as_bytes()).expect_err("a refusal").to_string();
        assert!(!error.contains("hunter2"), "{error}");
    }
}

#[test]
fn a_whole_one_tells_where_it_leads_and_until_when() {
    let credential = parse(&kubeconfig(100, 200))
        .unwrap()
        .for_contract("kube-bind-x")
        .unwrap();
    assert_eq!(credential.server, "https://api.example.com:6443");
    assert_eq!(
        (credential.expires, credential.renewable_until),
        (Some(at(100)), Some(at(200)))
    );
    assert!(!format!("{credential:?}").contains("hunter2"));
    let error = credential.for_contract("kube-bind-y").expect_err("a refusal");
    assert!(matches!(error, KubeconfigError::OtherContract { .. }));
}

#[test]
fn only_tokens_are_no_difference() {
    let first = parse(&kubeconfig(100, 200)).unwrap();
    assert!(first.differs_by_token_alone(&parse(&kubeconfig(300, 400)).unwrap()));
    let mut moved = kubeconfig(100, 200);
    moved["clusters"][0]["cluster"]["server"] = json!("https://other.example.com");
    assert!(!first.differs_by_token_alone(&parse(&moved).unwrap()));
}

#[test]
fn valid_is_what_says_so_in_all_its_tokens() {
    let credential = parse(&kubeconfig(100, 200)).unwrap();
    assert!(credential.is_valid_at(at(99)));
    assert!(!credential.is_valid_at(at(100)));
    assert!(!parse(&kubeconfig(300, 200)).unwrap().is_valid_at(at(250)));
    let mut opaque = kubeconfig(100, 200);
    opaque["users"][0]["user"]["token"] = json!("opaque");
    assert!(!parse(&opaque).unwrap().is_valid_at(at(0)));
}
