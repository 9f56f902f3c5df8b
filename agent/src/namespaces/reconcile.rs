//! Sends the planned requests for provider namespaces.

use bindery_api::{
    annotations,
    v1alpha2::{APIServiceExport, APIServiceNamespace},
};
use bindery_runtime::errors;
use k8s_openapi::{api::core::v1::Namespace, apimachinery::pkg::apis::meta::v1::OwnerReference};
use kube::{
    Api,
    api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams},
};
use serde_json::json;

use super::mapped::PlaceOp;
use crate::connection::Writer;

impl Writer {
    /// Whether one of these exports exists and stays, by the provider's API server.
    pub(crate) async fn has_export(&self, exports: &[OwnerReference]) -> Result<bool, kube::Error> {
        let api: Api<APIServiceExport> = Api::namespaced(self.provider.clone(), &self.contract);
        for export in exports {
            let found = api.get_metadata_opt(&export.name).await?;
            let is_same =
                |found: &ObjectMeta| found.uid.as_ref() == Some(&export.uid) && found.deletion_timestamp.is_none();
            if found.is_some_and(|found| is_same(&found.metadata)) {
                return Ok(true);
            }
        }
        Ok(false)
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
                    // Another engine created it first. When the cache shows that, the next plan adds this engine's exports.
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
            PlaceOp::Need { owners, preconditions } => {
                let patch = Patch::Merge(json!({"metadata": {
                    "uid": preconditions.uid,
                    "resourceVersion": preconditions.resource_version,
                    "annotations": {annotations::STILL_NEEDED: annotations::TRUE},
                    "ownerReferences": owners,
                }}));
                match api.patch(consumer_namespace, &PatchParams::default(), &patch).await {
                    Err(error) if errors::is_object_gone(&error, consumer_namespace) => Ok(()),
                    said => said.map(drop),
                }
            }
            PlaceOp::GiveBack { preconditions } => {
                let namespaces: Api<Namespace> = Api::all(self.consumer.clone());
                match namespaces.get_metadata(consumer_namespace).await {
                    // The cache was behind: the consumer namespace exists, and the watch shows it soon.
                    Ok(_) => return Ok(()),
                    Err(error) if errors::is_object_gone(&error, consumer_namespace) => {}
                    Err(error) => return Err(error),
                }
                let params = DeleteParams {
                    preconditions: Some(preconditions),
                    ..DeleteParams::default()
                };
                match api.delete(consumer_namespace, &params).await {
                    Err(error) if errors::is_object_gone(&error, consumer_namespace) => Ok(()),
                    deleted => deleted.map(drop),
                }
            }
        }
    }
}
