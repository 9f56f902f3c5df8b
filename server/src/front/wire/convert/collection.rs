//! Conversion of Collections.

use bindery_api::{Conditions as _, v1alpha2 as api};
use bindery_proto::v1alpha2 as proto;

use crate::front::wire::convert::{condition::conditions, meta};

/// The message of a collection with these templates, which are those that the caller may see.
pub(crate) fn collection(collection: &api::Collection, templates: &[api::NameRef]) -> proto::Collection {
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
