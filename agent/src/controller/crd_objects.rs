//! Asks the API server whether a CRD has objects, right before its deletion. Counts come from a watch, which may lag.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client,
    api::ListParams,
    core::{ApiResource, DynamicObject, GroupVersionKind},
};

/// Whether the API server certainly never served a CRD, so that no object of it exists. It never takes back the condition
/// Established. A CRD that is being installed counts as served.
pub fn was_never_served(crd: &CustomResourceDefinition) -> bool {
    let conditions = crd.status.as_ref().and_then(|status| status.conditions.as_deref());
    conditions
        .unwrap_or_default()
        .iter()
        .filter(|condition| condition.type_ == "Established" && condition.status == "False")
        .any(|condition| condition.reason.as_deref() != Some("Installing"))
}

/// Whether the API server has an object of a CRD right now.
pub async fn any(client: &Client, crd: &CustomResourceDefinition) -> Result<bool, kube::Error> {
    let version = crd.spec.versions.iter().find(|version| version.served);
    let Some(version) = version.filter(|_| !was_never_served(crd)) else {
        return Ok(false);
    };
    let kind = GroupVersionKind::gvk(&crd.spec.group, &version.name, &crd.spec.names.kind);
    let resource = ApiResource::from_gvk_with_plural(&kind, &crd.spec.names.plural);
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let found = api.list_metadata(&ListParams::default().limit(1)).await?;
    Ok(!found.items.is_empty())
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;

    /// Asks an API server that answers one request with these items; `None` if it must not be asked.
    async fn ask(conditions: Value, status: u16, items: Option<Value>) -> Result<bool, kube::Error> {
        let service = tower::service_fn(move |request: Request<Body>| {
            let items = items.clone().expect("no request");
            let uri = request.uri().to_string();
            async move {
                assert!(
                    uri.starts_with("/apis/wildwest.dev/v1/cowboys?") && uri.contains("limit=1"),
                    "{uri}"
                );
                let body = match status {
                    200 => json!({
                        "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": {}, "items": items,
                    }),
                    code => json!({"kind": "Status", "apiVersion": "v1", "status": "CrdFailure", "code": code}),
                };
                Response::builder()
                    .status(status)
                    .body(Body::from(body.to_string().into_bytes()))
            }
        });
        let version = |name: &str, served: bool| json!({"name": name, "served": served, "storage": served});
        let crd = serde_json::from_value(json!({
            "metadata": {"name": "cowboys.wildwest.dev"},
            "spec": {
                "group": "wildwest.dev", "scope": "Namespaced", "names": {"plural": "cowboys", "kind": "Cowboy"},
                "versions": [version("v1alpha1", false), version("v1", true)],
            },
            "status": {"conditions": conditions},
        }))
        .unwrap();
        any(&Client::new(service, "default"), &crd).await
    }

    #[tokio::test]
    async fn only_an_empty_list_proves_that_there_are_no_objects() {
        let one =
            json!([{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {"name": "colt"}}]);
        assert!(ask(json!([]), 200, Some(one)).await.unwrap());
        assert!(!ask(json!([]), 200, Some(json!([]))).await.unwrap());
        for refusal in [403, 404, 503] {
            assert!(
                ask(json!([]), refusal, Some(json!([]))).await.is_err(),
                "{refusal} is no proof"
            );
        }
        let never = json!([{"type": "Established", "status": "False", "reason": "NotAccepted"}]);
        assert!(!ask(never, 200, None).await.unwrap());
    }
}
