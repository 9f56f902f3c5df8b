//! Adoption: creates the consumer's object from one that the provider made, and makes that one its copy.

use std::{collections::BTreeMap, sync::Arc};

use bindery_api::{annotations, finalizers};
use bindery_runtime::errors;
use http::Method;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, api::PostParams};

use crate::{
    bound::learn::Learned,
    connection::{CopyBody, FULL, Meta, PLAIN, Target, Writer, send_accepting},
    model::{FIELD_MANAGER, object::Object, projection::carried},
};

/// The end of the message that adoption lacks the right to create a missing namespace.
const MAY_CREATE_NAMESPACES: &str = "the konnector may create none: bind it to a ClusterRole with the rule {apiGroups: [\"\"], \
                                     resources: [namespaces], verbs: [create]}, as `kubectl bind deploy --adoption` does, \
                                     or create the namespace";

impl Writer {
    /// Creates the consumer's object, and its namespace if that is missing.
    pub(super) async fn adopt(
        &self,
        target: Target<'_>,
        source: &Object,
        place: &Arc<str>,
    ) -> Result<Option<Learned>, kube::Error> {
        let created = match self.create_consumer(target, source, place).await {
            Err(error) if is_namespace_missing(&error) => {
                self.create_namespace(&target.key.namespace).await?;
                self.create_consumer(target, source, place).await?
            }
            created => created?,
        };
        Ok(Some(Learned::Consumer(Some(created))))
    }

    async fn create_consumer(&self, target: Target<'_>, source: &Object, place: &str) -> Result<Object, kube::Error> {
        let mut notes: BTreeMap<_, _> = carried(&source.meta.annotations).collect();
        notes.extend([
            (annotations::PROVIDER_NAMESPACE, place),
            (annotations::PROVIDER_UID, &*source.meta.uid),
            (annotations::ADOPTED, &*source.meta.uid),
        ]);
        let body = CopyBody {
            source,
            resource: &self.resource,
            meta: Meta {
                name: &target.key.name,
                namespace: &target.key.namespace,
                uid: None,
                resource_version: None,
                labels: carried(&source.meta.labels).collect(),
                annotations: notes,
                // Set from the beginning, or the object could end unseen before the provider's object has our annotations.
                finalizers: &[finalizers::SYNCER],
            },
        };
        let path = self.resource.collection(&target.key.namespace);
        let path = format!("{path}?fieldManager={FIELD_MANAGER}");
        send_accepting(&self.consumer, Method::POST, &path, (PLAIN, FULL), &body).await
    }

    async fn create_namespace(&self, name: &str) -> Result<(), kube::Error> {
        let mut namespace = Namespace::default();
        namespace.metadata.name = Some(name.to_owned());
        let api: Api<Namespace> = Api::all(self.consumer.clone());
        match api.create(&PostParams::default(), &namespace).await {
            Err(error) if errors::is_already_exists(&error) => Ok(()),
            Err(kube::Error::Api(mut status)) if status.code == 403 => {
                status.message = format!("namespace {name} does not exist, and {MAY_CREATE_NAMESPACES}");
                Err(kube::Error::Api(status))
            }
            created => created.map(drop),
        }
    }
}

/// Whether the error is a 404 that is about the namespace, not about the API.
fn is_namespace_missing(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else {
        return false;
    };
    let kind = status.details.as_ref().map(|details| details.kind.as_str());
    status.is_not_found() && kind == Some("namespaces")
}
