//! The objects that a cluster has from its start.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{ApiServer, Author};
use crate::{ObjectKey, built_in::roles, meta, strategy};

const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

impl ApiServer {
    /// Writes the namespaces and the default roles.
    pub(super) fn boot(&mut self) {
        let author = Author::controller("boot");
        for name in NAMESPACES {
            self.boot_object(&author, "", "v1", "namespaces", json!({"metadata": {"name": name}}));
        }
        for (resource, object) in roles::all() {
            self.boot_object(&author, roles::GROUP, "v1", resource, object);
        }
        self.store.compact();
        self.take_changes();
    }

    fn boot_object(&mut self, author: &Author, group: &str, version: &str, resource: &str, mut object: Value) {
        let Some(endpoint) = self.endpoints.get(group, version, resource).cloned() else {
            return;
        };
        strategy::normalize(&endpoint, &mut object);
        strategy::prepare_create(&endpoint, &mut object);
        meta::set(&mut object, "uid", self.ids.uid().into());
        meta::set(&mut object, "creationTimestamp", meta::time(Timestamp::UNIX_EPOCH));
        let key = ObjectKey::new(group, resource, meta::namespace(&object), meta::name(&object));
        self.commit(author, &key, Some((object, 0)));
    }
}
