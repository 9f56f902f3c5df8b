//! What a request answers with: the Secret, whole.

use anyhow::{Context as _, Result, ensure};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bindery_api::{annotations, v1alpha2::APIServiceExportRequestSpec};
use bindery_e2e::{NAMESPACE, eventually_ok, wildwest::SOON};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client, Config, ResourceExt as _,
    api::ListParams,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};

use crate::case::{Case, case, default_secret};

const REQUEST_UID: &str = "kube-bind.io/request-uid";
const REQUEST: &str = "kube-bind.io/request";
pub(crate) const RESPONSE_KEY: &str = "binding-response";

/// Text under a key of a Secret.
pub(crate) fn text(secret: &Secret, key: &str) -> Result<String> {
    let value = secret.data.as_ref().and_then(|data| data.get(key));
    Ok(String::from_utf8(
        value.with_context(|| format!("no key {key}"))?.0.clone(),
    )?)
}

/// A client that uses a kubeconfig.
pub(crate) async fn client_of(kubeconfig: &str) -> Result<Client> {
    let kubeconfig: Kubeconfig = serde_saphyr::from_str(kubeconfig)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

/// The kubeconfig opens the contract of the case, and nothing else.
pub(crate) async fn opens_the_contract(case: &Case<'_>, kubeconfig: &str, export: &str) -> Result<()> {
    let client = client_of(kubeconfig).await?;
    ensure!(
        client.default_namespace() == case.contract(),
        "{}",
        client.default_namespace()
    );
    let exports: Api<bindery_api::v1alpha2::APIServiceExport> = Api::default_namespaced(client.clone());
    eventually_ok("the kubeconfig to show the export", SOON, async || {
        Ok(exports.get(export).await?)
    })
    .await?;
    for namespace in [NAMESPACE, case.name] {
        let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
        let listed = secrets.list(&ListParams::default()).await;
        ensure!(
            matches!(&listed, Err(kube::Error::Api(status)) if status.code == 403),
            "Secrets of {namespace}: {listed:?}"
        );
    }
    Ok(())
}

#[test]
fn a_response_holds_all_that_a_consumer_needs() -> Result<()> {
    case("response", async |_, case| {
        case.apply(&case.request("cowboys")).await?;
        let request = case.succeeds("cowboys").await?;
        let status = request.status.clone().context("a status")?;
        ensure!(status.namespace == Some(case.contract()), "{status:?}");
        let named = status.kubeconfig_secret_ref.context("a Secret")?;
        ensure!(
            (named.name.as_str(), named.key.as_str()) == (&default_secret("cowboys"), "kubeconfig"),
            "{named:?}"
        );
        // What its own namespace lets the team read.
        let shown = case
            .kubectl(&["get", "secret", &named.name, "--output=json"], "")
            .await?;
        let secret: Secret = serde_json::from_str(&shown)?;
        ensure!(secret.type_.as_deref() == Some("Opaque"), "{:?}", secret.type_);
        ensure!(
            secret.labels().get(REQUEST_UID) == request.uid().as_ref(),
            "{:?}",
            secret.labels()
        );
        for (key, value) in [
            (REQUEST, format!("{}/cowboys", case.name)),
            (annotations::AUTHOR, case.author()),
        ] {
            ensure!(
                secret.annotations().get(key) == Some(&value),
                "{:?}",
                secret.annotations()
            );
        }
        ensure!(secret.owner_references().is_empty(), "it would go with the request");
        let keys: Vec<_> = secret.data.iter().flatten().map(|(key, _)| key.as_str()).collect();
        ensure!(keys == [RESPONSE_KEY, "kubeconfig"], "{keys:?}");

        let kubeconfig = text(&secret, "kubeconfig")?;
        opens_the_contract(case, &kubeconfig, "cowboys").await?;
        let response: Value = serde_json::from_str(&text(&secret, RESPONSE_KEY)?)?;
        is_the_response(case, &response, &kubeconfig)
    })
}

fn is_the_response(case: &Case<'_>, response: &Value, kubeconfig: &str) -> Result<()> {
    // Without its content, which is a secret.
    let told = || {
        let mut told = response.clone();
        told["kubeconfig"] = json!("…");
        told.to_string()
    };
    for (field, expect) in [
        ("apiVersion", "kube-bind.io/v1alpha2"),
        ("kind", "BindingResourceResponse"),
        ("kubeconfig", &STANDARD.encode(kubeconfig)),
        ("providerNamespace", &case.contract()),
        ("bindingName", "cowboys"),
    ] {
        ensure!(response[field] == *expect, "{field}: {}", told());
    }
    let requests = response["requests"].as_array().context("requests")?;
    ensure!(requests.len() == 1, "{}", told());
    let request = &requests[0];
    ensure!(request["kind"] == "APIServiceExportRequest", "{}", told());
    ensure!(request["apiVersion"] == "kube-bind.io/v1alpha2", "{}", told());
    ensure!(request["metadata"]["name"] == "cowboys", "{}", told());
    let spec: APIServiceExportRequestSpec = serde_json::from_value(request["spec"].clone())?;
    let resources: Vec<_> = spec.resources.iter().map(|it| &it.group_resource).collect();
    ensure!(
        resources.len() == 1 && resources[0].to_string() == "cowboys.wildwest.dev",
        "{}",
        told()
    );
    Ok(())
}

#[test]
fn a_response_is_written_where_the_request_says() -> Result<()> {
    case("named", async |_, case| {
        for (name, key, under) in [
            ("by-name", "provider.yaml", "provider.yaml"),
            // That is the key of the response itself.
            ("by-response-key", RESPONSE_KEY, "kubeconfig"),
        ] {
            let mut request = case.request("cowboys");
            request["metadata"]["name"] = json!(name);
            request["spec"]["kubeconfigSecretRef"] = json!({"name": format!("for-{name}"), "key": key});
            case.apply(&request).await?;
            let status = case.succeeds(name).await?.status.context("a status")?;
            let named = status.kubeconfig_secret_ref.context("a Secret")?;
            ensure!(named.name == format!("for-{name}") && named.key == under, "{named:?}");
            let secret = case.secrets().get(&named.name).await?;
            opens_the_contract(case, &text(&secret, under)?, name).await?;
            let response: Value = serde_json::from_str(&text(&secret, RESPONSE_KEY)?)?;
            ensure!(response["bindingName"] == name, "{}", response["bindingName"]);
        }
        Ok(())
    })
}
