//! Deletes the objects of a collection, one by one.

use std::sync::Arc;

use serde_json::json;

use super::{Call, DeleteOptions, JSON, Replied, Reply, Result, list::list_text};
use crate::{ApiServer, endpoint::Endpoint, present, selector::Selector, store::Stored};

impl ApiServer {
    pub(super) fn delete_collection(&mut self, call: &Call, endpoint: &Arc<Endpoint>) -> Result<Replied> {
        let options = DeleteOptions::read(call)?;
        let selector = Selector::read(&call.parameters.labels, &call.parameters.fields, endpoint)?;
        let namespace = Some(call.info.namespace.as_str()).filter(|_| endpoint.namespaced);
        let revision = self.store.revision();
        let found: Vec<(String, Arc<Stored>)> = self
            .store
            .of(&endpoint.storage_group, &endpoint.resource, namespace)
            .filter(|(_, stored)| selector.matches(&stored.value, endpoint))
            .map(|(key, stored)| (key.name.clone(), Arc::clone(stored)))
            .collect();
        let mut items = String::new();
        for (name, stored) in &found {
            match self.delete_object(call, endpoint, name, &options) {
                Err(error) if error.code != 404 => return Err(error),
                _ => {}
            }
            if !items.is_empty() {
                items.push(',');
            }
            present::item(&mut items, stored, endpoint, call.metadata_only);
        }
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if endpoint.custom.is_some() {
            metadata["continue"] = "".into();
        }
        Ok(Reply::Text(200, JSON, list_text(call, endpoint, &metadata, &items)).into())
    }
}
