use bindery_api::v1alpha2::GroupResource;
use serde_json::json;

use super::*;
use crate::provider::kubeconfig::tests::kubeconfig;

/// A response for the binding `west` to cowboys, which claims `secrets` by label.
pub(crate) fn response() -> Value {
    json!({
        "apiVersion": "kube-bind.io/v1alpha2", "kind": "BindingResourceResponse", "authentication": {},
        "kubeconfig": STANDARD.encode(kubeconfig(100, 100).to_string()),
        "providerNamespace": "kube-bind-x", "bindingName": "west",
        "requests": [{
            "apiVersion": "kube-bind.io/v1alpha2", "kind": "APIServiceExportRequest", "metadata": { "name": "west" },
            "spec": {
                "resources": [{ "group": "wildwest.dev", "resource": "cowboys", "versions": ["v1alpha1"] }],
                "permissionClaims": [{ "resource": "secrets",
                    "selector": { "labelSelector": { "matchLabels": { "app": "cowboy" } } } }],
                "schemaUpdatePolicy": "Never",
            }, "status": {},
        }],
    })
}

fn secret(entries: &[(&str, &[u8])]) -> Value {
    let data: serde_json::Map<_, _> = entries
        .iter()
        .map(|(key, value)| ((*key).to_owned(), json!(STANDARD.encode(value))))
        .collect();
    json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s" }, "type": "Opaque", "data": data })
}

fn read_value(value: &Value, key: Option<&str>) -> Result<Response, Unreadable> {
    read(value.to_string().as_bytes(), key)
}

#[track_caller]
fn check_refused(value: &Value, key: Option<&str>, says: &str) {
    let error = read_value(value, key).expect_err(says).to_string();
    assert!(error.contains(says), "{error}");
    assert!(!error.contains("hunter2"), "{error}");
}

fn with(path: &str, value: Value) -> Value {
    let mut changed = response();
    *changed.pointer_mut(path).unwrap() = value;
    changed
}

#[test]
fn a_response_tells_what_to_bind_wherever_it_lies() {
    let whole = response().to_string();
    let config = kubeconfig(100, 100).to_string();
    let both: &[(&str, &[u8])] = &[
        ("binding-response", whole.as_bytes()),
        ("kubeconfig", config.as_bytes()),
    ];
    let yaml = serde_saphyr::to_string(&secret(both)).unwrap();
    let by_hand = json!({ "apiVersion": "v1", "kind": "Secret", "stringData": { "binding-response": whole } });
    for answer in [
        read_value(&response(), None),
        read_value(&with("/kind", json!("BindingResponse")), None),
        read_value(&secret(both), None),
        read(yaml.as_bytes(), None),
        read_value(&by_hand, None),
        read_value(&secret(&[("mine", whole.as_bytes())]), Some("mine")),
    ] {
        let response = answer.unwrap();
        assert_eq!(response.kubeconfig, config.as_bytes());
        let [request] = response.requests.as_slice() else {
            panic!("{:?}", response.requests);
        };
        assert_eq!(
            (request.name.as_str(), request.offer.contract.as_str()),
            ("west", "kube-bind-x")
        );
        assert!(
            request
                .offer
                .resources
                .contains(&GroupResource::new("wildwest.dev", "cowboys"))
        );
        assert_eq!(
            request.offer.claims[0].group_resource,
            GroupResource::new("", "secrets")
        );
    }
    let none = read_value(&with("/requests", Value::Null), None).unwrap();
    assert_eq!(none.requests, []);
}

#[test]
fn rules_beyond_export_and_claims_are_refused() {
    let with_rule = |rule: Value| {
        let mut changed = response();
        changed["consumerRules"] = json!([rule]);
        changed
    };
    let rule = |resource: &str| json!({ "apiGroups": [""], "resources": [resource], "verbs": ["get", "create"] });
    assert!(read_value(&with_rule(rule("secrets")), None).is_ok());
    check_refused(&with_rule(rule("configmaps")), None, "neither exported nor claimed");
    let urls = json!({ "apiGroups": [], "resources": [], "nonResourceURLs": ["/metrics"], "verbs": ["get"] });
    check_refused(&with_rule(urls), None, "BindingResourceResponse");
}

#[test]
fn a_kubeconfig_is_taken_for_what_it_is() {
    let config = kubeconfig(100, 100);
    let text = config.to_string();
    let both: &[(&str, &[u8])] = &[("binding-response", b"{}"), ("kubeconfig", text.as_bytes())];
    for answer in [
        read_value(&config, None),
        read_value(&secret(&[("kubeconfig", text.as_bytes())]), None),
        read_value(&secret(both), Some("kubeconfig")),
    ] {
        let response = answer.unwrap();
        assert_eq!(
            (response.kubeconfig, response.requests.len()),
            (text.clone().into_bytes(), 0)
        );
    }
    let mut dangerous = config;
    dangerous["users"][0]["user"]["exec"] = json!({ "command": "hunter2" });
    check_refused(&dangerous, None, "exec");
}

#[test]
fn what_is_wrong_is_named() {
    check_refused(
        &json!({ "kind": "ConfigMap", "apiVersion": "v1" }),
        None,
        "it is a ConfigMap",
    );
    check_refused(&json!([1]), None, "without a kind");
    check_refused(&with("/apiVersion", json!("kube-bind.io/v1alpha1")), None, "v1alpha1");
    check_refused(&with("/kubeconfig", json!("")), None, "sent none");
    check_refused(&with("/kubeconfig", json!("?hunter2")), None, "not base64");
    check_refused(&with("/providerNamespace", json!("other")), None, "\"other\"");
    check_refused(&with("/bindingName", json!("east")), None, "\"east\"");
    check_refused(&with("/requests/0/metadata/name", json!("A")), None, "west");
    check_refused(&with("/requests/0/spec/resources", json!([])), None, "exports no API");
    check_refused(
        &with("/requests/0/spec/resources/0/group", json!("apps")),
        None,
        "Kubernetes itself",
    );
    check_refused(&with("/requests", json!("x")), None, "BindingResourceResponse");
    check_refused(
        &secret(&[("token", b"hunter2")]),
        None,
        "but token; name one with --secret-key",
    );
    check_refused(&secret(&[]), Some("x"), "none at all");
    let error = read(b"a: [", None).expect_err("no YAML").to_string();
    assert!(error.contains("JSON or YAML"), "{error}");
}
