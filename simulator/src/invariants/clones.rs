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
    /// UIDs of the sources of copies that ended by others.
    ended: BTreeSet<String>,
    /// UIDs of copies that were made anew after the former copy of the source had ended by others.
    made_again: BTreeSet<(Cluster, String)>,
}

impl CloneWrites {
    /// Notes a write to a provider, if a konnector of a second cluster sent it, or if it ended a copy.
    pub(super) fn note(&mut self, written: &Written<'_>) {
        let (on, change) = (written.on, written.change);
        let is_by_clone = written.process.is_some_and(ProcessName::is_of_clone);
        let Some(object) = change.after.as_deref().or(change.before.as_deref()) else {
            return;
        };
        if !matches!(on, Cluster::Provider(_)) {
            return;
        }
        let copy = marks::copy_on_provider(object);
        if !is_by_clone {
            let ended = copy.filter(|_| change.after.is_none());
            self.ended.extend(ended.map(|copy| copy.source.to_owned()));
            return;
        }
        self.objects.insert((on, change.key.clone()));
        if let Some(copy) = copy {
            self.sources.insert(copy.source.to_owned());
            if change.before.is_none() && self.ended.contains(copy.source) {
                self.made_again.insert((on, marks::uid(object).to_owned()));
            }
        }
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

    /// Whether the copy of this UID was made anew, after another one had ended the former copy of its source.
    pub(super) fn has_made_again(&self, on: Cluster, copy: &str) -> bool {
        self.made_again.contains(&(on, copy.to_owned()))
    }

    /// Whether a copy of the source of this UID was written.
    pub(super) fn has_copy_of(&self, source: &str) -> bool {
        self.sources.contains(source)
    }
}
