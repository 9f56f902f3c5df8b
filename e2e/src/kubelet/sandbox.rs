//! The sandboxes of the Pods that run: the network of each, and the processes in it.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;

use crate::NetworkNamespace;

/// All sandboxes, by the UIDs of their Pods.
#[derive(Clone, Debug, Default)]
pub(super) struct Sandboxes(Arc<Mutex<BTreeMap<String, Sandbox>>>);

#[derive(Debug)]
struct Sandbox {
    network: Arc<NetworkNamespace>,
    /// Process ids, by the names of containers.
    processes: BTreeMap<String, u32>,
}

impl Sandboxes {
    pub(super) fn insert(&self, pod: &str, network: Arc<NetworkNamespace>) {
        let processes = BTreeMap::new();
        self.0.lock().insert(pod.to_owned(), Sandbox { network, processes });
    }

    pub(super) fn remove(&self, pod: &str) {
        self.0.lock().remove(pod);
    }

    pub(super) fn network(&self, pod: &str) -> Option<Arc<NetworkNamespace>> {
        Some(Arc::clone(&self.0.lock().get(pod)?.network))
    }

    pub(super) fn process(&self, pod: &str, container: &str) -> Option<u32> {
        self.0.lock().get(pod)?.processes.get(container).copied()
    }

    /// Notes the process of a container; `None` once it has ended.
    pub(super) fn set_process(&self, pod: &str, container: &str, id: Option<u32>) {
        if let Some(sandbox) = self.0.lock().get_mut(pod) {
            match id {
                Some(id) => sandbox.processes.insert(container.to_owned(), id),
                None => sandbox.processes.remove(container),
            };
        }
    }
}
