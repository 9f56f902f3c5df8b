//! References to bound schemas, with a cache, for their hashes take a while to compute.

use std::{collections::HashMap, sync::Arc};

use bindery_api::{
    names,
    v1alpha2::{APIServiceExport, BoundSchema},
};
use bindery_proto::v1alpha2::BoundSchemaRef;
use kube::ResourceExt as _;
use parking_lot::Mutex;

use crate::front::wire::convert::boundschema;
use crate::state::Caches;

const ENTRIES_MAX: usize = 10_000;

/// A cache of references by UID and generation of the schema. The generation changes with the spec only. Clones share the cache.
#[derive(Clone, Debug, Default)]
pub(crate) struct SchemaRefs {
    known: Arc<Mutex<HashMap<String, CachedReference>>>,
}

/// The generation of a schema, and the reference that was made from it.
type CachedReference = (i64, Arc<BoundSchemaRef>);

impl SchemaRefs {
    /// The reference to a schema.
    pub(crate) fn of(&self, schema: &BoundSchema) -> Arc<BoundSchemaRef> {
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

    /// References to those schemas of an export that exist.
    pub(crate) fn of_export(&self, caches: &Caches, export: &APIServiceExport) -> Vec<BoundSchemaRef> {
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
