//! Sends writes to the API server.

use bindery_runtime::errors;
use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, ObjectMeta, Patch, PatchParams, PostParams},
};
use serde::de::DeserializeOwned;

use super::{FIELD_MANAGER, Write, WriteAction, WriteError};

/// Applies writes one after another, until one fails.
pub async fn apply_all(client: &Client, writes: impl IntoIterator<Item = Write>) -> Result<(), WriteError> {
    for write in writes {
        write.apply(client).await?;
    }
    Ok(())
}

// === impl Write ===

impl Write {
    /// Sends the write. Returns the object as it is afterwards; a deletion returns nothing.
    pub async fn apply(&self, client: &Client) -> Result<Option<DynamicObject>, WriteError> {
        tracing::debug!(write = %self, reason = self.reason, "writes");
        let api: Api<DynamicObject> = if self.namespace.is_empty() {
            Api::all_with(client.clone(), &self.resource)
        } else {
            Api::namespaced_with(client.clone(), &self.namespace, &self.resource)
        };
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        match &self.action {
            WriteAction::Create { object, identity } => self.create_or_find(&api, object, identity).await.map(Some),
            WriteAction::Patch(patch) => Ok(Some(api.patch(&self.name, &params, &Patch::Merge(patch)).await?)),
            WriteAction::PatchStatus(patch) => {
                Ok(Some(api.patch_status(&self.name, &params, &Patch::Merge(patch)).await?))
            }
            WriteAction::Delete {
                preconditions,
                propagation,
            } => {
                let params = DeleteParams {
                    propagation_policy: Some(propagation.clone()),
                    preconditions: preconditions.clone(),
                    ..DeleteParams::default()
                };
                match api.delete(&self.name, &params).await {
                    Ok(_) => Ok(None),
                    // A conflict says that the object is another one by now.
                    Err(error) if errors::is_not_found(&error) || errors::is_conflict(&error) => Ok(None),
                    Err(error) => Err(error.into()),
                }
            }
        }
    }

    /// Sends the write, and returns the object as it is afterwards.
    pub async fn apply_as<K: DeserializeOwned>(&self, client: &Client) -> Result<K, WriteError> {
        let written = serde_json::to_value(self.apply(client).await?);
        let written = written.and_then(serde_json::from_value);
        Ok(written.map_err(kube::Error::SerdeError)?)
    }

    async fn create_or_find(
        &self,
        api: &Api<DynamicObject>,
        object: &DynamicObject,
        identity: &[&str],
    ) -> Result<DynamicObject, WriteError> {
        let params = PostParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PostParams::default()
        };
        match api.create(&params, object).await {
            Ok(created) => Ok(created),
            // The caches may not show it yet.
            Err(error) if errors::is_already_exists(&error) => match api.get_opt(&self.name).await? {
                Some(existing) if is_same(identity, &object.metadata, &existing.metadata) => Ok(existing),
                Some(existing) => Err(WriteError::foreign_of(&self.resource, &existing.metadata)),
                // Deleted in between: the caller tries again.
                None => Err(error.into()),
            },
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether two objects have the same values of the labels and annotations of these keys.
pub(super) fn is_same(identity: &[&str], wanted: &ObjectMeta, existing: &ObjectMeta) -> bool {
    fn value<'a>(meta: &'a ObjectMeta, key: &str) -> [Option<&'a String>; 2] {
        [&meta.labels, &meta.annotations].map(|entries| entries.as_ref()?.get(key))
    }
    identity.iter().all(|key| value(wanted, key) == value(existing, key))
}
