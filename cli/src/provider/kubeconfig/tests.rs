use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use super::*;

/// A kubeconfig as a provider makes it, whose tokens expire at these seconds.
pub(crate) fn kubeconfig(expires: i64, renewable_until: i64) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "default",
        "contexts": [{ "name": "default", "context": { "cluster": "default", "user": "default", "namespace": "kube-bind-x" } }],
        "clusters": [{ "name": "default", "cluster": {
            "server": "https://api.example.com:6443",
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

#[test]
fn what_would_act_for_the_provider_is_refused() {
    let mut document = kubeconfig(100, 200);
    document["users"][0]["user"]["exec"] = json!({ "command": "hunter2" });
    let error = parse(&document).expect_err("a refusal");
    assert!(matches!(
        error,
        KubeconfigError::Refused(Refusal::Dangerous { field: "exec", .. })
    ));
    assert!(!error.to_string().contains("hunter2"), "{error}");
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
