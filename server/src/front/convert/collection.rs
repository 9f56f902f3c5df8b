//! Collection.

use bindery_api::{Conditions as _, v1alpha2 as api};
use bindery_proto::v1alpha2 as proto;

use super::{condition::conditions, meta};

/// A collection, with those of its templates that the caller may see.
pub fn collection(collection: &api::Collection, templates: &[api::NameRef]) -> proto::Collection {
    proto::Collection {
        metadata: Some(meta::metadata(&collection.metadata)),
        spec: Some(proto::CollectionSpec {
            description: collection.spec.description.clone().unwrap_or_default(),
            templates: meta::names(templates),
        }),
        status: Some(proto::CollectionStatus {
            conditions: conditions(collection.conditions()),
        }),
    }
}
