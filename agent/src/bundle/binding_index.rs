//! Finds bindings by export and by name.

use std::{collections::HashMap, sync::Arc};

use bindery_api::v1alpha2::APIServiceBinding;

use super::observed::ObservedBundle;

/// An index of bindings for one bundle. If several bindings match, the first by name counts.
#[derive(Debug)]
pub(super) struct BindingIndex<'a> {
    own: HashMap<&'a str, &'a Arc<APIServiceBinding>>,
    of_contract: HashMap<&'a str, &'a Arc<APIServiceBinding>>,
    named: HashMap<&'a str, &'a Arc<APIServiceBinding>>,
}

impl<'a> BindingIndex<'a> {
    /// Indexes all bindings of the cluster.
    pub(super) fn of(seen: &'a ObservedBundle) -> Self {
        let mut index = Self {
            own: HashMap::new(),
            of_contract: HashMap::new(),
            named: HashMap::new(),
        };
        for binding in seen.own() {
            index.own.entry(binding.export_name()).or_insert(binding);
        }
        for binding in &seen.bindings {
            if binding.metadata.deletion_timestamp.is_none() && seen.is_of_contract(binding) {
                index.of_contract.entry(binding.export_name()).or_insert(binding);
            }
            if let Some(name) = &binding.metadata.name {
                index.named.insert(name, binding);
            }
        }
        index
    }

    /// The binding of an export that the bundle made.
    pub(super) fn own(&self, export: &str) -> Option<&'a Arc<APIServiceBinding>> {
        self.own.get(export).copied()
    }

    /// A binding of the bundle's contract and an export, by any owner, that is not being deleted.
    pub(super) fn of_contract(&self, export: &str) -> Option<&'a Arc<APIServiceBinding>> {
        self.of_contract.get(export).copied()
    }

    /// The binding of that name.
    pub(super) fn named(&self, name: &str) -> Option<&'a Arc<APIServiceBinding>> {
        self.named.get(name).copied()
    }
}

#[cfg(test)]
mod tests {
    use kube::ResourceExt as _;

    use super::*;
    use crate::bundle::fixtures::{add, at, by_hand, delete, of_bundle, seen};

    #[test]
    fn bindings_are_found_by_export_and_name() {
        let mut seen = seen(&["a"]);
        let serving = |mut binding: APIServiceBinding, export: &str| {
            binding.spec.export_name = Some(export.to_owned());
            binding
        };
        let ours = of_bundle(by_hand("z", "other", Some("z")), "bundle-uid");
        add(&mut seen, serving(ours, "a"));
        for name in ["going", "n", "m"] {
            add(&mut seen, serving(by_hand(name, "provider", None), "a"));
        }
        delete(at(&mut seen, "going"));
        let index = BindingIndex::of(&seen);
        let name = |found: Option<&Arc<APIServiceBinding>>| found.map(|binding| binding.name_any());
        assert_eq!(name(index.own("a")).as_deref(), Some("z"));
        assert_eq!(name(index.of_contract("a")).as_deref(), Some("m"));
        assert_eq!(name(index.named("going")).as_deref(), Some("going"));
        assert!(index.own("z").is_none() && index.of_contract("m").is_none() && index.named("a").is_none());
    }
}
