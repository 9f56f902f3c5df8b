//! Runs the operations of a plan. Only this module and `adopt` write bound objects.

use std::{collections::BTreeMap, sync::Arc};

use bindery_api::{annotations, names};
use bindery_runtime::{cache::ObjectKey, errors};
use http::Method;
use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use serde::Serialize;
use serde_json::{Value, json, value::RawValue};

use crate::{
    bound::{
        learn::Learned,
        pair::{Annotation, Owner, Retained},
        plan::Op,
        retention,
    },
    connection::{Answer, JSON, MERGE, Meta, Target, Writer, send},
    model::{
        FIELD_MANAGER,
        object::{Object, Version},
        projection::{self, LastProjection, carried},
    },
};

mod adopt;

impl Writer {
    /// Runs one operation. It fails if the API server has not answered within 30 s.
    pub(crate) async fn apply(&self, target: Target<'_>, op: &Op) -> Result<Option<Learned>, kube::Error> {
        Self::in_time(self.request(target, op)).await
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
            Op::Adopt { source, place } => {
                let source = retention::resumed(source).map_err(kube::Error::SerdeError)?;
                self.adopt(target, &source, place).await
            }
            Op::TransferOwnership { uid, source } => {
                let path = self.provider_path(target);
                let version = self.transfer_ownership(&self.provider, &path, uid, source).await?;
                // The watch shows an object that took the name meanwhile.
                Ok(version.map(|version| Learned::Transferred { version }))
            }
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
                version,
                last,
                projections,
                has_release,
            } => {
                let kept = (&**projections, *has_release);
                self.write_copy(target, source, Some((uid, *version)), *last, kept)
                    .await
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
            Op::DeleteProvider { uid, .. } => self.delete_provider(target, uid, None).await,
            Op::Discard { uid, version } => self.delete_provider(target, uid, Some(*version)).await,
            Op::ReleaseProvider { uid, version } => self.release_provider(target, uid, *version).await,
            Op::DeleteOrphan { uid } => self.delete_orphan(target, uid).await,
            Op::Retain { .. } | Op::Restore { .. } | Op::Relink { .. } => self.end_or_begin_retention(target, op).await,
            Op::DeleteConsumer { uid } => {
                self.delete(&self.consumer, &self.consumer_path(target.key), uid, None)
                    .await?;
                // The watch shows the deletion timestamp or the end.
                Ok(None)
            }
            Op::Release { version, finalizers } => self.release(target, *version, finalizers).await,
        }
    }

    /// Retains a copy, or takes a step of its restore.
    async fn end_or_begin_retention(&self, target: Target<'_>, op: &Op) -> Result<Option<Learned>, kube::Error> {
        match op {
            Op::Retain {
                uid,
                version,
                source_uid,
                content,
                ..
            } => {
                let marks = retention::Marks {
                    uid,
                    version: *version,
                    namespace: &target.key.namespace,
                    mark: retention::mark(source_uid, &self.contract),
                };
                let patch = retention::retain(&marks, content.as_deref(), self.suspend.as_deref());
                let retained = Retained {
                    source_uid: source_uid.into(),
                    since: marks.mark.since,
                    until: None,
                    restoring: false,
                };
                self.remark(target, (uid, &patch), Owner::Retained(Box::new(retained)))
                    .await
            }
            Op::Restore { uid } => {
                let answer = self.patch_copy(target, &retention::restore(uid)).await?;
                Ok(Some(answer.map_or(Learned::ProviderGone, |version| {
                    Learned::Restoring {
                        uid: Arc::clone(uid),
                        version,
                    }
                })))
            }
            Op::Relink {
                copy,
                version,
                source_uid,
            } => {
                let patch = retention::relink(copy, *version, source_uid);
                let owner = Owner::Ours {
                    source_uid: source_uid.into(),
                };
                self.remark(target, (&copy.meta.uid, &patch), owner).await
            }
            // All other operations are requested elsewhere.
            _ => Ok(None),
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
        // "add" replaces the whole status, if there is one.
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
        replaced: Option<(&Arc<str>, Version)>,
        last: LastProjection,
        (projections, has_release): (&[Annotation], bool),
    ) -> Result<Option<Learned>, kube::Error> {
        let mark = last.to_string();
        let own = self.last_wins.then(|| projection::key_of(&self.contract));
        let generation = (source.meta.generation > 0 && !self.last_wins).then(|| {
            let instance = self.holding.instance().unwrap_or_default();
            annotations::source_generation(source.meta.generation, &instance)
        });
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
        if let Some(generation) = &generation {
            notes.insert(annotations::SOURCE_GENERATION, generation);
        }
        if let Some(traceparent) = target.traceparent {
            notes.insert(annotations::TRACEPARENT, traceparent);
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
        let replaced = replaced.map(|(uid, version)| (&**uid, version));
        let meta = Meta::of_copy(target.name, target.place, replaced, labels, notes);
        let path = self.provider_path(target);
        let answer = self.write(&self.provider, &path, source, meta).await?;
        Ok(Some(Learned::Written {
            uid: answer.uid,
            source_uid: Arc::clone(&source.meta.uid),
            version: answer.version,
            last,
            generation: generation.map(String::into_boxed_str),
        }))
    }

    async fn delete_provider(
        &self,
        target: Target<'_>,
        uid: &str,
        version: Option<Version>,
    ) -> Result<Option<Learned>, kube::Error> {
        let path = self.provider_path(target);
        let gone = self.delete(&self.provider, &path, uid, version).await?;
        Ok(Some(if gone {
            Learned::ProviderGone
        } else {
            Learned::ProviderDeleting
        }))
    }

    /// Marks a copy as released, as the server does when an export ends.
    pub(super) async fn release_provider(
        &self,
        target: Target<'_>,
        uid: &Arc<str>,
        version: Version,
    ) -> Result<Option<Learned>, kube::Error> {
        let at = Timestamp::now();
        let patch = json!({"metadata": {
            "uid": uid,
            "resourceVersion": version.to_string(),
            "annotations": {annotations::RELEASED: annotations::released(at, &self.contract)},
        }});
        let uri = format!("{}?fieldManager={FIELD_MANAGER}", self.provider_path(target));
        match send::<Answer>(&self.provider, Method::PATCH, &uri, MERGE, &patch).await {
            Ok(answer) => Ok(Some(Learned::ProviderReleased {
                uid: Arc::clone(uid),
                version: answer.metadata.resource_version,
                at,
            })),
            Err(error) if errors::is_object_gone(&error, target.name) => Ok(Some(Learned::ProviderGone)),
            Err(error) => Err(error),
        }
    }

    /// Writes or removes the marks of a copy's retention, after which it is this owner's.
    async fn remark(
        &self,
        target: Target<'_>,
        (uid, patch): (&Arc<str>, &Value),
        owner: Owner,
    ) -> Result<Option<Learned>, kube::Error> {
        let version = self.patch_copy(target, patch).await?;
        Ok(Some(version.map_or(Learned::ProviderGone, |version| {
            Learned::Remarked {
                uid: Arc::clone(uid),
                version,
                owner,
            }
        })))
    }

    /// Merges a patch into the copy. Returns its version after that; `None` if it is gone.
    async fn patch_copy(&self, target: Target<'_>, patch: &Value) -> Result<Option<Version>, kube::Error> {
        let uri = format!("{}?fieldManager={FIELD_MANAGER}", self.provider_path(target));
        match send::<Answer>(&self.provider, Method::PATCH, &uri, MERGE, patch).await {
            Ok(answer) => Ok(Some(answer.metadata.resource_version)),
            Err(error) if errors::is_object_gone(&error, target.name) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether the CRD of the resource is being deleted, or is gone.
    pub(super) async fn is_crd_ending(&self) -> Result<bool, kube::Error> {
        let name = format!("{}.{}", self.resource.plural, self.resource.group);
        let crds: Api<CustomResourceDefinition> = Api::all(self.consumer.clone());
        match crds.get_metadata(&name).await {
            Ok(crd) => Ok(crd.metadata.deletion_timestamp.is_some()),
            Err(error) if errors::is_object_gone(&error, &name) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Reads the source of a copy from the consumer; `None` if it is gone or is being deleted, or the object there is another one.
    pub(super) async fn living_source(&self, target: Target<'_>) -> Result<Option<Object>, kube::Error> {
        let read = self.read(&self.consumer, &self.consumer_path(target.key)).await?;
        let Some(source) = read.filter(|object| !object.meta.deletion_timestamp) else {
            return Ok(None);
        };
        let copy = self.read(&self.provider, &self.provider_path(target)).await?;
        let of = copy
            .as_ref()
            .and_then(|copy| copy.meta.annotations.get(annotations::CONSUMER_UID));
        Ok(of.is_some_and(|of| *of == *source.meta.uid).then_some(source))
    }

    async fn delete_orphan(&self, target: Target<'_>, uid: &str) -> Result<Option<Learned>, kube::Error> {
        match self.read(&self.consumer, &self.consumer_path(target.key)).await? {
            // The cache was behind: an object of this name exists. The next plan decides.
            Some(object) => Ok(Some(Learned::Consumer(Some(object)))),
            None => self.delete_provider(target, uid, None).await,
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
}

#[derive(Serialize)]
#[serde(tag = "op", rename_all = "lowercase")]
enum StatusOp<'a> {
    Add { path: &'static str, value: &'a RawValue },
    Remove { path: &'static str },
}
