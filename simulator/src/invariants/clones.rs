//! Which copies the konnector of a restored second cluster wrote.

use std::collections::BTreeSet;

use bindery_simulator_apiserver::ObjectKey;

use super::{Written, marks};
use crate::{faults::ProcessName, topology::Cluster};

/// What konnectors of restored second clusters wrote on providers.
#[derive(Debug, Default)]
pub(super) struct CloneWrites {
    /// Objects and namespaces.
    objects: BTreeSet<(Cluster, ObjectKey)>,
    /// UIDs of the sources of copies.
    sources: BTreeSet<String>,
}

impl CloneWrites {
    /// Notes a write, if a konnector of a second cluster sent it to a provider.
    pub(super) fn note(&mut self, written: &Written<'_>) {
        let (on, change) = (written.on, written.change);
        let is_by_clone = written.process.is_some_and(ProcessName::is_of_clone);
        let Some(object) = change.after.as_deref().or(change.before.as_deref()) else {
            return;
        };
        if !is_by_clone || !matches!(on, Cluster::Provider(_)) {
            return;
        }
        self.objects.insert((on, change.key.clone()));
        let copy = marks::copy_on_provider(object);
        self.sources.extend(copy.map(|copy| copy.source.to_owned()));
        if change.key.resource == "apiservicenamespaces" {
            let name = format!("{}-{}", change.key.namespace, change.key.name);
            self.objects.insert((on, ObjectKey::new("", "namespaces", "", &name)));
        }
    }

    /// Whether an object of a provider was written, or its namespace.
    pub(super) fn has(&self, on: Cluster, key: &ObjectKey) -> bool {
        let namespace = ObjectKey::new("", "namespaces", "", &key.namespace);
        [key.clone(), namespace]
            .into_iter()
            .any(|key| self.objects.contains(&(on, key)))
    }

    /// Whether a copy of the source of this UID was written.
    pub(super) fn has_copy_of(&self, source: &str) -> bool {
        self.sources.contains(source)
    }
}
