//! Reads a provider's answer to a BindableResourcesRequest from a file or a Secret: a response, or a kubeconfig alone.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bindery_api::{
    names::BINDING_RESPONSE_KEY,
    names::KUBECONFIG_KEY,
    v1alpha2::{API_VERSION, APIServiceExportRequestSpec},
};
use bindery_proto::v1alpha2::ConsumerRule;
use k8s_openapi::api::core::v1::Secret;
use serde::Deserialize;
use serde_json::Value;

use crate::provider::{
    kubeconfig::{Credential, KubeconfigError},
    offer::{self, Offer},
};

/// The longest answer that is read, in bytes. A Secret holds at most 1 MiB.
const LENGTH_MAX: usize = 4 << 20;
/// The kinds of a response: in a file, and as kube-bind's backend sends it.
const KINDS: [&str; 2] = ["BindingResourceResponse", "BindingResponse"];

/// What a provider answered, after it was judged.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) kubeconfig: Vec<u8>,
    /// The exports to bind; none where the answer is a kubeconfig alone, which is enough for a bundle.
    pub(crate) requests: Vec<Request>,
}

/// An export, and the name of the binding to it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Request {
    pub(crate) name: String,
    pub(crate) offer: Offer,
}

/// Why an answer is refused. The variants hold names from the answer, but none of its secrets.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unreadable {
    /// The answer is longer than any response.
    #[error("it has {length} bytes, more than the {LENGTH_MAX} that are read")]
    TooLong { length: usize },
    /// The answer is neither JSON nor YAML, or does not have the fields of its kind.
    #[error("it cannot be parsed as {what}{}", place(*.line))]
    Unparsable { what: &'static str, line: Option<u64> },
    /// The answer is of an unknown kind.
    #[error(
        "it is a {kind}; give a BindingResourceResponse of {API_VERSION}, a Secret that holds one, or, with --bundle, a \
         kubeconfig"
    )]
    Kind { kind: String },
    /// The answer is of an unknown apiVersion.
    #[error("its apiVersion is {version:?}, and this command knows {API_VERSION}")]
    Version { version: String },
    /// The Secret does not have the key.
    #[error("the Secret has no key {key:?}, but {}; name one with --secret-key", keys(.has))]
    NoKey { key: String, has: Vec<String> },
    /// The kubeconfig in the answer cannot be decoded.
    #[error("its kubeconfig is not base64")]
    NotBase64,
    /// A request has a name that no binding can have.
    #[error("its request is named {name:?}, which cannot be the name of a binding")]
    Name { name: String },
    /// The kubeconfig is not safe to install, or is missing.
    #[error("its kubeconfig is refused: {0}")]
    Credential(#[from] KubeconfigError),
    /// The answer asks for more than a provider may have.
    #[error("refused what it wants installed: {0}")]
    Offer(#[from] offer::Refusal),
    /// The answer names no export, and no bundle is asked for.
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
    /// Null in the answers of kube-bind's backend.
    #[serde(default)]
    requests: Option<Vec<WireRequest>>,
    /// Absent in the answers of kube-bind's backend.
    #[serde(default)]
    consumer_rules: Vec<WireRule>,
}

/// A rule of a role, without the parts that no konnector needs.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WireRule {
    api_groups: Vec<String>,
    resources: Vec<String>,
    verbs: Vec<String>,
    #[serde(default)]
    resource_names: Vec<String>,
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

/// Reads and judges an answer. In a Secret, the answer is under `key`; without `key`, it is the response, or else the
/// kubeconfig.
pub(crate) fn read(document: &[u8], key: Option<&str>) -> Result<Response, Unreadable> {
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

fn of_secret(value: Value, key: Option<&str>) -> Result<Response, Unreadable> {
    let secret: Secret = shaped(value, "a Secret")?;
    // `data` comes from a cluster, `stringData` from a Secret written by hand.
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

fn of_document(value: &Value, document: &[u8]) -> Result<Response, Unreadable> {
    let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let (kind, version) = (text("kind"), text("apiVersion"));
    if kind == "Config" {
        Credential::parse(document)?;
        return Ok(Response {
            kubeconfig: document.to_vec(),
            requests: Vec::new(),
        });
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
    response(shaped(value.clone(), "a BindingResourceResponse")?)
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
    let requests: Vec<_> = requests.collect::<Result<_, _>>()?;
    let offers: Vec<_> = requests.iter().map(|request| request.offer.clone()).collect();
    let rules = wire.consumer_rules.into_iter().map(|rule| ConsumerRule {
        api_groups: rule.api_groups,
        resources: rule.resources,
        verbs: rule.verbs,
        resource_names: rule.resource_names,
    });
    offer::judge_rules(&rules.collect::<Vec<_>>(), &offers)?;
    Ok(Response { kubeconfig, requests })
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
pub(crate) mod tests;
