use base64::{Engine as _, engine::general_purpose::STANDARD};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// A self-signed certificate; only its form matters here.
const PEM: &str = "-----BEGIN CERTIFICATE-----\nMIIBAQ==\n-----END CERTIFICATE-----\n";

fn good() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "default",
        "contexts": [{"name": "default", "context": {"cluster": "default", "user": "default", "namespace": "kube-bind-x"}}],
        "clusters": [{"name": "default", "cluster": {
            "server": "https://api.example.com:6443",
            "certificate-authority-data": STANDARD.encode(PEM),
            "tls-server-name": "kubernetes",
        }}],
        "users": [{"name": "default", "user": {"token": "head.e30.sign"}}],
    })
}

fn with(pointer: &str, value: Value) -> Value {
    let mut document = good();
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    match document.pointer_mut(parent).unwrap() {
        Value::Object(map) if value.is_null() => {
            map.remove(key);
        }
        parent => parent[key] = value,
    }
    document
}

fn parse(document: &Value) -> Result<ProviderAccess, Refusal> {
    ProviderAccess::parse(document.to_string().as_bytes())
}

#[test]
fn a_whole_one_is_taken_apart() {
    let backend = Backend {
        address: "https://bind.example.com".to_owned(),
        ca_data: None,
        token: "renew.e30.sign".to_owned(),
    };
    let extension = backend.to_extension();
    let extensions = json!([{"name": extension.name, "extension": extension.extension}]);
    let access = parse(&with("/clusters/0/cluster/extensions", extensions)).unwrap();
    assert_eq!(&*access.namespace, "kube-bind-x");
    assert_eq!(access.config.default_namespace, "kube-bind-x");
    assert_eq!(access.server(), "https://api.example.com:6443");
    assert_eq!(access.config.tls_server_name.as_deref(), Some("kubernetes"));
    assert_eq!(access.config.root_cert.as_ref().map(Vec::len), Some(1));
    assert_eq!(access.backend, Some(backend));
    assert!(
        access.config.auth_info.token.is_none(),
        "the token is given to requests one by one"
    );
    let shown = format!("{access:?}");
    assert!(!shown.contains("e30"), "{shown}");
}

#[test]
fn a_client_certificate_is_a_credential_without_a_token() {
    let user = json!({
        "client-certificate-data": STANDARD.encode(PEM),
        "client-key-data": STANDARD.encode("a key"),
    });
    let access = parse(&with("/users/0/user", user.clone())).unwrap();
    assert!(access.token.is_none());
    let login = serde_json::to_value(&access.config.auth_info).unwrap();
    assert_eq!(login, user);
}

#[test]
fn only_another_connection_is_another_endpoint() {
    let first = parse(&good()).unwrap();
    let renewed = parse(&with("/users/0/user/token", json!("head.e30.other"))).unwrap();
    assert_eq!(first.endpoint, renewed.endpoint);
    assert_ne!(first.fingerprint, renewed.fingerprint);
    let moved = parse(&with("/clusters/0/cluster/server", json!("https://other.example.com"))).unwrap();
    assert_ne!(first.endpoint, moved.endpoint);
}

#[test]
fn another_credential_leads_to_the_same_location() {
    let first = parse(&good()).unwrap();
    let certificate = |key: &str| {
        json!({
            "client-certificate-data": STANDARD.encode(PEM),
            "client-key-data": STANDARD.encode(key),
        })
    };
    for key in ["a key", "a renewed key"] {
        let other = parse(&with("/users/0/user", certificate(key))).unwrap();
        assert_ne!(first.endpoint, other.endpoint, "{key}");
        assert_eq!(first.location, other.location, "{key}");
    }
    for (field, value) in [
        ("/clusters/0/cluster/server", "https://other.example.com"),
        ("/contexts/0/context/namespace", "kube-bind-y"),
    ] {
        let moved = parse(&with(field, json!(value))).unwrap();
        assert_ne!(first.location, moved.location, "{field}");
    }
}

#[test]
fn entries_that_no_context_uses_are_judged_as_well() {
    let mut document = good();
    let sleeper = json!({"name": "sleeper", "user": {"exec": {"command": "x"}}});
    document["users"].as_array_mut().unwrap().push(sleeper);
    assert!(matches!(
        parse(&document),
        Err(Refusal::Dangerous { field: "exec", .. })
    ));
}

#[track_caller]
fn check(pointer: &str, value: Value, reason: &str, says: &str) {
    let document = with(pointer, value);
    let refusal = parse(&document).expect_err("a kubeconfig that must be refused");
    let message = refusal.to_string();
    assert_eq!(refusal.reason(), reason, "{message}");
    assert!(message.contains(says), "{message}");
    assert!(!message.contains("hunter2"), "{message}");
}

#[test]
fn what_would_act_for_the_provider_is_refused() {
    let exec =
        json!({"apiVersion": "client.authentication.k8s.io/v1", "command": "hunter2", "interactiveMode": "Never"});
    check("/users/0/user/exec", exec, "Dangerous", "exec");
    check(
        "/users/0/user/auth-provider",
        json!({"name": "hunter2"}),
        "Dangerous",
        "auth-provider",
    );
    check("/users/0/user/tokenFile", json!("/hunter2"), "Dangerous", "tokenFile");
    check(
        "/users/0/user/client-certificate",
        json!("/hunter2"),
        "Dangerous",
        "client-certificate",
    );
    check("/users/0/user/client-key", json!("/hunter2"), "Dangerous", "client-key");
    check("/users/0/user/username", json!("hunter2"), "Dangerous", "username");
    check("/users/0/user/password", json!("hunter2"), "Dangerous", "password");
    check("/users/0/user/as", json!("hunter2"), "Dangerous", "impersonation");
    check(
        "/clusters/0/cluster/insecure-skip-tls-verify",
        json!(true),
        "Dangerous",
        "insecure-skip-tls-verify",
    );
    check(
        "/clusters/0/cluster/certificate-authority",
        json!("/hunter2"),
        "Dangerous",
        "certificate-authority",
    );
    check(
        "/clusters/0/cluster/proxy-url",
        json!("http://hunter2"),
        "Dangerous",
        "proxy-url",
    );
    check(
        "/clusters/0/cluster/server",
        json!("http://hunter2"),
        "Dangerous",
        "plain http",
    );
}

#[test]
fn what_is_missing_or_broken_is_named() {
    check("/current-context", Value::Null, "Incomplete", "current-context");
    check("/current-context", json!("other"), "Incomplete", "current-context");
    check(
        "/contexts/0/context/cluster",
        json!("other"),
        "Incomplete",
        "cluster of the name",
    );
    check(
        "/contexts/0/context/user",
        json!("other"),
        "Incomplete",
        "user of the name",
    );
    check("/contexts/0/context/namespace", Value::Null, "NoNamespace", "namespace");
    check("/contexts/0/context/namespace", json!(""), "NoNamespace", "namespace");
    check(
        "/contexts/0/context/namespace",
        json!("../hunter2"),
        "InvalidNamespace",
        "namespace",
    );
    check("/clusters/0/cluster/server", Value::Null, "Incomplete", "server");
    check(
        "/clusters/0/cluster/server",
        json!("hunter2"),
        "InvalidServer",
        "server",
    );
    check(
        "/clusters/0/cluster/server",
        json!("ftp://hunter2"),
        "InvalidServer",
        "server",
    );
    check(
        "/clusters/0/cluster/server",
        json!("https://hunter2@x"),
        "InvalidServer",
        "server",
    );
    check(
        "/clusters/0/cluster/certificate-authority-data",
        json!("hunter2!"),
        "InvalidPem",
        "certificate-authority-data",
    );
    check(
        "/clusters/0/cluster/certificate-authority-data",
        json!(STANDARD.encode("hunter2")),
        "InvalidPem",
        "certificate-authority-data",
    );
    check(
        "/users/0/user/client-certificate-data",
        json!(STANDARD.encode(PEM)),
        "Incomplete",
        "client-key-data",
    );
    check("/users/0/user/token", Value::Null, "NoCredential", "token");
    check("/users/0/user/token", json!(""), "NoCredential", "token");
    check("/users/0/user/token", json!("hunter2\n"), "InvalidToken", "line breaks");
    let extensions = json!([{"name": "kube-bind.io/backend", "extension": {"token": "hunter2"}}]);
    check(
        "/clusters/0/cluster/extensions",
        extensions,
        "InvalidBackend",
        "kube-bind.io/backend",
    );
}

#[test]
fn what_is_no_kubeconfig_is_refused_without_repeating_it() {
    for document in [
        "hunter2",
        "- hunter2",
        "a: [hunter2",
        "{\"clusters\": 5, \"a\": \"hunter2\"}",
        "",
    ] {
        let refusal = ProviderAccess::parse(document.as_bytes()).expect_err("a refusal");
        assert!(
            matches!(refusal, Refusal::Unparsable { .. } | Refusal::Incomplete { .. }),
            "{document:?}: {refusal}"
        );
        assert!(!refusal.to_string().contains("hunter2"), "{refusal}");
    }
    let long = vec![b' '; DOCUMENT_LENGTH_MAX + 1];
    assert_eq!(ProviderAccess::parse(&long).expect_err("a refusal").reason(), "TooLong");
}

/// Checks that any bytes are either refused in words that repeat none of them, or safe to connect to.
fn check_any(bytes: &[u8]) -> Result<(), TestCaseError> {
    match ProviderAccess::parse(bytes) {
        Ok(access) => {
            prop_assert_eq!(access.config.cluster_url.scheme_str(), Some("https"));
            prop_assert!(access.config.proxy_url.is_none() && !access.config.accept_invalid_certs);
            prop_assert!(access.config.auth_info.exec.is_none() && access.config.auth_info.token_file.is_none());
            let has_certificate = access.config.auth_info.client_certificate_data.is_some();
            prop_assert!(access.token.is_some() || has_certificate, "no credential");
            let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
            prop_assert!(!access.namespace.is_empty() && access.namespace.bytes().all(is_inner));
        }
        Err(refusal) => {
            let message = refusal.to_string();
            prop_assert!(
                !message.contains("e30") && !message.contains("api.example"),
                "{}",
                message
            );
            prop_assert!(!refusal.reason().is_empty());
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn any_bytes_are_refused_or_safe(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        check_any(&bytes)?;
    }

    #[test]
    fn a_damaged_kubeconfig_is_refused_or_safe(at in 0_usize..600, byte: u8, cut: bool) {
        let mut bytes = good().to_string().into_bytes();
        let at = at % bytes.len();
        if cut { bytes.truncate(at) } else { bytes[at] = byte }
        check_any(&bytes)?;
    }
}
