//! Does the operations of a plan: the only part of the engine that writes.

use std::{collections::BTreeMap, future::Future, sync::Arc, time::Duration};

use bindery_api::{annotations, names, v1alpha2::APIServiceNamespace};
use bindery_runtime::{cache::ObjectKey, errors};
use http::{Method, Request, header};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
};
use serde::{Deserialize, Serialize, ser::SerializeMap as _};
use serde_json::{json, value::RawValue};
use tokio::time::timeout;

use super::{
    BoundResource,
    index::Learned,
    object::{Object, Version},
    pair::Annotation,
    places::PlaceOp,
    plan::Op,
    projection::{self, LastProjection, carried},
};

mod adopt;

/// Who writes, for server-side apply. kube-bind's name, so that either may continue the other's work.
pub(crate) const FIELD_MANAGER: &str = "kube-bind.io";
/// Answers carry metadata only: the content is ours or comes by the watch.
const METADATA_ONLY: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
/// The whole object is needed.
const FULL: &str = "application/json";
/// A resource version that no object has: server-side apply with it creates, and refuses to touch what exists.
const CREATE_ONLY: &str = "1";

/// No request takes longer, its answer included.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// Writes to both sides of one bound resource.
#[derive(Clone)]
pub(crate) struct Writer {
    pub consumer: Client,
    pub provider: Client,
    pub resource: Arc<BoundResource>,
    pub contract: Arc<str>,
    /// Several consumers write one object, so that what each wrote last is noted for itself.
    pub last_wins: bool,
}

/// Where an operation goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target<'a> {
    /// The consumer's object.
    pub key: &'a ObjectKey,
    /// The provider namespace of its copy; empty for one that is cluster-scoped.
    pub place: &'a str,
    /// The name of its copy.
    pub name: &'a str,
}

/// The metadata of an answer.
#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    kind: Box<str>,
    metadata: AnswerMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AnswerMeta {
    #[serde(default)]
    uid: Arc<str>,
    #[serde(default)]
    resource_version: Version,
}

/// The body of a server-side apply, or of a creation.
struct Copy<'a> {
    source: &'a Object,
    resource: &'a BoundResource,
    meta: Meta<'a>,
}

/// The metadata of a copy.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Meta<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    namespace: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    uid: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_version: Option<&'a str>,
    labels: BTreeMap<&'a str, &'a str>,
    annotations: BTreeMap<&'a str, &'a str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    finalizers: &'a [&'a str],
}

/// The copy that was written.
pub(crate) struct Answered {
    pub uid: Arc<str>,
    pub version: Version,
}

impl<'a> Meta<'a> {
    /// That of the copy of this UID, or of one that is to be created.
    pub(crate) fn of_copy(
        name: &'a str,
        namespace: &'a str,
        uid: Option<&'a str>,
        labels: BTreeMap<&'a str, &'a str>,
        annotations: BTreeMap<&'a str, &'a str>,
    ) -> Self {
        Self {
            name,
            namespace,
            uid,
            resource_version: uid.is_none().then_some(CREATE_ONLY),
            labels,
            annotations,
            finalizers: &[],
        }
    }
}

impl Writer {
    /// Does one operation, within a time in which any API server that works has answered.
    pub(crate) async fn apply(&self, target: Target<'_>, op: &Op) -> Result<Option<Learned>, kube::Error> {
        Self::in_time(self.request(target, op)).await
    }

    /// An answer, within that time.
    pub(crate) async fn in_time<T>(work: impl Future<Output = Result<T, kube::Error>>) -> Result<T, kube::Error> {
        let answer = timeout(ANSWER_MAX, work).await;
        answer.unwrap_or_else(|late| Err(kube::Error::Service(late.into())))
    }

    async fn request(&self, target: Target<'_>, op: &Op) -> Result<Option<Learned>, kube::Error> {
        match op {
            Op::ReadConsumer => {
                let read = self.read(&self.consumer, &self.consumer_path(target.key)).await?;
                Ok(Some(Learned::Consumer(read)))
            }
            Op::ReadProvider => {
                let read = self.read(&self.provider, &self.provider_path(target)).await?;
                Ok(Some(Learned::Provider(read)))
            }
            Op::Adopt { source, place } => self.adopt(target, source, place).await,
            Op::Disown { uid, source } => self.disown(target, uid, source).await,
            Op::Hold {
                version,
                finalizers,
                namespace,
                provider_uid,
            } => self.hold(target, *version, finalizers, (namespace, provider_uid)).await,
            Op::Create { source, last } => self.write_copy(target, source, None, *last, (&[], false)).await,
            Op::Update {
                source,
                uid,
                last,
                projections,
                has_release,
            } => {
                let kept = (&**projections, *has_release);
                self.write_copy(target, source, Some(uid), *last, kept).await
            }
            Op::Status {
                uid,
                source,
                fingerprint,
                subresource,
            } => {
                let version = self.status(target, uid, source.as_deref(), *subresource).await?;
                Ok(Some(Learned::StatusWritten {
                    version,
                    status: *fingerprint,
                }))
            }
            Op::DeleteProvider { uid } => self.delete_provider(target, uid).await,
            Op::DeleteOrphan { uid } => self.delete_orphan(target, uid).await,
            Op::DeleteConsumer { uid } => {
                self.delete(&self.consumer, &self.consumer_path(target.key), uid)
                    .await?;
                // The watch shows the deletion timestamp or the end.
                Ok(None)
            }
            Op::Release { version, finalizers } => self.release(target, *version, finalizers).await,
        }
    }

    /// Writes to an APIServiceNamespace of the contract.
    pub(crate) async fn place(&self, consumer_namespace: &str, op: PlaceOp) -> Result<(), kube::Error> {
        let api: Api<APIServiceNamespace> = Api::namespaced(self.provider.clone(), &self.contract);
        match op {
            PlaceOp::Request { owners } => {
                let mut request = APIServiceNamespace::default();
                request.metadata.name = Some(consumer_namespace.to_owned());
                request.metadata.owner_references = Some(owners);
                match api.create(&PostParams::default(), &request).await {
                    // Another engine was quicker; the cache shows its request, to be shared.
                    Err(error) if errors::is_already_exists(&error) => Ok(()),
                    created => created.map(drop),
                }
            }
            PlaceOp::Share { owners, version } => {
                let patch = Patch::Merge(json!({"metadata": {"resourceVersion": version, "ownerReferences": owners}}));
                api.patch(consumer_namespace, &PatchParams::default(), &patch)
                    .await
                    .map(drop)
            }
            PlaceOp::GiveBack { uid, version } => {
                let namespaces: Api<Namespace> = Api::all(self.consumer.clone());
                match namespaces.get_metadata(consumer_namespace).await {
                    // The cache was behind; the watch brings the namespace, or has brought it.
                    Ok(_) => return Ok(()),
                    Err(error) if errors::is_object_gone(&error, consumer_namespace) => {}
                    Err(error) => return Err(error),
                }
                let params = DeleteParams {
                    preconditions: Some(Preconditions {
                        uid,
                        resource_version: version,
                    }),
                    ..DeleteParams::default()
                };
                match api.delete(consumer_namespace, &params).await {
                    Err(error) if errors::is_object_gone(&error, consumer_namespace) => Ok(()),
                    deleted => deleted.map(drop),
                }
            }
        }
    }

    async fn hold(
        &self,
        target: Target<'_>,
        version: Version,
        finalizers: &[Box<str>],
        (namespace, provider_uid): (&Arc<str>, &Arc<str>),
    ) -> Result<Option<Learned>, kube::Error> {
        let patch = json!({"metadata": {
            "resourceVersion": version.to_string(),
            "finalizers": finalizers,
            "annotations": {
                annotations::PROVIDER_NAMESPACE: namespace,
                annotations::PROVIDER_UID: provider_uid,
            },
        }});
        let answer = self.patch_consumer(target.key, "", MERGE, &patch).await?;
        Ok(Some(Learned::Held {
            version: answer.metadata.resource_version,
            namespace: Arc::clone(namespace),
            provider_uid: Arc::clone(provider_uid),
        }))
    }

    async fn status(
        &self,
        target: Target<'_>,
        uid: &Arc<str>,
        source: Option<&Object>,
        subresource: bool,
    ) -> Result<Version, kube::Error> {
        let test = json!({"op": "test", "path": "/metadata/uid", "value": uid});
        // "add" replaces what is there, all of it.
        let change = match source.and_then(|source| source.status.as_ref()) {
            Some(status) => StatusOp::Add {
                path: "/status",
                value: status,
            },
            None => StatusOp::Remove { path: "/status" },
        };
        let path = if subresource { "/status" } else { "" };
        let answer = self.patch_consumer(target.key, path, JSON, &(test, change)).await?;
        Ok(answer.metadata.resource_version)
    }

    async fn release(
        &self,
        target: Target<'_>,
        version: Version,
        finalizers: &[Box<str>],
    ) -> Result<Option<Learned>, kube::Error> {
        let patch = json!({"metadata": {"resourceVersion": version.to_string(), "finalizers": finalizers}});
        match self.patch_consumer(target.key, "", MERGE, &patch).await {
            Ok(_) if finalizers.is_empty() => Ok(Some(Learned::ConsumerGone)),
            Ok(_) => Ok(None),
            Err(error) if errors::is_object_gone(&error, &target.key.name) => Ok(Some(Learned::ConsumerGone)),
            Err(error) => Err(error),
        }
    }

    async fn write_copy(
        &self,
        target: Target<'_>,
        source: &Object,
        uid: Option<&Arc<str>>,
        last: LastProjection,
        (projections, has_release): (&[Annotation], bool),
    ) -> Result<Option<Learned>, kube::Error> {
        let mark = last.to_string();
        let own = self.last_wins.then(|| projection::key_of(&self.contract));
        let mut notes: BTreeMap<_, _> = carried(&source.meta.annotations).collect();
        notes.extend([
            (annotations::CLUSTER_NAMESPACE, &*self.contract),
            (annotations::CONSUMER_NAMESPACE, &*source.meta.namespace),
            (annotations::CONSUMER_UID, &*source.meta.uid),
            (annotations::BOUND, annotations::TRUE),
            (annotations::PROJECTION_HASH, &mark),
        ]);
        let name = &*source.meta.name;
        if target.name != name && names::unprefixed_name(&self.contract, target.name, None) != Some(name) {
            notes.insert(annotations::CONSUMER_NAME, name);
        }
        if self.last_wins {
            notes.extend(projections.iter().map(|(key, value)| (&**key, &**value)));
        }
        if has_release {
            notes.insert(annotations::RELEASED, "");
        }
        if let Some(own) = &own {
            notes.insert(own, &mark);
        }
        let labels = carried(&source.meta.labels).collect();
        let meta = Meta::of_copy(target.name, target.place, uid.map(|uid| &**uid), labels, notes);
        let path = self.provider_path(target);
        let answer = self.write(&self.provider, &path, source, meta).await?;
        Ok(Some(Learned::Written {
            uid: answer.uid,
            source_uid: Arc::clone(&source.meta.uid),
            version: answer.version,
            last,
        }))
    }

    /// Writes what a source says to its copy, all of it and nothing of what others wrote there.
    pub(crate) async fn write(
        &self,
        client: &Client,
        path: &str,
        source: &Object,
        meta: Meta<'_>,
    ) -> Result<Answered, kube::Error> {
        let body = Copy {
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

    async fn delete_provider(&self, target: Target<'_>, uid: &str) -> Result<Option<Learned>, kube::Error> {
        let gone = self.delete(&self.provider, &self.provider_path(target), uid).await?;
        Ok(Some(if gone {
            Learned::ProviderGone
        } else {
            Learned::ProviderDeleting
        }))
    }

    async fn delete_orphan(&self, target: Target<'_>, uid: &str) -> Result<Option<Learned>, kube::Error> {
        match self.read(&self.consumer, &self.consumer_path(target.key)).await? {
            // The cache was behind; what to do with another object of the name is for the next plan.
            Some(object) => Ok(Some(Learned::Consumer(Some(object)))),
            None => self.delete_provider(target, uid).await,
        }
    }

    /// Deletes an object of this UID; true if it is gone, false if finalizers hold it.
    pub(crate) async fn delete(&self, client: &Client, path: &str, uid: &str) -> Result<bool, kube::Error> {
        let body = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}});
        match send::<Answer>(client, Method::DELETE, path, PLAIN, &body).await {
            Ok(answer) => Ok(&*answer.kind == "Status"),
            Err(error) if errors::is_object_gone(&error, last_segment(path)) => Ok(true),
            Err(error) => Err(error),
        }
    }

    pub(crate) async fn read(&self, client: &Client, path: &str) -> Result<Option<Object>, kube::Error> {
        let request = Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
        match client.request(request).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if errors::is_object_gone(&error, last_segment(path)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn patch_consumer(
        &self,
        key: &ObjectKey,
        subresource: &str,
        kind: &'static str,
        patch: &impl Serialize,
    ) -> Result<Answer, kube::Error> {
        let uri = format!("{}{subresource}?fieldManager={FIELD_MANAGER}", self.consumer_path(key));
        send(&self.consumer, Method::PATCH, &uri, kind, patch).await
    }

    pub(crate) fn consumer_path(&self, key: &ObjectKey) -> String {
        format!("{}/{}", self.resource.collection(&key.namespace), key.name)
    }

    pub(crate) fn provider_path(&self, target: Target<'_>) -> String {
        format!("{}/{}", self.resource.collection(target.place), target.name)
    }
}

/// The name of an object, by its path.
fn last_segment(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

const MERGE: &str = "application/merge-patch+json";
const JSON: &str = "application/json-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
const PLAIN: &str = "application/json";

async fn send<T: serde::de::DeserializeOwned>(
    client: &Client,
    method: Method,
    path: &str,
    content_type: &'static str,
    body: &impl Serialize,
) -> Result<T, kube::Error> {
    send_accepting(client, method, path, (content_type, METADATA_ONLY), body).await
}

async fn send_accepting<T: serde::de::DeserializeOwned>(
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

#[derive(Serialize)]
#[serde(tag = "op", rename_all = "lowercase")]
enum StatusOp<'a> {
    Add { path: &'static str, value: &'a RawValue },
    Remove { path: &'static str },
}

impl Serialize for Copy<'_> {
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
