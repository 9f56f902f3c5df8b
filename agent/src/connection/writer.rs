//! Requests of the engines, the sync loops of one resource each, to the consumer's and the provider's API servers.

use std::{collections::BTreeMap, future::Future, sync::Arc, time::Duration};

use bindery_runtime::{cache::ObjectKey, errors};
use http::{Method, Request, header};
use kube::Client;
use serde::{Deserialize, Serialize, ser::SerializeMap as _};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::{
    holder::Holding,
    model::{
        BoundResource, FIELD_MANAGER,
        object::{Object, Version},
        ownership,
    },
};

/// Accept header for answers that carry metadata only: the konnector wrote the content itself, or gets it by the watch.
pub(crate) const METADATA_ONLY: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
/// Accept header for answers that carry the whole object.
pub(crate) const FULL: &str = "application/json";
/// A resource version that no object has: server-side apply with it creates, and refuses to touch what exists.
const CREATE_ONLY: Version = Version(1);

/// Time limit of [`Writer::in_time`] for a request with its answer.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// Reads and writes the objects of one resource on both clusters.
#[derive(Clone)]
pub(crate) struct Writer {
    pub consumer: Client,
    pub provider: Client,
    pub resource: Arc<BoundResource>,
    /// The contract namespace on the provider.
    pub contract: Arc<str>,
    /// Several consumers may write the same provider object, and the last write wins. The object then records for each
    /// contract what it wrote last.
    pub last_wins: bool,
    /// Whether this konnector holds the contract; copies note the holder that wrote them.
    pub holding: Holding,
    /// What is changed in a copy that is retained, as a merge patch.
    pub suspend: Option<Arc<Value>>,
}

/// A consumer's object, and where its copy is on the provider.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target<'a> {
    /// The consumer's object.
    pub key: &'a ObjectKey,
    /// The provider namespace of its copy; empty for one that is cluster-scoped.
    pub place: &'a str,
    /// The name of its copy.
    pub name: &'a str,
    /// The trace context that the copy is to carry, if the change is traced.
    pub traceparent: Option<&'a str>,
}

/// What is read of an API server's answer. A `kind` of `Status` instead of the object's means that a deletion is
/// complete.
#[derive(Deserialize)]
pub(crate) struct Answer {
    #[serde(default)]
    pub kind: Box<str>,
    pub metadata: AnswerMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AnswerMeta {
    #[serde(default)]
    pub uid: Arc<str>,
    #[serde(default)]
    pub resource_version: Version,
}

/// The body of a server-side apply or a creation: the source's content (all top-level fields in its `body`) under new
/// metadata.
pub(crate) struct CopyBody<'a> {
    pub source: &'a Object,
    pub resource: &'a BoundResource,
    pub meta: Meta<'a>,
}

/// The metadata of a copy.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Meta<'a> {
    pub name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub namespace: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<Version>,
    pub labels: BTreeMap<&'a str, &'a str>,
    pub annotations: BTreeMap<&'a str, &'a str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub finalizers: &'a [&'a str],
}

/// UID and version of a copy after a write.
pub(crate) struct Answered {
    pub uid: Arc<str>,
    pub version: Version,
}

impl<'a> Meta<'a> {
    /// The metadata to write to the copy that has this UID and version; without them, the copy is created and must not exist. With
    /// the version, a request that arrives late or twice changes nothing.
    pub(crate) fn of_copy(
        name: &'a str,
        namespace: &'a str,
        replaced: Option<(&'a str, Version)>,
        labels: BTreeMap<&'a str, &'a str>,
        annotations: BTreeMap<&'a str, &'a str>,
    ) -> Self {
        let (uid, version) = replaced.unzip();
        Self {
            name,
            namespace,
            uid,
            resource_version: Some(version.unwrap_or(CREATE_ONLY)),
            labels,
            annotations,
            finalizers: &[],
        }
    }
}

impl Writer {
    /// Fails a request that takes longer than 30 s, its answer included.
    pub(crate) async fn in_time<T>(work: impl Future<Output = Result<T, kube::Error>>) -> Result<T, kube::Error> {
        let answer = timeout(ANSWER_MAX, work).await;
        answer.unwrap_or_else(|late| Err(kube::Error::Service(late.into())))
    }

    /// Writes the content of a source to its copy by server-side apply, forced. Fields that the source does not have
    /// stay with the managers that wrote them.
    pub(crate) async fn write(
        &self,
        client: &Client,
        path: &str,
        source: &Object,
        meta: Meta<'_>,
    ) -> Result<Answered, kube::Error> {
        let body = CopyBody {
            source,
            resource: &self.resource,
            meta,
        };
        let path = format!("{path}?fieldManager={FIELD_MANAGER}&force=true");
        let answer: Answer = send(client, Method::PATCH, &path, APPLY, &body).await?;
        Ok(Answered {
            uid: answer.metadata.uid,
            version: answer.metadata.resource_version,
        })
    }

    /// Transfers to us, in the copy of this UID, ownership of all fields that the source has. Returns the version of the copy after
    /// it; `None` if another object has the name. Fails with a conflict if the copy is changed meanwhile.
    pub(crate) async fn transfer_ownership(
        &self,
        client: &Client,
        path: &str,
        uid: &str,
        source: &Object,
    ) -> Result<Option<Version>, kube::Error> {
        let request = Request::get(path).header(header::ACCEPT, METADATA_ONLY);
        let request = request.body(Vec::new()).map_err(kube::Error::HttpError)?;
        let existing: Value = client.request(request).await?;
        let meta = &existing["metadata"];
        if meta["uid"] != *uid {
            return Ok(None);
        }
        let entries = meta["managedFields"].as_array().map(Vec::as_slice).unwrap_or_default();
        let Some(entries) = ownership::transferred(entries, &self.resource.api_version(), source) else {
            let version = Version::deserialize(&meta["resourceVersion"]).map_err(kube::Error::SerdeError)?;
            return Ok(Some(version));
        };
        let change = json!([
            {"op": "test", "path": "/metadata/uid", "value": uid},
            {"op": "replace", "path": "/metadata/resourceVersion", "value": meta["resourceVersion"]},
            {"op": "replace", "path": "/metadata/managedFields", "value": entries},
        ]);
        let path = format!("{path}?fieldManager={FIELD_MANAGER}");
        let answer: Answer = send(client, Method::PATCH, &path, JSON, &change).await?;
        Ok(Some(answer.metadata.resource_version))
    }

    /// Deletes an object of this UID, in this version if one is given; true if it is gone, false if finalizers hold it. Fails with a
    /// conflict if the object has another UID or version.
    pub(crate) async fn delete(
        &self,
        client: &Client,
        path: &str,
        uid: &str,
        version: Option<Version>,
    ) -> Result<bool, kube::Error> {
        let mut preconditions = json!({"uid": uid});
        if let Some(version) = version {
            preconditions["resourceVersion"] = json!(version.to_string());
        }
        let body = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions});
        match send::<Answer>(client, Method::DELETE, path, PLAIN, &body).await {
            Ok(answer) => Ok(&*answer.kind == "Status"),
            Err(error) if errors::is_object_gone(&error, last_segment(path)) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Reads an object; `None` if it does not exist.
    pub(crate) async fn read(&self, client: &Client, path: &str) -> Result<Option<Object>, kube::Error> {
        let request = Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
        match client.request(request).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if errors::is_object_gone(&error, last_segment(path)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn consumer_path(&self, key: &ObjectKey) -> String {
        self.resource.path(&key.namespace, &key.name)
    }

    pub(crate) fn provider_path(&self, target: Target<'_>) -> String {
        self.resource.path(target.place, target.name)
    }
}

/// The name of an object, by its path.
fn last_segment(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

// Content types of request bodies.
pub(crate) const MERGE: &str = "application/merge-patch+json";
pub(crate) const JSON: &str = "application/json-patch+json";
pub(crate) const APPLY: &str = "application/apply-patch+yaml";
pub(crate) const PLAIN: &str = "application/json";

/// Sends a request. Its answer carries metadata only.
pub(crate) async fn send<T: serde::de::DeserializeOwned>(
    client: &Client,
    method: Method,
    path: &str,
    content_type: &'static str,
    body: &impl Serialize,
) -> Result<T, kube::Error> {
    send_accepting(client, method, path, (content_type, METADATA_ONLY), body).await
}

/// Sends a request with a content type and an Accept header.
pub(crate) async fn send_accepting<T: serde::de::DeserializeOwned>(
    client: &Client,
    method: Method,
    path: &str,
    (content_type, accept): (&'static str, &'static str),
    body: &impl Serialize,
) -> Result<T, kube::Error> {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::CONTENT_TYPE, content_type)
        .header(header::ACCEPT, accept)
        .body(serde_json::to_vec(body).map_err(kube::Error::SerdeError)?)
        .map_err(kube::Error::HttpError)?;
    client.request(request).await
}

impl Serialize for CopyBody<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("apiVersion", &self.resource.api_version())?;
        map.serialize_entry("kind", &*self.resource.kind)?;
        map.serialize_entry("metadata", &self.meta)?;
        for (key, text) in &self.source.body {
            map.serialize_entry(&**key, text)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_created_where_there_is_none_and_updated_in_the_version_that_is_known() {
        let meta = |replaced| {
            let meta = Meta::of_copy("billy", "place", replaced, BTreeMap::new(), BTreeMap::new());
            serde_json::to_value(meta).unwrap()
        };
        let copy = |more: serde_json::Value| {
            let mut copy = json!({"name": "billy", "namespace": "place", "labels": {}, "annotations": {}});
            copy.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            copy
        };
        assert_eq!(meta(None), copy(json!({"resourceVersion": "1"})));
        assert_eq!(
            meta(Some(("u", Version(42)))),
            copy(json!({"uid": "u", "resourceVersion": "42"}))
        );
    }
}
