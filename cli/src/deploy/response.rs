//! What a provider answered to a request, as it lies in a file or in a Secret: a response, or its kubeconfig alone.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bindery_api::{
    names::BINDING_RESPONSE_KEY,
    names::KUBECONFIG_KEY,
    v1alpha2::{API_VERSION, APIServiceExportRequestSpec},
};
use k8s_openapi::api::core::v1::Secret;
use serde::Deserialize;
use serde_json::Value;

use crate::{
    kubeconfig::{Credential, KubeconfigError},
    offer::{self, Offer},
};

/// Longest file that is read; that of a Secret is at most a MiB.
const LENGTH_MAX: usize = 4 << 20;
/// The kinds of a response: in a file, and as kube-bind's backend sends it.
const KINDS: [&str; 2] = ["BindingResourceResponse", "BindingResponse"];

/// What a provider gave.
#[derive(Debug)]
pub(crate) enum Answer {
    /// Everything for a binding.
    Response(Response),
    /// A kubeconfig, which is enough for a bundle.
    Kubeconfig(Vec<u8>),
}

/// Everything for a binding, judged.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) kubeconfig: Vec<u8>,
    pub(crate) requests: Vec<Request>,
}

/// One export, and the binding to it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Request {
    pub(crate) name: String,
    pub(crate) offer: Offer,
}

/// Why an answer is not taken. No variant holds what stands in it but names.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unreadable {
    /// It is longer than any response.
    #[error("it has {length} bytes, more than the {LENGTH_MAX} that are read")]
    TooLong { length: usize },
    /// It is neither JSON nor YAML, or not of the shape of its kind.
    #[error("it cannot be parsed as {what}{}", place(*.line))]
    Unparsable { what: &'static str, line: Option<u64> },
    /// It is something else.
    #[error(
        "it is a {kind}; what does is a BindingResourceResponse of {API_VERSION}, a Secret that holds one, or, with --bundle, \
         a kubeconfig"
    )]
    Kind { kind: String },
    /// It is of another version.
    #[error("its apiVersion is {version:?}, and this command knows {API_VERSION}")]
    Version { version: String },
    /// The Secret does not have it.
    #[error("the Secret has no key {key:?}, but {}; name one with --secret-key", keys(.has))]
    NoKey { key: String, has: Vec<String> },
    /// The kubeconfig cannot be read.
    #[error("its kubeconfig is not base64")]
    NotBase64,
    /// Nobody could bind it under this name.
    #[error("its request is named {name:?}, which cannot be the name of a binding")]
    Name { name: String },
    /// The kubeconfig is dangerous, or none.
    #[error("its kubeconfig is refused: {0}")]
    Credential(#[from] KubeconfigError),
    /// It wants more than a provider may have.
    #[error("refused what it wants installed: {0}")]
    Offer(#[from] offer::Refusal),
    /// A kubeconfig tells of no export.
    #[error("it is a kubeconfig, which names no export to bind; add --bundle NAME to bind all that it reaches")]
    NoRequests,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire {
    #[serde(default)]
    kubeconfig: String,
    #[serde(default)]
    provider_namespace: String,
    #[serde(default)]
    binding_name: String,
    /// kube-bind's backend writes null.
    #[serde(default)]
    requests: Option<Vec<WireRequest>>,
}

#[derive(Deserialize)]
struct WireRequest {
    metadata: WireName,
    spec: APIServiceExportRequestSpec,
}

#[derive(Deserialize)]
struct WireName {
    name: String,
}

/// Reads an answer. Of a Secret, that under the key; if none is given, the response, or the kubeconfig where there is no
/// response.
pub(crate) fn read(document: &[u8], key: Option<&str>) -> Result<Answer, Unreadable> {
    let value = parse(document)?;
    let kind = value["kind"].as_str().unwrap_or_default();
    match (kind, value["apiVersion"].as_str().unwrap_or_default()) {
        ("Secret", "v1") => of_secret(value, key),
        _ => of_document(&value, document),
    }
}

fn parse(document: &[u8]) -> Result<Value, Unreadable> {
    if document.len() > LENGTH_MAX {
        return Err(Unreadable::TooLong { length: document.len() });
    }
    serde_saphyr::from_slice(document).map_err(|error| Unreadable::Unparsable {
        what: "JSON or YAML",
        line: error.location().map(|at| at.line()),
    })
}

fn of_secret(value: Value, key: Option<&str>) -> Result<Answer, Unreadable> {
    let secret: Secret = shaped(value, "a Secret")?;
    // As it is read from a cluster, or as it is written by hand.
    let plain = secret.string_data.into_iter().flatten();
    let plain = plain.map(|(key, text)| (key, text.into_bytes()));
    let data = secret.data.into_iter().flatten().map(|(key, bytes)| (key, bytes.0));
    let entries: Vec<_> = data.chain(plain).collect();
    let find = |wanted: &str| entries.iter().rev().find(|(key, _)| key == wanted);
    let found = match key {
        Some(key) => find(key),
        None => find(BINDING_RESPONSE_KEY).or_else(|| find(KUBECONFIG_KEY)),
    };
    let Some((_, document)) = found else {
        return Err(Unreadable::NoKey {
            key: key.unwrap_or(BINDING_RESPONSE_KEY).to_owned(),
            has: entries.into_iter().map(|(key, _)| key).collect(),
        });
    };
    of_document(&parse(document)?, document)
}

fn of_document(value: &Value, document: &[u8]) -> Result<Answer, Unreadable> {
    let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let (kind, version) = (text("kind"), text("apiVersion"));
    if kind == "Config" {
        Credential::parse(document)?;
        return Ok(Answer::Kubeconfig(document.to_vec()));
    }
    if !KINDS.contains(&kind.as_str()) {
        return Err(Unreadable::Kind {
            kind: if kind.is_empty() {
                "document without a kind".to_owned()
            } else {
                kind
            },
        });
    }
    if version != API_VERSION {
        return Err(Unreadable::Version { version });
    }
    response(shaped(value.clone(), "a BindingResourceResponse")?).map(Answer::Response)
}

fn shaped<T: serde::de::DeserializeOwned>(value: Value, what: &'static str) -> Result<T, Unreadable> {
    serde_json::from_value(value).map_err(|_| Unreadable::Unparsable { what, line: None })
}

fn response(wire: Wire) -> Result<Response, Unreadable> {
    if wire.kubeconfig.is_empty() {
        return Err(KubeconfigError::Missing.into());
    }
    let kubeconfig = STANDARD
        .decode(wire.kubeconfig.trim())
        .map_err(|_| Unreadable::NotBase64)?;
    let mut credential = Credential::parse(&kubeconfig)?;
    if !wire.provider_namespace.is_empty() {
        credential = credential.for_contract(&wire.provider_namespace)?;
    }
    let requests = wire.requests.unwrap_or_default();
    if let ([request], false) = (requests.as_slice(), wire.binding_name.is_empty())
        && request.metadata.name != wire.binding_name
    {
        return Err(Unreadable::Offer(offer::Refusal::OtherBinding {
            got: request.metadata.name.clone(),
            want: wire.binding_name,
        }));
    }
    let requests = requests.into_iter().map(|wire| request(wire, &credential.namespace));
    Ok(Response {
        requests: requests.collect::<Result<_, _>>()?,
        kubeconfig,
    })
}

fn request(wire: WireRequest, contract: &str) -> Result<Request, Unreadable> {
    let name = wire.metadata.name;
    if !offer::is_binding_name(&name) {
        return Err(Unreadable::Name { name });
    }
    let resources = wire.spec.resources.into_iter().map(|resource| resource.group_resource);
    let offer = offer::judge_export(contract, resources.collect(), wire.spec.permission_claims)?;
    Ok(Request { name, offer })
}

fn keys(has: &[String]) -> String {
    match has {
        [] => "none at all".to_owned(),
        has => has.join(", "),
    }
}

fn place(line: Option<u64>) -> String {
    line.map_or_else(String::new, |line| format!(" (line {line})"))
}

#[cfg(test)]
pub(crate) mod tests {
    use bindery_api::v1alpha2::GroupResource;
    use serde_json::json;

    use super::*;
    use crate::kubeconfig::tests::kubeconfig;

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

    fn read_value(value: &Value, key: Option<&str>) -> Result<Answer, Unreadable> {
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

    #[track_caller]
    fn is_response(answer: Result<Answer, Unreadable>) -> Response {
        match answer.unwrap() {
            Answer::Response(response) => response,
            Answer::Kubeconfig(_) => panic!("a kubeconfig alone"),
        }
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
            let response = is_response(answer);
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
        let none = is_response(read_value(&with("/requests", Value::Null), None));
        assert_eq!(none.requests, []);
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
            assert!(matches!(answer, Ok(Answer::Kubeconfig(document)) if document == text.as_bytes()));
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
}
