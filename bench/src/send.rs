//! One request, and the metadata of its answer.

use http::{Method, Request, header};
use kube::Client;
use serde::{Deserialize, Serialize};

/// Answers carry metadata only, as the konnector asks for them.
pub(crate) const METADATA_ONLY: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

pub(crate) const JSON: &str = "application/json";
pub(crate) const MERGE: &str = "application/merge-patch+json";
pub(crate) const JSON_PATCH: &str = "application/json-patch+json";
pub(crate) const APPLY: &str = "application/apply-patch+yaml";

/// What an answer says of the object that was written.
#[derive(Debug, Deserialize)]
pub(crate) struct Answer {
    #[serde(default)]
    pub metadata: Meta,
}

/// The metadata of the object that was written.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Meta {
    #[serde(default)]
    pub uid: Box<str>,
    #[serde(default)]
    pub resource_version: Box<str>,
}

/// Sends one request and reads its answer.
pub(crate) async fn send(
    client: &Client,
    method: Method,
    path: &str,
    content_type: &'static str,
    body: &impl Serialize,
) -> Result<Answer, kube::Error> {
    let body = serde_json::to_vec(body).map_err(kube::Error::SerdeError)?;
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::CONTENT_TYPE, content_type)
        .header(header::ACCEPT, METADATA_ONLY)
        .body(body)
        .map_err(kube::Error::HttpError)?;
    let text = client.request_text(request).await?;
    serde_json::from_str(&text).map_err(kube::Error::SerdeError)
}
