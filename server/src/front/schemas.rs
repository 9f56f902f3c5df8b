//! References to bound schemas. Their hashes are computed once per content, not once per message.

use std::{collections::HashMap, sync::Arc};

use bindery_api::{
    names,
    v1alpha2::{APIServiceExport, BoundSchema},
};
use bindery_proto::v1alpha2::BoundSchemaRef;
use kube::ResourceExt as _;
use parking_lot::Mutex;

use super::convert::boundschema;
use crate::state::Caches;

const ENTRIES_MAX: usize = 10_000;

/// References by UID and generation, which counts the changes of the spec and nothing else. Clones share one memory.
#[derive(Clone, Debug, Default)]
pub(super) struct SchemaRefs {
    known: Arc<Mutex<HashMap<String, Known>>>,
}

/// A reference, and the generation that it was made from.
type Known = (i64, Arc<BoundSchemaRef>);

impl SchemaRefs {
    /// The reference to a schema.
    pub(super) fn of(&self, schema: &BoundSchema) -> Arc<BoundSchemaRef> {
        let (uid, generation) = (
            schema.uid().unwrap_or_default(),
            schema.metadata.generation.unwrap_or_default(),
        );
        if let Some((known, reference)) = self.known.lock().get(&uid)
            && *known == generation
        {
            return Arc::clone(reference);
        }
        let reference = Arc::new(boundschema::reference(schema));
        let mut known = self.known.lock();
        if known.len() >= ENTRIES_MAX {
            known.clear();
        }
        known.insert(uid, (generation, Arc::clone(&reference)));
        reference
    }

    /// References to the schemas of an export, as far as they are there.
    pub(super) fn of_export(&self, caches: &Caches, export: &APIServiceExport) -> Vec<BoundSchemaRef> {
        let contract = export.metadata.namespace.as_deref().unwrap_or_default();
        let resources = export.spec.resources.iter();
        resources
            .filter_map(|resource| {
                caches
                    .bound_schemas
                    .get(contract, &names::bound_schema(&resource.group_resource))
            })
            .map(|schema| self.of(&schema).as_ref().clone())
            .collect()
    }
}
