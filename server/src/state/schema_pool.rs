//! One copy in memory of equal schemas: contracts that bind the same template have the same schema, which is often the largest
//! part of what the server knows of a contract.

use std::collections::HashSet;

use bindery_api::v1alpha2::{BoundSchema, SharedValue};
use parking_lot::Mutex;

/// The schemas of all BoundSchemas, each once.
#[derive(Debug, Default)]
pub(super) struct SchemaPool {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    schemas: HashSet<SharedValue>,
    /// How many schemas were left when those that nobody has were last removed.
    left: usize,
}

impl SchemaPool {
    /// Replaces each schema of a BoundSchema with the pool's equal one, or adds it to the pool.
    pub(super) fn share(&self, bound: &mut BoundSchema) {
        // A list that is read has places for four, of some 300 bytes each, and most APIs have one version.
        bound.spec.versions.shrink_to_fit();
        let mut known = self.known.lock();
        for version in &mut bound.spec.versions {
            known.share(&mut version.schema);
        }
    }
}

impl Known {
    fn share(&mut self, schema: &mut SharedValue) {
        if let Some(equal) = self.schemas.get(schema) {
            *schema = equal.clone();
            return;
        }
        // Twice the number left: so a removal looks at no more schemas than were added since the one before.
        if self.schemas.len() >= 2 * self.left.max(8) {
            self.schemas.retain(|schema| !schema.is_unshared());
            self.left = self.schemas.len();
        }
        self.schemas.insert(schema.clone());
    }
}

#[cfg(test)]
mod tests {
    use bindery_api::v1alpha2::BoundSchemaVersion;
    use serde_json::json;

    use super::*;

    fn bound(title: &str) -> BoundSchema {
        let mut bound = BoundSchema::default();
        bound.spec.versions = vec![BoundSchemaVersion {
            schema: json!({ "type": "object", "title": title }).into(),
            ..BoundSchemaVersion::default()
        }];
        bound
    }

    #[test]
    fn equal_schemas_are_one_and_different_ones_stay_apart() {
        let pool = SchemaPool::default();
        let mut all = [bound("a"), bound("a"), bound("b")];
        let meant = all.clone();
        for bound in &mut all {
            pool.share(bound);
        }
        assert_eq!(all, meant);
        let address = |bound: &BoundSchema| std::ptr::from_ref(&*bound.spec.versions[0].schema);
        assert_eq!(address(&all[0]), address(&all[1]));
        assert_ne!(address(&all[0]), address(&all[2]));
    }

    #[test]
    fn schemas_that_nobody_has_any_more_are_removed() {
        let pool = SchemaPool::default();
        let mut kept = bound("kept");
        pool.share(&mut kept);
        for number in 0..1_000 {
            pool.share(&mut bound(&format!("of a moment, {number}")));
        }
        let known = pool.known.lock();
        assert!(known.schemas.len() <= 17, "{} schemas", known.schemas.len());
        assert!(known.schemas.contains(&kept.spec.versions[0].schema));
    }
}
